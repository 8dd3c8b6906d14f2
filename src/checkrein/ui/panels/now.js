// @ts-check
/** What the run does at this moment, in one line. For small screens, where everything else is further down. */

import { el, look, mark, say } from "../lib/dom.js";
import { oneLine } from "../lib/escape.js";
import { ENDED } from "../lib/types.js";
import { nowWord } from "./calls.js";

/** @typedef {import("../lib/types.js").CallBrief} CallBrief */
/** @typedef {import("../lib/types.js").RunView} RunView */

/** So much of what it just says is shown, from its end. */
const LAST = 120;

export class NowLine {
  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    this.context = context;
    this.glyph = el("span", { class: "glyph" });
    this.words = el("span", { class: "words" });
    this.element = el("p", { class: "now-line", hidden: true }, el("span", { class: "unseen" }, "Now: "), this.glyph, this.words);
  }

  /** @param {RunView} view */
  draw(view) {
    const call = ENDED.has(view.status) ? undefined : [...view.calls.values()].findLast(isUnderWay);
    this.element.hidden = call === undefined;
    if (call === undefined) return;
    look(this.glyph, call.shown);
    mark(this.glyph, "class", `glyph is-${call.shown}`);
    say(this.words, call.kind === "model" ? this.#said(call) : `${nameOf(call)} · ${nowWord(call.now)} ${this.context.lasted(call)}`);
  }

  /** @param {CallBrief} call */
  #said(call) {
    const text = this.context.live.texts.get(call.id)?.text.trim() ?? "";
    if (!text) return `The model thinks · ${this.context.lasted(call)}`;
    return text.length > LAST ? `…${oneLine(text.slice(-LAST), LAST)}` : oneLine(text, LAST);
  }
}

/** @param {CallBrief} call */
function nameOf({ kind, name }) {
  return `${kind === "undo" ? "undo of " : ""}${oneLine(name, 60)}`;
}

/** @param {CallBrief} call */
function isUnderWay({ started_at: from, finished_at: to, kind }) {
  return Boolean(from) && !to && kind !== "ask";
}
