// @ts-check
/** How the page around the bar looks: panels, lists, texts and the picture of the calls. */

import { sheet } from "./base.js";

/** Panels and everything in them. */
export const panels = sheet(`
  :host { display: block; --gap: 1rem }
  .sheet { container-type: inline-size }
  .frame { max-inline-size: 80rem; margin-inline: auto; padding: 1.4rem 1.5rem 1.5rem }
  h1 { font-size: 1.5rem; line-height: 1.25; font-weight: 650; letter-spacing: -.015em; text-wrap: balance;
    overflow-wrap: anywhere; outline: none }
  h1.long { font-size: 1.15rem; text-wrap: pretty }
  h2 { font-size: .9rem; font-weight: 650; letter-spacing: -.005em }
  h3 { font-size: .9375rem; font-weight: 600 }
  code { font-family: var(--mono); font-size: .92em; overflow-wrap: anywhere }
  .crumbs { display: flex; flex-wrap: wrap; gap: .1rem .5rem; color: var(--soft); font-size: .8125rem;
    margin-block-end: .35rem }
  .crumbs a { color: inherit; overflow-wrap: anywhere }
  .crumbs li + li::before { content: "/"; margin-inline-end: .5rem; color: var(--edge) }
  .crumbs .mono { font-size: .78rem }
  .origin { color: var(--soft); font-size: .8125rem; margin-block: .3rem 1.1rem }

  .strip { display: flex; gap: .6rem; align-items: baseline; margin-block-end: 1rem; padding: .6rem .9rem;
    border: 1.5px dashed var(--edge); border-radius: var(--round); color: var(--soft) }
  .grid { display: grid; gap: var(--gap); grid-template-columns: minmax(15rem, 18.5rem) minmax(0, 1fr) minmax(15rem, 18.5rem);
    grid-template-areas: "plan middle side" "picture picture side"; grid-template-rows: auto 1fr; align-items: start }
  .plan { grid-area: plan } .middle { grid-area: middle } .side { grid-area: side } .picture { grid-area: picture }
  .column { display: grid; gap: var(--gap); align-content: start; min-inline-size: 0 }
  .below { display: grid; gap: var(--gap); margin-block-start: var(--gap) }
  .is-lost { filter: grayscale(1) }
  @container (max-width: 1088px) {
    .grid { grid-template-columns: minmax(14rem, 1fr) minmax(0, 1.7fr); grid-template-areas: "plan middle" "side side" "picture picture";
      grid-template-rows: none }
    .side { grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)) }
  }
  .now-line { display: none }
  button.fold { display: none }
  @container (max-width: 704px) {
    .frame { padding: .5rem .85rem 1rem; --gap: .75rem; display: flex; flex-direction: column }
    .grid, .side { grid-template-columns: minmax(0, 1fr) }
    .grid { grid-template-areas: "middle" "plan" "side" "picture" }
    /* What it waits for comes before what it is called. */
    .frame > .needs { order: -1; margin-block-end: .6rem }
    h1, h1.long { font-size: 1.05rem; display: -webkit-box; -webkit-line-clamp: 2; -webkit-box-orient: vertical; overflow: hidden; flex: none }
    .origin > .keys-help, .origin > .keys-help-dot { display: none }
    .crumbs { margin-block-end: .1rem } .origin { margin-block: .1rem .5rem }
    .now-line { display: flex; gap: .5rem; align-items: baseline; padding: .45rem .7rem; margin-block-end: .6rem; background: var(--sheet);
      border: 1px solid var(--line); border-radius: var(--round); font-size: .875rem; line-height: 1.4; overflow-wrap: anywhere }
    .now-line .words { display: -webkit-box; -webkit-line-clamp: 2; -webkit-box-orient: vertical; overflow: hidden }
    .scroller { max-block-size: 40vh }
    button.fold { display: block }
    .panel[data-folded] > .body, .panel[data-folded] .count { display: none }
    .panel[data-folded] > .head { margin-block-end: 0 }
  }

  .panel { background: var(--sheet); border: 1px solid var(--line); border-radius: calc(var(--round) + .1rem);
    padding: .8rem 1rem .9rem; min-inline-size: 0;
    position: relative; contain: layout style }
  .head { display: flex; justify-content: space-between; align-items: center; gap: .75rem; min-block-size: 1.75rem;
    margin-block-end: .35rem }
  .head > button.quiet { margin-inline-end: -.55rem }
  .count { color: var(--soft); font-size: .8125rem; font-variant-numeric: tabular-nums; white-space: nowrap }
  .rows > li { padding-block: .55rem; border-block-start: 1px solid var(--line) }
  .rows > li:first-child { border-block-start: 0; padding-block-start: .2rem }
  .rows > li:last-child { padding-block-end: .1rem }
  .trouble { color: var(--stop); font-size: .8125rem }
  .trouble:empty { display: none }
  .time, .head-line { color: var(--soft); font: .78rem/1.5 var(--mono); font-variant-numeric: tabular-nums }
  .head-line { display: block; font-family: var(--font); font-size: .78rem }

  button.quiet { min-block-size: 28px; min-inline-size: 0; padding: .1rem .55rem; border-color: transparent;
    color: var(--soft); font-size: .8125rem; border-radius: .35rem; position: relative }
  button.quiet::after { content: ""; position: absolute; inset: -6px -4px }
  button.quiet:hover { border-color: var(--line); color: var(--ink) }
  button.link { min-block-size: 24px; min-inline-size: 0; padding: 0; border: 0; border-radius: .2rem; color: var(--ink);
    font: 500 .875rem var(--mono); overflow-wrap: anywhere; text-decoration: underline; text-underline-offset: .2em;
    text-decoration-color: transparent }
  button.link:hover { text-decoration-color: currentColor }
  button.link.words { font: inherit; font-weight: 500; text-align: start }
  button.decision { display: grid; gap: .05rem; align-content: center }
  button.decision b { font-weight: 600 }
  button.decision span { color: var(--soft); font-size: .8125rem; line-height: 1.35 }
  button.decision.yes { border-color: var(--done) }
  button.decision.yes b { color: var(--done) }
  button.small { min-block-size: 36px; padding: .25rem .65rem; font-size: .8125rem; border-width: 1px }
  button:disabled { border-style: dashed; color: var(--soft); cursor: default }
  button[aria-busy="true"] { opacity: .6; cursor: progress }
  .more { margin-block-end: .4rem }

  /* steps */
  .task { display: grid; grid-template-columns: 1.5rem minmax(0, 1fr) auto; column-gap: .45rem; align-items: baseline;
    padding-block: .5rem; border-block-start: 1px solid var(--line) }
  .task:first-child { border-block-start: 0; padding-block-start: .15rem }
  .task:last-child { padding-block-end: 0 }
  .task .glyph { grid-row: 1 / 3; align-self: start; font-size: 1.05rem; line-height: 1.4 }
  .task .title { color: var(--ink); overflow-wrap: anywhere }
  .task .word { grid-column: 2; font-size: .8125rem }
  .task .time { grid-row: 1; grid-column: 3 }
  .task .fork { grid-row: 2; grid-column: 3; font-size: .8125rem }
  .fork-form { display: grid; gap: .5rem; margin-block-start: .7rem; padding-block-start: .7rem; border-block-start: 1px solid var(--line) }
  .fork-form[hidden] { display: none }
  .fork-buttons { display: flex; gap: .6rem; align-items: center }

  /* a fork beside its origin */
  .origin-of-fork { margin-block-end: var(--gap) }
  .origin-of-fork .fork-from, .origin-of-fork .fork-wanted { margin-block: 0 .4rem; overflow-wrap: anywhere }
  .fork-effects { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; margin: 0; padding: 0; list-style: none }
  .fork-effects li { display: flex; gap: .45rem; align-items: baseline }
  table.both { inline-size: 100%; border-collapse: collapse; table-layout: fixed; margin-block-start: .7rem }
  table.both th { text-align: start; font-weight: 600; font-size: .8125rem; padding-block-end: .3rem }
  table.both th .word { font-weight: 400; color: var(--soft) }
  table.both td { padding: .35rem .6rem .35rem 0; border-block-start: 1px solid var(--line); overflow-wrap: anywhere; vertical-align: baseline }
  table.both td > .glyph { margin-inline-end: .45rem }
  table.both td > .word { color: var(--soft); font-size: .8125rem; margin-inline-start: .6rem }
  table.both .is-taken .title { color: var(--soft) }
  .task.is-queued .title, .task.is-not_started .title { color: var(--soft) }

  /* text */
  .text .body { position: relative }
  .scroller { min-block-size: 8rem; max-block-size: min(34rem, 58vh); overflow: auto; overscroll-behavior: auto; padding-inline: .1rem .4rem;
    scrollbar-gutter: stable; border-radius: .3rem }
  .scroller.short { max-block-size: min(20rem, 40vh) }
  .saying { padding-block: .45rem; line-height: 1.6; overflow-wrap: anywhere }
  .saying + .saying { border-block-start: 1px dotted var(--line) }
  .deed { display: flex; gap: .45rem; align-items: center; padding: .1rem .6rem .1rem .5rem; margin-inline-start: .1rem; font-size: .8125rem;
    border-inline-start: 2px solid var(--line); min-block-size: 1.9rem }
  .deed .glyph { font-size: .85rem } .deed .name { font-size: .8125rem; color: var(--soft); flex: none; max-width: 45%; overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
  .deed .time { flex: none }
  .said:empty { display: none }
  .streamed p { white-space: pre-wrap; min-block-size: 1.6em }
  .streamed p:only-child:empty { min-block-size: 0 }
  .caret { border-inline-end: 2px solid var(--run); margin-inline-start: 1px; animation: blink 1.1s steps(2, jump-none) infinite }
  @keyframes blink { from { opacity: 1 } to { opacity: .15 } }
  .cut { display: flex; align-items: center; gap: .6rem; margin-block-start: .35rem; color: var(--soft); font-size: .8125rem }
  .cut::before, .cut::after { content: ""; border-block-start: 1px solid var(--edge); inline-size: 1.2rem; flex: none }
  .cut::after { flex: 1 }
  .to-end { position: absolute; inset-block-end: .4rem; inset-inline-end: 1rem; background: var(--sheet); font-size: .8125rem;
    min-block-size: 36px; padding: .2rem .7rem; box-shadow: 0 2px 10px #0002 }
  .markdown > * + * { margin-block-start: .6rem }
  .markdown :is(h3, h4, h5, h6) { margin: 0; font-size: 1rem; font-weight: 650 }
  .markdown :is(ul, ol) { padding-inline-start: 1.4rem } .markdown ul { list-style: disc } .markdown ol { list-style: decimal }
  .markdown p { margin: 0 }
  .markdown blockquote { margin: 0; padding-inline-start: .8rem; border-inline-start: 3px solid var(--line); color: var(--soft) }
  .markdown hr { border: 0; border-block-start: 1px solid var(--line) }
  .markdown code { background: var(--ground); padding: .05em .3em; border-radius: .25rem }
  .markdown .table { overflow-x: auto }
  .markdown table { border-collapse: collapse; font-size: .875rem }
  .markdown :is(th, td) { text-align: start; padding: .3rem 1.2rem .3rem 0; border-block-end: 1px solid var(--line) }
  .markdown .right { text-align: end } .markdown .center { text-align: center }
  pre { margin: 0; padding: .6rem .75rem; background: var(--ground); border: 1px solid var(--line); border-radius: .4rem;
    font: .8125rem/1.5 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; overflow: auto; max-block-size: 22rem }
  .markdown pre code { background: none; padding: 0 }

  /* what it changed, what it was told, what was noticed */
  .change { display: grid; grid-template-columns: 1.5rem minmax(0, 1fr); column-gap: .35rem; align-items: baseline }
  .change > * { grid-column: 2 } .change .glyph { grid-column: 1; grid-row: 1 }
  .change .name { justify-self: start } .change .fate { font-size: .8125rem; color: var(--soft) }
  .change .summary, .change .why { font-size: .8125rem; color: var(--soft); overflow-wrap: anywhere }
  .change .summary { display: -webkit-box; -webkit-line-clamp: 1; -webkit-box-orient: vertical; overflow: hidden }
  .change.is-needs_you .fate { color: var(--ask) } .change.is-near { color: var(--hold) } .change.is-near .fate { color: var(--hold) }
  .change .retry { padding-block-start: .35rem }
  .told .fate { font-size: .8125rem; color: var(--soft) }
  .diff { font: .8125rem/1.55 var(--mono); overflow-wrap: anywhere; margin-block: .15rem }
  ins { color: var(--done); text-decoration: underline; text-decoration-color: color-mix(in srgb, currentColor 35%, transparent);
    text-underline-offset: .2em }
  del { color: var(--stop) }
  .flag .what { display: block; overflow-wrap: anywhere }
  .flags { border-color: var(--hold) }

  /* questions */
  .ask form { display: grid; gap: .45rem } .ask .rows:not(:empty) { margin-block-end: .8rem }
  .line { display: flex; flex-wrap: wrap; gap: .35rem .7rem; align-items: center } .line > .soft { flex: 1; min-inline-size: 9rem; line-height: 1.35 }
  .question { font-weight: 600; overflow-wrap: anywhere; white-space: pre-wrap }
  .answer { overflow-wrap: anywhere; white-space: pre-wrap; max-block-size: 20rem; overflow: auto }

  /* needs you */
  .needs { border: 2px solid var(--ask); margin-block-end: var(--gap) }
  .needs h2 { color: var(--ask) }
  .need { display: grid; gap: .45rem; outline-offset: 4px } .need h3 > .glyph { color: var(--ask) }
  .need h3 { overflow-wrap: anywhere }
  .for-good { color: var(--stop); font-weight: 650 }
  .given-all { display: grid; justify-items: start; min-inline-size: 0 } .given-all > * { max-inline-size: 100% }
  .given .value { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 8; overflow: hidden }
  .given[data-whole] .value { display: inline }
  .given dd[data-cut]:not(:has(.hidden-count))::after { content: attr(data-cut); color: var(--hold); font-family: var(--font) }
  .given[data-whole] dd::after { content: none !important }
  .hidden-count { color: var(--hold); font-family: var(--font) }
  .ways > :not(summary) { margin-block-end: .5rem } .edited { display: grid; gap: .2rem; margin-block: .2rem .5rem }
  .edited label { font: .8125rem var(--mono); color: var(--soft) } .edited textarea { font: .8125rem/1.5 var(--mono) }
  button.decision kbd { margin-inline-start: .5rem; font-weight: 400 }
  .approval ~ .approval:not(:focus-within) kbd, .rows:has(.approval:focus-within) .approval:not(:focus-within) kbd { visibility: hidden }
  .answers { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(13rem, 100%), 1fr)); gap: .5rem }
  .checked { display: flex; flex-wrap: wrap; gap: .3rem .9rem; align-items: center; border-inline-start: 3px solid var(--ask); padding-inline-start: .7rem }
  .fields { display: grid; grid-template-columns: minmax(4rem, max-content) minmax(0, 1fr); gap: .25rem .9rem;
    font: .8125rem/1.5 var(--mono); max-block-size: 22rem; overflow: auto }
  .fields dt { color: var(--soft); overflow-wrap: anywhere } .fields dd { white-space: pre-wrap; overflow-wrap: anywhere }

  .needs[hidden] + .now-line { margin-block-start: 0 }
  @container (max-width: 704px) {
    .needs { padding: .5rem .7rem .6rem } .needs .head { min-block-size: 0; margin-block-end: .15rem }
    .need { gap: .3rem } .need .asked { font-size: .8125rem; line-height: 1.35 } .need > p { line-height: 1.35; font-size: .875rem }
    .needs .rows > li { padding-block: .45rem }
    .answers { grid-template-columns: repeat(2, minmax(0, 1fr)) } .doubt .answers { grid-template-columns: repeat(3, minmax(0, 1fr)) }
    .answers .decision { padding: .3rem .5rem } .answers .decision span { font-size: .75rem; line-height: 1.25 } .answers kbd { display: none }
    .given .value { -webkit-line-clamp: 2 } .given.fields { line-height: 1.4; gap: .1rem .6rem }
    .ways > summary { min-block-size: 36px }
  }
  .help { color: var(--ink); background: var(--sheet); border: 1px solid var(--edge); border-radius: var(--round); padding: 1rem 1.3rem; max-inline-size: 26rem }
  .help::backdrop { background: #0006 }
  .help dl { display: grid; grid-template-columns: max-content 1fr; gap: .4rem 1rem; margin-block: .7rem 1rem } .help kbd { font-size: .85rem; padding: .1rem .45rem }
  button.keys-help { padding: 0; color: var(--run); text-decoration: underline; border: 0 }
  @container (min-width: 705px) {
    /* Side by side, so that the answers to two questions are in view. */
    .needs .rows:has(> :nth-child(2)) { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0 1.5rem }
    .needs .rows:has(> :nth-child(2)) > li { border-block-start: 0; padding-block: .2rem .5rem; align-content: start }
    .needs .rows:has(> :nth-child(2)) .value { -webkit-line-clamp: 4 }
  }

  /* how it ended */
  .final { font-size: 1.0625rem; line-height: 1.6; overflow-wrap: anywhere; white-space: pre-wrap; inline-size: 100%; max-block-size: min(30rem, 60vh);
    overflow: auto; border-radius: .3rem }
  .final.markdown { white-space: normal }
  .result:not(:empty) + .receipt { border-block-start: 1px solid var(--line); padding-block-start: .6rem }
  .result:not(:empty) + .receipt .ending strong { font-size: 1rem }
  .ending { font-size: 1rem; overflow-wrap: anywhere; outline-offset: 4px } .ending .sign { margin-inline-end: .5rem; font-size: 1.15rem }
  .ending strong { font-size: 1.2rem; font-weight: 650; letter-spacing: -.01em }
  .outcome { display: grid; gap: .3rem; margin-block: .6rem .7rem } .outcome:empty { display: none }
  .outcome li { display: flex; flex-wrap: wrap; gap: .2rem .55rem; align-items: baseline; overflow-wrap: anywhere }
  .outcome li > span:nth-child(2) { flex: 1 1 14rem } .outcome .sign { font-size: .95rem }
  .reasons { display: grid; gap: .4rem; padding-block: .6rem .2rem; border-block-start: 1px solid var(--line) }
  .reasons .question { font-weight: 400; font-size: .8125rem; color: var(--soft) }
  .row { display: flex; flex-wrap: wrap; gap: .4rem }
  .reason { font-size: .8125rem; padding: .2rem .7rem; min-block-size: 36px; border-width: 1px }
  .reason[aria-pressed="true"] { border-color: var(--ink); border-width: 2px; font-weight: 650 }
  .receipt details > summary { color: var(--soft); font-size: .8125rem; min-block-size: 36px }
  .receipt .scroll { overflow-x: auto }
  .receipt table { border-collapse: collapse; font-size: .8125rem; margin-block-end: .4rem }
  .receipt :is(th, td) { text-align: start; font-weight: 400; padding: .25rem 1.2rem .25rem 0; border-block-start: 1px solid var(--line) }
  .receipt th { color: var(--soft); border: 0 }
  .result:not(:empty) { display: grid; gap: .4rem; margin-block-end: .6rem }

  /* calls */
  .call > summary { display: grid; grid-template-columns: 1.5rem 4.5rem minmax(8rem, max-content) minmax(0, 1fr) max-content 4.5rem 1rem;
    gap: 0 .6rem; align-items: center; inline-size: 100%; min-block-size: 40px; border-radius: .35rem; list-style: none }
  .call > summary::-webkit-details-marker { display: none }
  .call > summary:hover .name { text-decoration: underline; text-underline-offset: .2em }
  .call .kind { color: var(--soft); font-size: .8125rem } .call .name { color: var(--ink); font: 500 .8125rem var(--mono); overflow-wrap: anywhere }
  .call .given { color: var(--soft); font: .78rem var(--mono); overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
  .call .now { font-size: .8125rem } .call .time { text-align: end }
  .calls .rows > li { padding-block: .1rem }
  .opened { display: grid; gap: .5rem; padding: .3rem 0 .9rem 2.1rem } .opened h3 { margin-block-start: .3rem; font-size: .8125rem }
  .block { display: grid; gap: .25rem; justify-items: start } .block > pre, .block > .markdown { inline-size: 100% }
  :is(.folded, .receipt details, .about details) > summary::before, .call > summary::after, .branch > summary::after { content: "";
    inline-size: .4rem; block-size: .4rem; border: solid currentColor; border-width: 0 1.5px 1.5px 0; rotate: -45deg; margin-inline: .15rem .3rem;
    flex: none; color: var(--edge) }
  :is(.folded, .receipt details, .about details)[open] > summary::before, .call[open] > summary::after, .branch[open] > summary::after { rotate: 45deg }
  .folded > summary { color: var(--soft); font-size: .8125rem; min-block-size: 32px }
  @container (max-width: 704px) {
    .call > summary { grid-template-columns: 1.5rem minmax(0, 1fr) max-content 1rem; padding-block: .4rem } .call > summary::after { grid-column: 4; grid-row: 1 }
    .call .kind, .call .given { display: none } .call .now { grid-column: 2; grid-row: 2 } .call .time { grid-column: 3; grid-row: 1 }
    .opened { padding-inline-start: 0 }
  }

  /* sub-runs */
  .tree .tree { margin-inline-start: .55rem; padding-inline-start: .9rem; border-inline-start: 2px solid var(--line) }
  .branch > summary { display: grid; grid-template-columns: 1.4rem minmax(0, 1fr) max-content 1rem; gap: .5rem; inline-size: 100%; align-items: baseline;
    padding-block: .4rem; list-style: none }
  .branch > summary::-webkit-details-marker { display: none }
  .branch .goal { overflow-wrap: anywhere } .branch .word { font-size: .8125rem }
  .branch-bar { margin-block: .1rem .5rem }

  /* the picture of the calls */
  .lanes { display: block; inline-size: 100%; font: 11.5px var(--mono); overflow: visible }
  .lanes text { fill: var(--soft) } .lanes .right { text-anchor: end } .lanes .lane { stroke: var(--line) }
  .lanes .fold { fill: var(--ground); stroke: var(--line); stroke-dasharray: 2 3 }
  .lanes .stroke { cursor: pointer }
  .stroke.model > rect, .merged.model { fill: var(--run) } .stroke.tool > rect, .merged.tool { fill: var(--done) }
  .stroke.run > rect, .merged.run { fill: var(--ask) } .stroke.ask > rect, .merged.ask { fill: var(--ask) }
  .stroke.undo > rect, .merged.undo { fill: var(--soft) }
  .stroke.live > rect { opacity: .8 } .stroke.is-undone > rect:first-child { fill-opacity: .25; stroke: var(--done) }
  .stroke.is-needs_you > rect:first-child, .stroke.is-failed > rect:first-child { fill-opacity: .2; stroke-width: 1.5 }
  .stroke.is-needs_you > rect:first-child { stroke: var(--ask); fill: var(--ask); stroke-dasharray: 4 2 }
  .stroke.is-failed > rect:first-child { stroke: var(--stop); fill: var(--stop) }
  .stroke > .frozen { fill: var(--sheet) !important; opacity: .8 !important }
  .stroke > .end { fill: var(--stop) !important } .stroke > .end.pause { fill: var(--hold) !important } .stroke > .end.redirect { fill: var(--ink) !important }
  .lanes .ends { stroke: var(--stop); stroke-width: 2 }
  .lanes .moment { stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 3 3 } .lanes .word { fill: var(--ink); font: 500 11.5px var(--font) }
  .lanes .moment.cancel, .lanes .moment.halt { stroke: var(--stop); stroke-dasharray: none } .lanes .word.cancel, .lanes .word.halt { fill: var(--stop) }
  .lanes .moment.pause { stroke: var(--hold) } .lanes .word.pause { fill: var(--hold) }
  .lanes .now { stroke: var(--edge); stroke-dasharray: 2 3 }
  .legend { display: flex; flex-wrap: wrap; gap: .3rem; align-items: center; font-size: .78rem; margin-block-start: .2rem }
  .key { inline-size: 1rem; block-size: .6rem; border-radius: .15rem; margin-inline-start: .7rem; background: var(--run) }
  .key:first-child { margin-inline-start: 0 } .key.tool { background: var(--done) } .key.stopped { inline-size: .25rem; block-size: .95rem; background: var(--stop) }
  @media print { .scroller, pre, .fields { max-block-size: none } }
`);
