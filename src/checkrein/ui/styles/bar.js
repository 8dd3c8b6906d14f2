// @ts-check
/** How the bar looks. */
import { sheet } from "./base.js";

export const barStyle = sheet(`
  :host { display: block }
  .bar { position: fixed; inset-inline: 0; inset-block-end: var(--lift, 0px); z-index: var(--checkrein-z-index, 2147483000);
    max-block-size: var(--seen, 100vh); overflow-y: auto; overscroll-behavior: contain; display: flex;
    flex-direction: column; background: var(--sheet); color: var(--ink); border-block-start: 1px solid var(--line);
    box-shadow: 0 -8px 28px #0000000f;
    padding: .7rem max(1.5rem, calc(50% - var(--checkrein-width, 77rem) / 2)) calc(.8rem + env(safe-area-inset-bottom, 0px)) }
  :host([inline]) .bar { position: static; max-block-size: none; box-shadow: none; border: 1px solid var(--line);
    border-radius: var(--round); padding: .7rem .8rem }
  :host([inline]) .room { display: none }
  .bar:focus-visible { outline-offset: -3px; border-radius: 0 }
  .above { flex: 0 1 auto; min-block-size: 0; overflow-y: auto; margin-inline: -.3rem; padding-inline: .3rem }
  .above:has(> :not([hidden])) { padding-block-end: .1rem }
  .standing { flex: none }

  .facts { position: relative; display: flex; flex-wrap: wrap; align-items: center; gap: .15rem 1.15rem; min-block-size: 1.9rem;
    margin-block-end: .45rem }
  .status { display: inline-flex; align-items: center; gap: .4rem; font-weight: 600 }
  .time { white-space: nowrap }
  .clock { font: 600 1.1rem/1.5 var(--mono); font-variant-numeric: tabular-nums }
  .most { white-space: pre }
  .caps { display: inline-flex; flex-wrap: wrap; gap: .15rem 1.15rem }
  .cap { position: relative; padding-block: 3px }
  .meter { position: absolute; inset: auto 0 0; block-size: 2px; border-radius: 2px; background: var(--line); overflow: hidden }
  .meter i { display: block; block-size: 100%; background: var(--edge) }
  [data-near] { color: var(--hold); font-weight: 700 }
  [data-near] .meter i { background: currentColor }
  .cap[data-near] .meter { block-size: 3px }

  .keys { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: .6rem }
  .hold { display: flex; flex-direction: column; gap: .35rem; min-inline-size: 0 }
  .hold > .key { flex: 1 }
  .hold > .plain { font-size: .8125rem; min-block-size: 36px; padding: .2rem .85rem; font-weight: 500 }
  .key { display: flex; flex-direction: column; gap: .05rem; padding: .5rem .85rem .55rem; overflow-wrap: anywhere }
  .key .head { display: flex; align-items: center; gap: .45rem; font-size: 1rem; inline-size: 100% }
  .key .sign { display: inline-flex; font-size: .82rem }
  .key b { font-weight: 600 }
  .key kbd { margin-inline-start: auto }
  /* Two lines are kept free, so that the bar does not grow and shrink while the run goes on. */
  .key .consequence { color: var(--soft); font-size: .8125rem; line-height: 1.35; text-wrap: pretty; min-block-size: 2lh }
  .key:hover:not([aria-disabled="true"]) { background: color-mix(in srgb, currentColor 4%, transparent) }
  .key-hold .head { color: var(--hold) }
  .key-hold[data-verb="resume"] .head { color: var(--done) }
  .key-hold[data-verb="resume"]:not([aria-disabled="true"]) { border-color: var(--done); border-width: 2px;
    background: color-mix(in srgb, var(--done) 9%, transparent) }
  .key-redirect .head { color: var(--run) }
  .key-cancel { border-color: var(--stop) }
  .key-cancel .head { color: var(--stop) }
  .key[aria-disabled="true"] { border-color: var(--line) }
  .key[aria-disabled="true"] .head { color: var(--soft) }
  .key[aria-disabled="true"] kbd { visibility: hidden }
  .key[aria-busy="true"] { border-style: solid; border-color: var(--edge) }
  .key[aria-busy="true"] .head { color: var(--ink) }
  .key[aria-busy="true"] .shape { animation: breathe 1.4s steps(10) infinite }
  @keyframes breathe { 50% { opacity: .25 } }
  .key[aria-expanded="true"], .key[aria-expanded="true"]:hover:not([aria-disabled="true"]) { border-color: var(--run); background: color-mix(in srgb, var(--run) 7%, transparent) }

  .row { display: flex; flex-wrap: wrap; align-items: center; gap: .45rem .6rem }
  .line { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem .6rem; padding-block: .1rem; margin-block-end: .45rem }
  .line p { color: var(--ink); flex: 0 1 auto; margin-inline-end: .5rem; overflow-wrap: anywhere }
  .line.is-lost p, .line.refused p { font-weight: 600 }
  .line .words { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden }
  .line[data-whole] .words { display: block; max-block-size: 40vh; overflow-y: auto }
  .line .all { font-size: .8125rem; min-block-size: 36px; padding: .1rem .6rem; border-width: 1px }

  .composer { display: grid; gap: .45rem; padding-block-end: .6rem; margin-block-end: .6rem;
    border-block-end: 1px solid var(--line) }
  .composer .top { justify-content: space-between; flex-wrap: nowrap; align-items: start }
  .composer .top button { flex: none }
  .composer .title { flex: 1 1 auto; padding-block: .55rem 0; overflow-wrap: anywhere }
  .composer .bottom { justify-content: space-between }
  .composer textarea { font-size: 1rem; line-height: 1.4; min-block-size: 3.6rem }
  .diff { display: grid; overflow-wrap: anywhere; line-height: 1.4 }
  .diff del { color: var(--stop); text-decoration: none }
  .diff ins { color: var(--done); text-decoration: none }
  .whens { border: 0; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: 0 1.1rem; min-inline-size: 0 }
  .whens label { display: inline-flex; align-items: center; gap: .45rem; min-block-size: 44px; font-size: .875rem; cursor: pointer }
  .whens input { inline-size: 1.1rem; block-size: 1.1rem; margin: 0; accent-color: var(--run); flex: none }
  .composer .send { margin-inline-start: auto; flex: 0 1 auto }

  .receipt { padding-block-end: .5rem }
  .ending { font-size: 1rem; overflow-wrap: anywhere }
  .ending .sign { margin-inline-end: .5rem }
  .ending strong { font-size: 1.1rem; font-weight: 650 }
  .outcome { margin-block: .3rem .4rem; display: grid; gap: .15rem }
  .outcome:empty { display: none }
  .outcome li { display: flex; flex-wrap: wrap; align-items: center; gap: .1rem .55rem; overflow-wrap: anywhere }
  .outcome li > span:nth-child(2) { flex: 0 1 auto }
  .outcome li { flex-wrap: nowrap }
  .outcome button { flex: none }
  .outcome .sign { display: inline-flex; font-size: .88rem }
  .reasons { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem .8rem }
  .reason { padding-block: .3rem; font-size: .875rem; border-color: var(--edge) }
  .reason[aria-pressed="true"] { border-color: var(--ink); border-width: 2px; font-weight: 650 }
  details summary { color: var(--soft); font-size: .875rem; list-style: none }
  details summary::before { content: ""; border: .3em solid transparent; border-inline-start: .42em solid currentColor;
    border-inline-end: 0 }
  details[open] summary::before { rotate: 90deg }
  .scroll { overflow-x: auto }
  table { border-collapse: collapse; font-size: .875rem; margin-block-end: .4rem }
  th, td { text-align: start; font-weight: 400; padding: .25rem 1.4rem .25rem 0; border-block-start: 1px solid var(--line) }
  th { color: var(--soft); font-size: .8125rem; border: 0 }
  .after { display: flex; flex-wrap: wrap; gap: .6rem }

  /* The line above says it. */
  .bar:has(.line.is-paused:not([hidden])) .status { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%) }
  .bar[data-lost] { background: repeating-linear-gradient(135deg, var(--sheet) 0 14px, var(--ground) 14px 28px) }
  .bar[data-lost] .clock, .bar[data-lost] .mono { color: var(--soft) }

  /* Where there is little room, the run needs most of it. Long consequences are cut off, and a button shows them whole. */
  .room-for-words { display: none; position: absolute; inset-inline-end: 0; inset-block-start: calc(50% - 22px); padding: 0 .3rem;
    font-size: .8125rem; text-align: center; border-color: transparent; text-decoration: underline; text-underline-offset: .2em }
  @media (max-width: 40rem) {
    .bar { padding-inline: .75rem; padding-block: .45rem calc(.5rem + env(safe-area-inset-bottom, 0px)) }
    .facts { gap: 0 .7rem; min-block-size: 0; margin-block-end: .3rem; line-height: 1.4 }
    .facts .mono { font-size: .75rem }
    .caps { column-gap: .7rem }
    .bar[data-tight][data-cut]:not([data-whole]) .cap:not([data-near]) { display: none }
    .clock { font-size: 1rem; line-height: 1.4 }
    .bar:has(.line.is-needs_you:not([hidden])) .besides { display: none } /* the line says it */
    .keys { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr) minmax(0, 1.25fr); gap: .35rem }
    .key { padding: .3rem .5rem .35rem; gap: 0; min-block-size: 44px }
    .key .sign { display: none }
    .hold > .plain { padding: .1rem .5rem; font-size: .78rem; line-height: 1.25 }
    .key .head { font-size: .9375rem; line-height: 1.4 }
    .key kbd { display: none }
    .key .consequence { font-size: .75rem; line-height: 1.3; min-block-size: 3lh; -webkit-line-clamp: 3 }
    .bar:has(.line.is-paused:not([hidden])) .key .consequence { min-block-size: 2lh; -webkit-line-clamp: 2 }
    .line .words { -webkit-line-clamp: 2 }
    .line { flex-wrap: nowrap; gap: .5rem; margin-block-end: .3rem }
    .line p { font-size: .84rem; line-height: 1.35; flex: 1 1 auto; margin-inline-end: 0 }
    .line button { flex: none; max-inline-size: 8.3rem; padding: .2rem .5rem; font-size: .84rem; line-height: 1.25; text-align: center }
    .line:has(button:not([hidden]) ~ button:not([hidden])) { flex-wrap: wrap }
    .line:has(button:not([hidden]) ~ button:not([hidden])) p { flex-basis: calc(100% - 2.2rem) }
    .line:has(button:not([hidden]) ~ button:not([hidden])) button { flex: 1 1 auto; max-inline-size: none }
    .composer { gap: .35rem }
    .composer .diff { display: none }
    .composer .send { flex: 1 1 100%; order: -1; padding-block-start: .2rem }
    .composer .send button { flex: 1 1 0; text-align: center; padding-inline: .4rem; font-size: .875rem; white-space: nowrap }
    .whens label { font-size: .8125rem; gap: .35rem }
  }
  .bar[data-short] .facts { min-block-size: 0; margin-block-end: .25rem }
  .bar:is([data-short], [data-narrow]) .keys { grid-template-columns: repeat(3, minmax(0, 1fr)); gap: .35rem }
  .bar:is([data-short], [data-narrow]) .key { padding: .3rem .6rem; gap: 0 }
  .bar:is([data-short], [data-narrow]) .key .consequence { -webkit-line-clamp: 2; min-block-size: 2lh }
  .bar:is([data-short], [data-narrow]) .key .sign { display: none }
  .bar[data-narrow] .cap:not([data-near]) { display: none }
  .bar[data-narrow] .line.is-paused { display: none }
  .bar[data-tight] .key .consequence { display: -webkit-box; -webkit-box-orient: vertical; overflow: hidden }
  .bar[data-tight][data-cut] .room-for-words { display: block }
  .bar[data-tight][data-cut] .facts { padding-inline-end: 4rem }
  .bar[data-tight][data-whole] .key .consequence { -webkit-line-clamp: none }

  @media (forced-colors: active) {
    .bar { border-block-start: 2px solid CanvasText }
    .meter { background: GrayText; opacity: .9 }
    .meter i { background: CanvasText; forced-color-adjust: none }
    .key-cancel { border-width: 3px }
  }
`);
