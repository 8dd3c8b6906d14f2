// @ts-check
/** What it changed in the world, and what a cancel would undo of it, in plain words. */

import { el, Keyed, look, mark, parts, say } from "../lib/dom.js";
import { ENDED } from "../lib/types.js";
import { voice } from "../lib/voice.js";
import { capital, counted, wordFor } from "../lib/words.js";
import { decisionButton, Panel } from "./panel.js";

/** @typedef {import("../lib/types.js").EffectView} EffectView */
/** @typedef {import("../lib/types.js").RunView} RunView */
/** @typedef {EffectView & {isOver: boolean, hasCompleted: boolean, isUndoing: boolean, summary: string, hasFailed: boolean,
 *   isRunning: boolean}} Change */

const WINDOW = 100;

export class EffectsPanel extends Panel {
  static needs = ["effects", "status", "calls"];

  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    super(context, "What it changed", "effects");
    this.isOver = false;
    this.shown = WINDOW;
    this.list = el("ul", { class: "rows" });
    this.more = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.#showMore() });
    this.empty = el("p", { class: "soft" });
    this.body.append(this.more, this.list, this.empty);
    this.rows = new Keyed(
      this.list,
      (/** @type {Change} */ effect) => effect.id,
      (effect) => this.#make(effect),
      (row, effect) => this.#draw(row, effect),
    );
  }

  /** @param {RunView} view @param {ReadonlySet<string>} changed */
  draw(view, changed) {
    if (!view.effects.length && !changed.has("effects") && !changed.has("status")) return;
    const isOver = ENDED.has(view.status);
    const isUndoing = view.status === "cancelling";
    const hasCompleted = view.status === "completed";
    const from = Math.max(0, view.effects.length - this.shown);
    this.more.hidden = from === 0;
    if (from) say(this.more, `Show ${counted(Math.min(WINDOW, from), "earlier change")}`);
    this.rows.show(
      view.effects
        .slice(from)
        .map((effect) => ({ ...effect, isOver, hasCompleted, isUndoing, ...ofCall(effect, view.calls.get(effect.id)) })),
    );
    this.empty.hidden = view.effects.length > 0;
    say(this.empty, isOver ? "Nothing." : "Nothing so far.");
  }

  #showMore() {
    this.shown += WINDOW;
    const view = this.context.live.view;
    if (view) this.draw(view, new Set(["effects"]));
  }

  /** @param {EffectView} effect */
  #make(effect) {
    const { sender } = this.context;
    const retry = decisionButton(sender, "retry_undo", effect.id, { label: "Undo it now", kind: "small" });
    const open = el("button", { type: "button", class: "name link", onclick: () => this.context.open(effect.id) });
    return el(
      "li",
      { class: "change" },
      el("span", { class: "glyph" }),
      open,
      el("span", { class: "summary" }),
      el("span", { class: "fate" }),
      el("span", { class: "why" }),
      el("span", { class: "retry" }, retry.button, retry.trouble),
    );
  }

  /** @param {HTMLElement} row @param {Change} effect */
  #draw(row, effect) {
    const { glyph, name, summary, fate, why, retry } = parts(row);
    const { word, figure } = fateOf(effect);
    mark(row, "class", `change is-${figure}`);
    mark(row, "data-now", effect.now);
    look(glyph, figure);
    const isWords = effect.what.includes(" ");
    voice(name, isWords ? capital(effect.what) : effect.what, 80);
    name.classList.toggle("words", isWords);
    mark(name, "title", "Open this call");
    say(summary, effect.summary);
    summary.hidden = !effect.summary;
    say(fate, word);
    const isNews = Boolean(effect.why) && !word.toLowerCase().startsWith(String(effect.why).toLowerCase());
    say(why, isNews ? capital(effect.why ?? "") : "");
    why.hidden = !isNews;
    retry.hidden = !(effect.now === "left" && effect.can_undo && effect.isOver && this.context.maySteer);
  }
}

/**
 * What it was given says more, where the effect only has the name of its tool.
 * @param {EffectView} effect
 * @param {import("../lib/types.js").CallBrief | undefined} call
 */
function ofCall(effect, call) {
  const isNamed = call !== undefined && effect.what !== call.name;
  const isRunning = call !== undefined && !call.finished_at;
  return { summary: isNamed ? "" : call?.summary ?? "", hasFailed: call?.now === "failed", isRunning };
}

/**
 * What becomes of it, and with which shape that is shown.
 * @param {Change} effect
 * @returns {{word: string, figure: string}}
 */
export function fateOf(effect) {
  const said = (/** @type {string} */ fate, figure = "done") => ({ word: wordFor("effect_fates", fate), figure });
  const ending = effect.can_undo ? "undoable" : "for_good";
  switch (effect.now) {
    case "open":
      if (effect.isUndoing && effect.can_undo) return said("undoing", "undone");
      if (effect.isRunning) return said("running", "running");
      return effect.hasFailed ? said(`failed_${ending}`, "failed") : said(`done_${ending}`);
    case "settled":
      if (effect.hasFailed) return said("failed_stays", "failed");
      // A run that has completed has done what it wanted; of one that was stopped this is worth knowing.
      if (effect.hasCompleted) return said("done");
      return said(effect.isOver ? "stays" : "settled");
    case "undone":
      return { word: `${wordFor("effect_heads", effect.now)}.`, figure: "undone" };
    case "in_doubt":
      return { word: `${capital(wordFor("stopped_calls", effect.now))}.`, figure: "needs_you" };
    case "left":
      return said("left", "near");
  }
}
