// @ts-check
/** How the list of runs looks. */

import { sheet } from "./base.js";

export const runsStyle = sheet(`
  .headline { margin-block-end: 1rem }
  .lists { display: grid; gap: var(--gap); margin-block-start: var(--gap) } .lists.first { margin-block: 0 }
  .lists.first:has(> :not([hidden])) { margin-block-end: var(--gap) }
  .filters { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem .8rem; margin-block-start: var(--gap) }
  .filters > input { flex: 0 1 20rem } .filters :is(input, select) { min-block-size: 40px; background: var(--sheet) }
  .filters .folded[open] { flex-basis: 100% } .more-filters { display: flex; flex-wrap: wrap; gap: .5rem .7rem; align-items: center; padding-block: .3rem }
  .more-filters > :is(input, select) { inline-size: auto; flex: 0 1 12rem } .dates { display: flex; flex-wrap: wrap; gap: .4rem .8rem; font-size: .8125rem; color: var(--soft) }
  .dates input { inline-size: auto; font-size: .875rem }
  .selection { position: fixed; inset-inline: 0; inset-block-end: 0; z-index: 5; border-radius: 0; border-inline: 0; border-color: var(--stop);
    padding: .7rem max(1.5rem, calc(50% - 38.5rem)) .9rem; max-block-size: 50vh; overflow-y: auto; box-shadow: 0 -8px 28px #0000000f }
  .lists:has(> .selection:not([hidden])) { padding-block-end: 9rem }
  .chosen-bar { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center }
  .stop-all { border-color: var(--stop); color: var(--stop); font-weight: 600 }
  .results { margin-block-start: .4rem; font-size: .875rem }
  .choose { grid-area: choose; inline-size: 1.4rem; align-self: center } .choose input { inline-size: 1.15rem; block-size: 1.15rem; margin: 0; accent-color: var(--stop); vertical-align: middle }
  .lists[data-only-look] .choose { display: none }
  .opener { display: none }
  .goals { grid-area: goals; display: flex; flex-wrap: wrap; gap: .4rem; align-items: center; padding-block-start: .45rem }
  .goal-to-click { font-size: .875rem; padding: .25rem .7rem; min-block-size: 36px; border-width: 1px; border-color: var(--run); color: var(--run) }
  .start { display: grid; grid-template-columns: minmax(9rem, 14rem) minmax(0, 1fr) auto; gap: .2rem .8rem; align-items: end;
    grid-template-areas: "agent-label goal-label ." "agent goal button" "goals goals goals" "about about about" "trouble trouble trouble" }
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
  .run { display: grid; grid-template-columns: auto 1.6rem minmax(0, 1fr) max-content 4.5rem 6.5rem; column-gap: .8rem; align-items: baseline;
    grid-template-areas: "choose glyph goal status elapsed cost" "choose . facts wants wants wants" }
  .run > .glyph { grid-area: glyph; font-size: 1.05rem }
  .run > .goal { grid-area: goal; color: var(--ink); font-weight: 550; text-decoration: none; overflow-wrap: anywhere;
    display: -webkit-box; -webkit-line-clamp: 2; -webkit-box-orient: vertical; overflow: hidden }
  .run > .goal:hover { text-decoration: underline; text-underline-offset: .2em }
  .run > .goal:focus-visible { overflow: visible }
  .run > .status { grid-area: status; font-size: .875rem } .run > .elapsed, .run > .cost { font: .8125rem var(--mono); color: var(--soft); text-align: end;
    font-variant-numeric: tabular-nums; white-space: nowrap }
  .run > .elapsed { grid-area: elapsed } .run > .cost { grid-area: cost }
  .run .facts { grid-area: facts; display: flex; flex-wrap: wrap; gap: .1rem .9rem; font-size: .8125rem; color: var(--soft) }
  .run .facts a { color: inherit; text-underline-offset: .2em; text-decoration-color: var(--edge) }
  .run > .wants { grid-area: wants; text-align: end; font-size: .8125rem; color: var(--ask); overflow-wrap: anywhere }
  .welcome { display: grid; gap: .5rem; max-inline-size: 44rem } .welcome h2 { font-size: 1.05rem }
  .signin { max-inline-size: 34rem; margin: 3rem auto 0; display: grid; gap: .7rem }
  .signin h1 { font-size: 1.25rem } .signin .main { text-align: center }
  .signin input { inline-size: 100%; font: inherit; font-family: var(--mono); color: inherit; background: var(--ground); border: 1.5px solid var(--edge);
    border-radius: var(--round); padding: .5rem .65rem; min-block-size: 44px }
  @container (max-width: 704px) {
    .start { grid-template-columns: minmax(0, 1fr); grid-template-areas: "agent-label" "agent" "goal-label" "goal" "button" "goals" "about" "trouble" }
    .start .main { margin-block-start: .5rem }
    .start[data-folded] { display: block; padding: 0; border: 0; background: none } .start[data-folded] > :not(.opener) { display: none }
    .start[data-folded] > .opener { display: block; inline-size: 100%; text-align: center; border-color: var(--run); color: var(--run); font-weight: 600; background: var(--sheet) }
    .headline { margin-block-end: .5rem } .filters > input { flex: 1 1 100% }
    .run { grid-template-columns: auto 1.5rem minmax(0, 1fr) max-content; column-gap: .5rem;
      grid-template-areas: "choose glyph goal goal" "choose . status elapsed" "choose . facts cost" "choose . wants wants" }
    .run > .wants { text-align: start }
  }
`);
