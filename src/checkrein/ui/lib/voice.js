// @ts-check
/**
 * Sentences of the server in which a model is quoted, drawn so that each can be told from the other.
 *
 * The server puts values that a model chose into “…”, and no such quote into them. Here each becomes a `<q>` of its own
 * looks, cut where it is long.
 */
import { el } from "./dom.js";
import { oneLine, plain } from "./escape.js";

/** One that is not ended goes to the end: what a model said is never shown as ours. */
const QUOTED = /“[^”]*(?:”|$)/gu;
/** Of a quoted value in a button or a line; the card shows it whole. */
const LONGEST = 24;

/**
 * Show a sentence, unless it is shown already.
 * @param {HTMLElement} place
 * @param {string} text
 * @param {number} [longest] characters of each quote
 */
export function voice(place, text, longest = LONGEST) {
  if (place.dataset.said === text) return;
  place.dataset.said = text;
  place.replaceChildren(...voiced(text, longest));
}

/**
 * @param {string} text
 * @param {number} [longest]
 * @returns {(Node | string)[]}
 */
export function voiced(text, longest = LONGEST) {
  /** @type {(Node | string)[]} */
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(QUOTED)) {
    if (match.index > from) nodes.push(plain(text.slice(from, match.index)));
    nodes.push(el("q", null, plain(shortened(match[0], longest))));
    from = match.index + match[0].length;
  }
  if (from < text.length) nodes.push(plain(text.slice(from)));
  return nodes;
}

/** @param {string} quote @param {number} longest */
function shortened(quote, longest) {
  const words = Array.from(quote.replace(/^“|”$/gu, "").replace(/\s+/gu, " "));
  return `“${words.length > longest ? `${words.slice(0, longest - 1).join("")}…` : words.join("")}”`;
}

/**
 * A sentence for a line, in which only what is quoted is cut: the rest are words of the author.
 * @param {string} text
 * @param {number} [longest] characters of each quote
 */
export function inShort(text, longest = 40) {
  return oneLine(text.replace(QUOTED, (quote) => shortened(quote, longest)), 400);
}
