// @ts-check
/** The task list: each step with a shape, a word and its time. */

import { el, Keyed, look, mark, parts, say } from "../lib/dom.js";
import { ENDED } from "../lib/types.js";
import { counted, wordFor } from "../lib/words.js";
import { ForkForm, isForkable } from "./fork.js";
import { Panel } from "./panel.js";

/** @typedef {import("../lib/types.js").StepView} StepView */

const FIRST = 60;
const WINDOW = 200;

export class StepsPanel extends Panel {
  static needs = ["steps", "status", "calls"];

  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    super(context, "Steps", "steps");
    this.shown = FIRST;
    /** @type {StepView[]} */
    this.steps = [];
    this.list = el("ol", { class: "tasks" });
    this.count = el("span", { class: "count" });
    this.head.append(this.count);
    this.more = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.#showMore() });
    this.empty = el("p", { class: "soft" });
    this.form = new ForkForm(context);
    this.rows = new Keyed(
      this.list,
      (/** @type {StepView} */ step) => String(step.number),
      (step) => makeRow(() => this.#fork(step.number)),
      (row, step) => this.#draw(row, step),
    );
    this.body.append(this.more, this.list, this.empty, this.form.element);
  }

  /** @param {import("../lib/types.js").RunView} view */
  draw(view) {
    this.steps = view.steps;
    const done = view.steps.filter((step) => step.shown === "done").length;
    const [some, all] = [done, view.steps.length].map((count) => count.toLocaleString("en"));
    say(this.count, view.steps.length ? `${some} of ${all} done` : "");
    this.empty.hidden = view.steps.length > 0;
    say(this.empty, ENDED.has(view.status) ? "It had none." : "The agent has not said yet what it will do.");
    this.#list();
  }

  #list() {
    const from = Math.max(0, this.steps.length - this.shown);
    this.more.hidden = from === 0;
    if (from) say(this.more, `Show ${counted(Math.min(WINDOW, from), "earlier step")}`);
    this.rows.show(this.steps.slice(from));
    mark(this.list, "start", String(from + 1));
  }

  #showMore() {
    this.shown += WINDOW;
    this.#list();
  }

  /** @param {HTMLElement} row @param {StepView} step */
  #draw(row, step) {
    const { glyph, title, word, time, fork } = parts(row);
    mark(row, "class", `task is-${step.shown}`);
    look(glyph, step.shown);
    say(title, step.title);
    const isTaken = this.#isTakenOver(step);
    say(word, isTaken ? "Taken over" : wordFor("shown", step.shown));
    say(time, hasTime(step) && !isTaken ? this.context.lasted(step) : "");
    fork.hidden = !isForkable(step) || !this.context.mayStart;
  }

  /** Whether the run that this one was forked from has done it. @param {StepView} step */
  #isTakenOver(step) {
    const view = this.context.live.view;
    return Boolean(view?.forked_from) && step.number <= (view?.forked_from?.step ?? 0) && Boolean(step.finished_at);
  }

  /** @param {number} number */
  #fork(number) {
    const step = this.steps.find((one) => one.number === number);
    if (step) this.form.open(step);
  }

  tick() {
    for (const step of this.steps.slice(-this.shown)) {
      if (step.started_at && !step.finished_at) this.rows.again(String(step.number));
    }
  }
}

/** A step that will never end has no time of its own to show. @param {StepView} step */
function hasTime(step) {
  return Boolean(step.finished_at) || ["running", "paused", "needs_you"].includes(step.shown);
}

/** @param {() => void} fork */
function makeRow(fork) {
  return el(
    "li",
    { class: "task" },
    el("span", { class: "glyph", "aria-hidden": "true" }),
    el("span", { class: "title" }),
    el("span", { class: "word" }),
    el("span", { class: "time" }),
    el("button", { type: "button", class: "fork quiet", hidden: true, onclick: fork, title: "A new run from here" }, "Fork"),
  );
}

