// @ts-check
/** Forking a run after one of its steps; and a fork beside the run that it comes from, with what of that one stands. */

import { el, Keyed, look, mark, parts, say } from "../lib/dom.js";
import { oneLine } from "../lib/escape.js";
import { RunStore } from "../connection/run_store.js";
import { polling } from "../connection/transports.js";
import { ENDED } from "../lib/types.js";
import { voice } from "../lib/voice.js";
import { capital, counted, standing, wordFor } from "../lib/words.js";
import { fresh, message, Panel } from "./panel.js";

/** @typedef {import("../lib/types.js").RunView} RunView */
/** @typedef {import("../lib/types.js").StepView} StepView */
/** @typedef {import("../lib/types.js").OriginView} OriginView */
/** @typedef {{ number: number, there: StepView | null, here: StepView | null, isTaken: boolean }} Pair */

const SHOWN = 60;
const ANSWER = 400;

/** What is wanted from a step on, in a run of its own. Nothing of this run is touched. */
export class ForkForm {
  #step = 0;

  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    this.context = context;
    const id = fresh("fork");
    this.head = el("label", { for: id });
    this.words = el("textarea", { id, rows: 2 });
    this.trouble = el("p", { class: "trouble", role: "alert" });
    this.button = el("button", { type: "submit", class: "main" }, "Fork");
    const leave = el("button", { type: "button", class: "quiet", onclick: () => this.close() }, "Leave it");
    this.element = el(
      "form",
      { class: "fork-form", hidden: true, onsubmit: (/** @type {Event} */ event) => void this.#submit(event) },
      this.head,
      this.words,
      el("p", { class: "soft small" }, "A new run goes on from there. What was done up to there is not done again; this run stays as it is."),
      el("div", { class: "fork-buttons" }, this.button, leave),
      this.trouble,
    );
  }

  /** @param {StepView} step */
  open(step) {
    this.#step = step.number;
    say(this.head, `What should it do after step ${step.number}, ${oneLine(step.title, 80)}? Leave it empty to have it go on as it likes.`);
    say(this.trouble, "");
    this.element.hidden = false;
    this.words.focus();
  }

  close() {
    this.element.hidden = true;
  }

  /** @param {Event} event */
  async #submit(event) {
    event.preventDefault();
    if (this.button.ariaBusy === "true") return;
    this.button.ariaBusy = "true";
    const instruction = this.words.value.trim();
    try {
      const made = await this.context.api.post(this.context.path("/fork"), { at: this.#step, ...(instruction ? { instruction } : {}) });
      this.words.value = "";
      this.close();
      this.context.goTo(made.id);
    } catch (error) {
      say(this.trouble, message(error));
    } finally {
      this.button.ariaBusy = null;
    }
  }
}

/** Whether a run may be forked after this step, as far as can be told here: the server decides. @param {StepView} step */
export function isForkable(step) {
  return Boolean(step.finished_at) && ["done", "undone", "failed"].includes(step.shown);
}

/** Of a fork: the run it comes from, step by step beside it, and which of that one's effects stand. */
export class OriginPanel extends Panel {
  static needs = ["forked_from", "steps", "status", "result", "calls"];

  /** @type {RunStore | null} */
  #there = null;

  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    super(context, "Forked", "origin-of-fork");
    this.from = el("p", { class: "fork-from" });
    this.told = el("p", { class: "soft small" });
    this.wanted = el("p", { class: "fork-wanted" });
    this.effects = el("ul", { class: "fork-effects" });
    this.there = el("span", { class: "word" });
    this.here = el("span", { class: "word" });
    this.link = el("a", { class: "mono" });
    this.rows = el("tbody");
    const head = (/** @type {Node} */ name, /** @type {Node} */ word) => el("th", { scope: "col" }, name, " ", word);
    this.table = el(
      "table",
      { class: "both" },
      el("caption", { class: "unseen" }, "The steps of both runs, side by side"),
      el("thead", null, el("tr", null, head(this.link, this.there), head(el("span", null, "This run"), this.here))),
      this.rows,
    );
    this.answers = el("tr", { class: "answers" }, el("td"), el("td"));
    this.foot = el("tfoot", { hidden: true }, this.answers);
    this.table.append(this.foot);
    this.body.append(this.from, this.wanted, this.effects, this.told, this.table);
    this.list = new Keyed(this.rows, (/** @type {Pair} */ pair) => String(pair.number), makeRow, drawRow);
    this.show(false);
  }

