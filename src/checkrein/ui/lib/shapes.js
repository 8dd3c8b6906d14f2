// @ts-check
/**
 * A shape for everything that has a state, so that nothing is told by colour alone.
 *
 * Each is drawn in the colour of the text around it. Whoever shows one also shows its word: a shape is hidden from
 * screen readers.
 */

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {[name: string, attributes: Record<string, string>]} Part */

/** @type {(d: string, more?: Record<string, string>) => Part} */
const line = (d, more = {}) => ["path", { d, ...more }];
/** @type {(d: string) => Part} */
const solid = (d) => ["path", { d, class: "solid" }];
/** @type {Part} the ring of what is still going on */
const TRACK = ["circle", { cx: "10", cy: "10", r: "8", class: "track" }];
/** @type {Part} */
const ARC = line("M10 2a8 8 0 0 1 8 8", { class: "turn" });

const SQUARE = "M4 4h12v12H4z";
const OCTAGON = "M6.6 1.8h6.8l4.8 4.8v6.8l-4.8 4.8H6.6l-4.8-4.8V6.6z";
const DISC = "M10 1.8a8.2 8.2 0 1 1 0 16.4 8.2 8.2 0 0 1 0-16.4z";

/** @type {Record<string, Part[]>} */
const SHAPES = {
  queued: [["circle", { cx: "10", cy: "10", r: "7" }]],
  undriven: [["circle", { cx: "10", cy: "10", r: "7", "stroke-dasharray": "3 3" }]],
  running: [TRACK, ARC],
  paused: [line("M7 4v12M13 4v12", { class: "bold" })],
  done: [solid(DISC), line("M6.2 10.4l2.6 2.6 5-5.4", { class: "cut" })],
  cancelled: [solid(SQUARE)],
  undone: [line("M5 8h7a4 4 0 0 1 0 8H8M8.2 4.6L4.6 8l3.6 3.4")],
  failed: [line("M5 5l10 10M15 5L5 15", { class: "bold" })],
  needs_you: [line("M10 1.9l8.1 8.1-8.1 8.1L1.9 10z"), line("M10 6.2v4.4M10 13.1v.5")],
  not_started: [line("M5 10h10")],

  pausing: [TRACK, ARC, line("M8 7v6M12 7v6")],
  redirecting: [TRACK, ARC, line("M6.6 13V10.6a2 2 0 0 1 2-2h4M10.8 6.4l2.2 2.2-2.2 2.2")],
  cancelling: [TRACK, ARC, solid("M7.2 7.2h5.6v5.6H7.2z")],
  killed: [solid(OCTAGON), line("M6.4 10h7.2", { class: "cut" })],

  pause: [line("M7 4.5v11M13 4.5v11", { class: "bold" })],
  resume: [solid("M5.5 3.6l11 6.4-11 6.4z")],
  redirect: [line("M4 16v-4.5a4 4 0 0 1 4-4h8M12.4 3.6l3.9 3.9-3.9 3.9")],
  cancel: [solid("M4.5 4.5h11v11h-11z")],
  lost: [line("M3 8a10 10 0 0 1 14 0M6 11.4a5.6 5.6 0 0 1 8 0M10 15.3v.2"), line("M3.5 16.5l13-13")],
  near: [line("M10 2.6l8 14.2H2zM10 7.8v4M10 14.2v.3")],
};
SHAPES.completed = /** @type {Part[]} */ (SHAPES.done);

/** The names of all shapes. */
export const SHAPE_NAMES = Object.freeze(Object.keys(SHAPES));

/**
 * @param {string} name a status, how something is shown, or a verb; one that is unknown looks like `queued`
 * @returns {SVGSVGElement}
 */
export function shape(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", `shape shape-${name}`);
  svg.dataset.shape = name;
  for (const [tag, attributes] of SHAPES[name] ?? SHAPES.queued ?? []) {
    const part = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
    svg.append(part);
  }
  return svg;
}
