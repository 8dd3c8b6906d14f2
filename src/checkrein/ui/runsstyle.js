// @ts-check
/** How the list of runs looks. */

import { sheet } from "./style.js";

export const runsStyle = sheet(`
  .headline { margin-block-end: 1rem }
  .lists { display: grid; gap: var(--gap); margin-block-start: var(--gap) }
  .start { display: grid; grid-template-columns: minmax(9rem, 14rem) minmax(0, 1fr) auto; gap: .2rem .8rem; align-items: end;
    grid-template-areas: "agent-label goal-label ." "agent goal button" "about about about" "trouble trouble trouble" }
  .start label { font-size: .8125rem; color: var(--soft) }
  .for-agent { grid-area: agent-label } .for-goal { grid-area: goal-label }
  .start select { grid-area: agent; align-self: stretch } .start textarea { grid-area: goal; resize: vertical }
  .start .main { grid-area: button; align-self: stretch; padding-inline: 1.4rem; text-align: center }
  .start .about { grid-area: about; padding-block-start: .35rem; display: grid } .start .about summary { min-block-size: 28px } .start .about:empty { display: none }
  .start .trouble { grid-area: trouble; padding-block-start: .35rem; font-size: .875rem }
  select { font: inherit; color: inherit; background: var(--ground); border: 1.5px solid var(--edge); border-radius: var(--round);
    padding: .45rem .6rem; min-block-size: 44px; inline-size: 100% }
  textarea[aria-invalid="true"] { border-color: var(--stop) }
  .group h2 { margin-block-end: .3rem }
  .group.waiting { border: 2px solid var(--ask) } .group.waiting h2 { color: var(--ask) }
  .run { display: grid; grid-template-columns: 1.6rem minmax(0, 1fr) max-content 4.5rem 5.5rem; column-gap: .8rem; align-items: baseline;
    grid-template-areas: "glyph goal status elapsed cost" ". facts wants wants wants" }
  .run > .glyph { grid-area: glyph; font-size: 1.05rem }
  .run > .goal { grid-area: goal; color: var(--ink); font-weight: 550; text-decoration: none; overflow-wrap: anywhere;
    display: -webkit-box; -webkit-line-clamp: 2; -webkit-box-orient: vertical; overflow: hidden }
  .run > .goal:hover { text-decoration: underline; text-underline-offset: .2em }
  .run > .goal:focus-visible { overflow: visible }
  .run > .status { grid-area: status; font-size: .875rem } .run > .elapsed, .run > .cost { font: .8125rem var(--mono); color: var(--soft); text-align: end;
    font-variant-numeric: tabular-nums }
  .run > .elapsed { grid-area: elapsed } .run > .cost { grid-area: cost }
  .run .facts { grid-area: facts; display: flex; flex-wrap: wrap; gap: .1rem .9rem; font-size: .8125rem; color: var(--soft) }
  .run .facts a { color: inherit; text-underline-offset: .2em; text-decoration-color: var(--edge) }
  .run > .wants { grid-area: wants; text-align: end; font-size: .8125rem; color: var(--ask); overflow-wrap: anywhere }
  .welcome { display: grid; gap: .5rem; max-inline-size: 44rem } .welcome h2 { font-size: 1.05rem }
  .signin { max-inline-size: 34rem; margin: 3rem auto 0; display: grid; gap: .7rem }
  .signin h1 { font-size: 1.25rem }
  .signin input { inline-size: 100%; font: inherit; font-family: var(--mono); color: inherit; background: var(--ground); border: 1.5px solid var(--edge);
    border-radius: var(--round); padding: .5rem .65rem; min-block-size: 44px }
  @container (max-width: 704px) {
    .start { grid-template-columns: minmax(0, 1fr); grid-template-areas: "agent-label" "agent" "goal-label" "goal" "button" "about" "trouble" }
    .start .main { margin-block-start: .5rem }
    .run { grid-template-columns: 1.5rem minmax(0, 1fr) max-content; grid-template-areas: "glyph goal goal" ". status elapsed" ". facts cost" ". wants wants" }
    .run > .wants { text-align: start }
  }
`);
