// @ts-check
/** What it changed in the world, and what a cancel would undo of it, in plain words. */

import { el, Keyed, look, mark, parts, say } from "./dom.js";
import { asking, Panel } from "./panel.js";
import { counted } from "./times.js";
import { ENDED } from "./types.js";
import { capital } from "./words.js";

/** @typedef {import("./types.js").EffectView} EffectView */
/** @typedef {import("./types.js").RunView} RunView */
/** @typedef {EffectView & {isOver: boolean, hasCompleted: boolean, isUndoing: boolean, summary: string, hasFailed: boolean}} Change */

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
    if (!changed.has("effects") && !changed.has("status")) return;
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
    const retry = asking(
      "Undo it now",
      "",
      () => this.context.api.post(this.context.callPath(effect.id, "/retry_undo")),
      "small",
    );
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
    say(name, isWords ? capital(effect.what) : effect.what);
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
 * @param {import("./types.js").CallBrief | undefined} call
 */
function ofCall(effect, call) {
  const isNamed = call !== undefined && effect.what !== call.name;
  return { summary: isNamed ? "" : call?.summary ?? "", hasFailed: call?.now === "failed" };
}

/**
 * What becomes of it, and with which shape that is shown.
 * @param {Change} effect
 * @returns {{word: string, figure: string}}
 */
export function fateOf(effect) {
  const failed = "It failed. What it may have done";
  switch (effect.now) {
    case "open":
      if (effect.isUndoing && effect.can_undo) return { word: "Is being undone.", figure: "undone" };
      if (effect.hasFailed) {
        return { word: `${failed} is ${effect.can_undo ? "" : "not "}undone by a cancel.`, figure: "failed" };
      }
      return effect.can_undo
        ? { word: "Done. Cancel undoes it.", figure: "done" }
        : { word: "Done. It cannot be undone.", figure: "done" };
    case "settled":
      if (effect.hasFailed) return { word: `${failed} stays.`, figure: "failed" };
      // A run that has completed has done what it wanted; of one that was stopped this is worth knowing.
      if (effect.hasCompleted) return { word: "Done.", figure: "done" };
      return { word: effect.isOver ? "Stays." : "Done, and meant to stay.", figure: "done" };
    case "undone":
      return { word: "Undone.", figure: "undone" };
    case "in_doubt":
      return { word: "Nobody knows whether it happened.", figure: "needs_you" };
    case "left":
      return { word: "Still there: it was not undone.", figure: "near" };
  }
}
