// @ts-check
/**
 * The looks that all parts of the page share, as style sheets for shadow roots.
 *
 * Everything a page around may want to change is a custom property `--checkrein-…`; see docs/howto/embed.md. Inside,
 * only the short names are used.
 */

/**
 * A style sheet. A `rem` in it is never less than 16 pixels: the page around may have made its own smaller, for reasons
 * of its own, and what says Stop must stay readable there. It grows with what a person has set in the browser.
 * @param {string} css
 * @returns {CSSStyleSheet}
 */
export function sheet(css) {
  const made = new CSSStyleSheet();
  const scaled = (/** @type {string} */ line) => line.replace(REM, "calc($1 * var(--rem))");
  const lines = css.split("\n").map((line) => (line.includes("@media") ? line : scaled(line)));
  made.replaceSync(lines.join("\n"));
  return made;
}

const REM = /(-?(?:\d*\.)?\d+)rem\b(?! *\/\* *as it is)/g;

/** Colours and fonts, light and dark. For a shadow root, or for a document that is Checkrein's own. */
export const tokens = sheet(`
  :host, :root {
    color-scheme: light dark;
    --rem: max(16px, 1rem /* as it is */);
    --ground: var(--checkrein-ground, light-dark(#f6f5f2, #161513));
    --sheet: var(--checkrein-sheet, light-dark(#fffefb, #1f1e1b));
    --line: var(--checkrein-line, light-dark(#dedbd3, #3a3833));
    --edge: var(--checkrein-edge, light-dark(#8d887c, #7f7a6f));
    --ink: var(--checkrein-ink, light-dark(#1d1b17, #efece4));
    --soft: var(--checkrein-soft, light-dark(#625e55, #aca79b));
    --run: var(--checkrein-run, light-dark(#1f5fd0, #86b5ff));
    --hold: var(--checkrein-hold, light-dark(#835400, #f0b84d));
    --done: var(--checkrein-done, light-dark(#1b6e3c, #72cf97));
    --stop: var(--checkrein-stop, light-dark(#a3271d, #ff9a8f));
    --ask: var(--checkrein-ask, light-dark(#6a35a8, #c9a2ff));
    --on-accent: var(--checkrein-on-accent, light-dark(#ffffff, #14120f));
    --font: var(--checkrein-font, system-ui, "Segoe UI", sans-serif);
    --mono: var(--checkrein-mono, ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace);
    --round: var(--checkrein-round, .55rem);
  }
  :host([theme="light"]), :root[data-theme="light"] { color-scheme: light }
  :host([theme="dark"]), :root[data-theme="dark"] { color-scheme: dark }
`);

/** Text, buttons, fields, focus and shapes. */
export const base = sheet(`
  /* On what is inside, too: of the element itself the page around may say what it likes. */
  :host, :host > * { font: .9375rem/1.5 var(--font); color: var(--ink); letter-spacing: normal; text-align: start;
    text-transform: none; word-spacing: normal; text-indent: 0; white-space: normal; cursor: auto; direction: ltr }
  :host([hidden]) { display: none }
  *, *::before, *::after { box-sizing: border-box }
  [hidden] { display: none !important }
  p, h1, h2, h3, ul, ol, dl, dd, figure { margin: 0 }
  ul, ol { list-style: none; padding: 0 }
  a { color: var(--run) }
  .mono { font-family: var(--mono); font-size: .82rem; font-variant-numeric: tabular-nums }
  .soft { color: var(--soft) }
  /* What a model chose, set apart from what we say. */
  q { quotes: none; font-family: var(--mono); font-size: .92em; background: color-mix(in srgb, currentColor 8%, transparent);
    border-radius: .2rem; padding-inline: .15em; overflow-wrap: anywhere }
  kbd { font: .72rem/1.35 var(--mono); color: var(--soft); border: 1px solid var(--line); border-radius: .25rem; padding: 0 .35rem }
  .small { font-size: .8125rem }
  .unseen { position: absolute; inline-size: 1px; block-size: 1px; margin: -1px; overflow: hidden; clip-path: inset(50%);
    white-space: nowrap }

  .shape { inline-size: 1.15em; block-size: 1.15em; flex: none; vertical-align: -.2em; fill: none; stroke: currentColor;
    stroke-width: 2; stroke-linecap: round; stroke-linejoin: round }
  .shape .solid { fill: currentColor; stroke: none }
  .shape .bold { stroke-width: 3.2; stroke-linecap: butt }
  .shape .cut { stroke: var(--sheet) }
  .shape .track { opacity: .28 }
  /* In steps: a smooth turn would have the browser paint sixty times a second for as long as the run lasts. */
  .shape .turn { transform-origin: 50% 50%; animation: turn 1.2s steps(16) infinite }
  @keyframes turn { to { rotate: 1turn } }

  .is-queued, .is-not_started { color: var(--soft) }
  .is-running, .is-redirecting { color: var(--run) }
  .is-pausing, .is-paused { color: var(--hold) }
  .is-done, .is-completed { color: var(--done) }
  .is-undone { color: var(--soft) }
  .is-cancelling, .is-cancelled, .is-failed, .is-killed { color: var(--stop) }
  .is-needs_you { color: var(--ask) }
  .is-lost { color: var(--soft) }

  button { font: inherit; color: var(--ink); background: transparent; border: 1.5px solid var(--edge);
    border-radius: var(--round); padding: .45rem .85rem; min-block-size: 44px; min-inline-size: 44px; cursor: pointer;
    text-align: start; touch-action: manipulation }
  button:hover:not([aria-disabled="true"]) { border-color: currentColor }
  button[aria-disabled="true"] { cursor: default; color: var(--soft); border-style: dashed }
  button.main { background: var(--run); border-color: var(--run); color: var(--on-accent); font-weight: 600 }
  button.main[aria-disabled="true"] { background: transparent; color: var(--soft); border-color: var(--edge) }
  button.plain { font-weight: 600 }
  :focus-visible { outline: 3px solid var(--run); outline-offset: 2px; border-radius: var(--round) }
  :focus:not(:focus-visible) { outline: none }
  textarea, input[type="text"], input[type="search"], input[type="date"] { inline-size: 100%; font: inherit; color: inherit; background: var(--ground);
    border: 1.5px solid var(--edge); border-radius: var(--round); padding: .5rem .65rem; resize: vertical }
  summary { cursor: pointer; min-block-size: 44px; display: inline-flex; align-items: center; gap: .35rem }

  @media (prefers-reduced-motion: reduce) {
    *, *::before, *::after { animation: none !important; transition: none !important; scroll-behavior: auto !important }
  }
  @media (forced-colors: active) {
    .shape .cut { stroke: Canvas }
    button[aria-disabled="true"] { color: GrayText; border-color: GrayText }
    button.main { border-width: 3px }
  }
`);
