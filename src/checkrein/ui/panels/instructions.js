// @ts-check
/** What people told the agent, each with the one line that shows what it changed. */

import { el, Keyed, mark, parts, say } from "../lib/dom.js";
import { plain } from "../lib/escape.js";
import { moment } from "../lib/time.js";
import { ENDED } from "../lib/types.js";
import { wordFor } from "../lib/words.js";
import { Panel } from "./panel.js";

/** @typedef {import("../lib/types.js").InstructionView} InstructionView */

export class InstructionsPanel extends Panel {
  static needs = ["instructions", "status"];

  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    super(context, "What you told it", "instructions");
    this.list = el("ol", { class: "rows" });
    this.body.append(this.list);
    this.rows = new Keyed(
      this.list,
      (/** @type {InstructionView & {fate: string}} */ told) => `${told.at} ${told.verb}`,
      make,
      draw,
    );
  }

  /** @param {import("../lib/types.js").RunView} view */
  draw(view) {
    this.show(view.instructions.length > 0);
    const last = view.instructions.length - 1;
    this.rows.show(
      view.instructions.map((told, n) => ({ ...told, fate: fate(told, n === last && !ENDED.has(view.status)) })),
    );
  }
}

function make() {
  const diff = el("p", { class: "diff" });
  return el("li", { class: "told" }, el("span", { class: "head-line" }), diff, el("span", { class: "fate" }));
}

/** @param {HTMLElement} row @param {InstructionView & {fate: string}} told */
function draw(row, told) {
  const found = parts(row);
  say(found["head-line"], `${moment(told.at)} · ${told.by}, ${wordFor("instructed", told.verb)}`);
  // Only a redirect takes the place of a step; everything else is added.
  const added = `+ ${told.text.replace(/\s+/g, " ").trim()}`;
  found.diff.replaceChildren(...diffNodes(told.verb === "redirect" && told.diff ? told.diff : added));
  mark(found.diff, "title", plain(told.text));
  say(found.fate, told.fate);
}

/**
 * An instruction that a newer one replaced, or that the end overtook, will not arrive any more.
 * @param {InstructionView} told
 * @param {boolean} isPending
 */
function fate(told, isPending) {
  if (told.delivered) return "The agent has it.";
  return told.delivered !== false && isPending ? "On its way to the agent." : "The agent never got it.";
}

const PARTS = /\[-(.*?)-\]|\{\+(.*?)\+\}/gs;

/**
 * The one line, with what was taken out and put in as such.
 * @param {string} diff
 * @returns {Node[]}
 */
export function diffNodes(diff) {
  if (diff.startsWith("+ ")) return [el("ins", null, plain(diff))];
  /** @type {Node[]} */
  const nodes = [];
  let from = 0;
  for (const match of diff.matchAll(PARTS)) {
    if (match.index > from) nodes.push(document.createTextNode(plain(diff.slice(from, match.index))));
    nodes.push(match[1] !== undefined ? el("del", null, plain(match[1])) : el("ins", null, plain(match[2] ?? "")));
    nodes.push(document.createTextNode(" "));
    from = match.index + match[0].length;
  }
  if (from < diff.length) nodes.push(document.createTextNode(plain(diff.slice(from).trimStart())));
  return nodes;
}
