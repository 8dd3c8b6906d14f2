// @ts-check
/** How the list of stops looks. */

import { sheet } from "./base.js";

export const stopsStyle = sheet(`
  .stops { display: grid; gap: .2rem }
  .filters { margin-block-end: .8rem }
  .stop { display: grid; gap: .25rem; padding-block: .7rem; overflow-wrap: anywhere }
  .stop p { margin: 0 }
  .stop .why { font-weight: 550 }
  .stop .facts, .stop .proof { display: flex; flex-wrap: wrap; gap: .15rem .9rem; font-size: .8125rem; color: var(--soft) }
  .stop .facts a { color: var(--ink) } .stop .proof a { color: var(--run) }
  .stop .proof a, .stop .facts a, .exports a { min-block-size: 24px; display: inline-flex; align-items: center }
  .stop .shown { font: .8125rem/1.5 var(--mono); border-inline-start: 3px solid var(--edge); padding-inline-start: .7rem }
  .stop .noticed { font-size: .875rem; color: var(--ask) }
  .stop .unsure { color: var(--stop); font-weight: 600 }
  .stop time { font: .8125rem var(--mono); color: var(--soft) }
  .filters .flagged { display: inline-flex; align-items: center; gap: .4rem; font-size: .875rem; min-block-size: 44px }
  .filters select { inline-size: auto }
  .exports { display: inline-flex; gap: .9rem; font-size: .875rem } .exports a { color: var(--run) }
`);