  /** @param {RunView} view */
  draw(view) {
    const origin = view.forked_from;
    this.show(Boolean(origin));
    if (!origin) return;
    if (!this.#there) this.#follow(origin);
    this.#draw(view, origin, this.#there?.view ?? null);
  }

  close() {
    this.#there?.close();
    this.#there = null;
  }

  /** @param {OriginView} origin */
  #follow(origin) {
    mark(this.link, "href", this.context.runUrl(origin.run));
    say(this.link, origin.run);
    this.#there = new RunStore(this.context.api, origin.run, polling);
    this.#there.addEventListener("change", () => {
      const view = this.context.live.view;
      if (view) this.draw(view);
    });
    this.#there.open();
  }

  /** @param {RunView} here @param {OriginView} origin @param {RunView | null} there */
  #draw(here, origin, there) {
    const by = origin.by ? ` by ${oneLine(origin.by, 60)}` : "";
    const calls = counted(origin.calls ?? 0, "call");
    say(this.from, `Goes on from ${origin.run}${by} after step ${origin.step}, ${oneLine(origin.title, 80)}. ${calls} taken over, nothing done again.`);
    const wanted = [origin.told, origin.instruction].filter(Boolean).join(" ");
    this.wanted.hidden = !wanted;
    if (wanted) say(this.wanted, `Told from there on: “${wanted}”`);
    this.#effects(origin, there);
    say(this.there, there ? standing(there).word : "");
    say(this.here, standing(here).word);
    const count = Math.max(here.steps.length, there?.steps.length ?? 0);
    const pairs = Array.from({ length: Math.min(SHOWN, count) }, (_, place) => {
      const number = count - Math.min(SHOWN, count) + place + 1;
      const step = (/** @type {RunView | null} */ view) => view?.steps.find((one) => one.number === number) ?? null;
      return { number, there: step(there), here: step(here), isTaken: number <= origin.step };
    });
    this.list.show(pairs);
    const answers = [there, here].map((view) => (view && ENDED.has(view.status) && typeof view.result === "string" ? view.result : ""));
    this.foot.hidden = !answers.some(Boolean);
    for (const [place, text] of answers.entries()) say(/** @type {Element} */ (this.answers.children[place]), shortened(text));
  }

  /** What the origin did up to there, as it stands now. @param {OriginView} origin @param {RunView | null} there */
  #effects(origin, there) {
    const now = new Map((there?.effects ?? []).map((effect) => [effect.id, effect.now]));
    const effects = origin.effects ?? [];
    this.effects.replaceChildren(
      ...effects.map((effect) => {
        const state = now.get(effect.call) ?? effect.now;
        const [figure, words] = STANDS[state];
        const row = el("li", { class: `change is-${figure}`, "data-now": state }, el("span", { class: "glyph" }), el("span", { class: "name" }), el("span", { class: "fate" }));
        const { glyph, name, fate } = parts(row);
        look(glyph, figure);
        voice(name, effect.what.includes(" ") ? capital(effect.what) : effect.what, 80);
        say(fate, words);
        return row;
      }),
    );
    const more = origin.more_effects ? ` ${counted(origin.more_effects, "effect")} more are not listed.` : "";
    const none = "Nothing that it did up to there changed the world.";
    say(this.told, effects.length ? `What ${origin.run} did stays its own: cancelling this run undoes none of it.${more}` : none);
  }
}

/** Its shape, and what is said of it. @type {Record<import("../lib/types.js").EffectView["now"], [string, string]>} */
const STANDS = {
  open: ["done", "Stands."],
  settled: ["done", "Stands."],
  left: ["done", "Stands."],
  undone: ["undone", "Undone there."],
  in_doubt: ["needs_you", "Nobody knows whether it happened."],
};

/** @param {string} text */
function shortened(text) {
  return text.length > ANSWER ? `${text.slice(0, ANSWER)}…` : text;
}

function makeRow() {
  const cell = () => el("td", null, el("span", { class: "glyph", "aria-hidden": "true" }), el("span", { class: "title" }), el("span", { class: "word" }));
  return el("tr", null, cell(), cell());
}

/** @param {HTMLElement} row @param {Pair} pair */
function drawRow(row, pair) {
  const [there, here] = row.children;
  drawCell(/** @type {HTMLElement} */ (there), pair.there, "");
  drawCell(/** @type {HTMLElement} */ (here), pair.here, pair.isTaken && pair.here ? "Taken over" : "");
  mark(row, "class", pair.isTaken ? "is-taken" : "");
}

/** @param {HTMLElement} cell @param {StepView | null} step @param {string} instead */
function drawCell(cell, step, instead) {
  const { glyph, title, word } = parts(cell);
  for (const part of [glyph, title, word]) part.hidden = !step;
  if (!step) return;
  mark(cell, "class", `is-${step.shown}`);
  look(glyph, step.shown);
  say(title, step.title);
  say(word, instead || wordFor("shown", step.shown));
}
