// @ts-check
/** A question on the side: the agent answers from a copy of what it knows, and the run is not disturbed. */

import { el, Keyed, mark, parts, say } from "../lib/dom.js";
import { moment } from "../lib/time.js";
import { ENDED } from "../lib/types.js";
import { capital } from "../lib/words.js";
import { Panel, showAsked } from "./panel.js";

/** @typedef {import("../lib/types.js").RunView} RunView */
/** @typedef {{key: string, by: string, at: number, question: string, answer: string, isOpen: boolean}} Exchange */

export class SideQuestionPanel extends Panel {
  static needs = ["controls", "verbs", "receipts", "calls", "status"];

  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    super(context, "Ask it something", "ask");
    this.consequence = el("span", { class: "soft small", id: `ask-${context.id}` });
    this.field = el("textarea", {
      rows: 2,
      "aria-label": "A question on the side",
      placeholder: "What have you found so far?",
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.#onKey(event),
    });
    this.trouble = el("p", { class: "trouble", role: "alert" });
    this.button = el("button", { type: "submit" }, "Ask");
    const onsubmit = (/** @type {Event} */ event) => void this.#submit(event);
    this.form = el("form", { onsubmit }, this.field, el("div", { class: "line" }, this.button, this.consequence));
    this.list = el("ol", { class: "rows" });
    this.body.append(this.list, this.form, this.trouble);
    this.rows = new Keyed(
      this.list,
      (/** @type {Exchange} */ one) => one.key,
      make,
      draw,
    );
  }

  /** @param {RunView} view */
  draw(view) {
    const control = view.controls.ask;
    const isOver = ENDED.has(view.status) && !control?.enabled;
    say(this.consequence, this.context.live.state === "lost" ? "Not connected." : capital(control?.consequence ?? ""));
    const isLive = this.context.live.state === "live";
    mark(this.button, "aria-disabled", control?.enabled && isLive ? null : "true");
    this.form.hidden = isOver || !this.context.maySteer;
    const exchanges = this.#exchanges(view);
    this.rows.show(exchanges);
    this.show(!this.form.hidden || exchanges.length > 0);
  }

  /** Words of an answer that is still being given. */
  grew() {
    const view = this.context.live.view;
    if (view?.verbs.some((verb) => verb.verb === "ask")) this.draw(view);
  }

  /** @param {RunView} view @returns {Exchange[]} */
  #exchanges(view) {
    const asked = view.verbs.filter((verb) => verb.verb === "ask");
    if (!asked.length) return [];
    const answers = new Map(view.receipts.filter(({ verb }) => verb === "ask").map((one) => [one.seq, one]));
    const calls = [...view.calls.values()].filter((call) => call.kind === "ask");
    return asked.map((verb) => {
      const receipt = answers.get(verb.seq);
      const call = calls.find((one) => (one.started_at ?? 0) >= verb.at && !one.finished_at);
      const streamed = receipt || !call ? "" : (this.context.live.texts.get(call.id)?.text ?? "");
      const isOpen = !receipt && (!ENDED.has(view.status) || view.controls.ask?.enabled === true);
      const { seq, by, at, question = "" } = verb;
      return { key: String(seq), by, at, question, answer: receipt?.answer ?? streamed, isOpen };
    });
  }

  /** @param {Event} event */
  async #submit(event) {
    event.preventDefault();
    const question = this.field.value.trim();
    if (!question || this.button.getAttribute("aria-disabled") === "true") return;
    const { sender } = this.context;
    const ask = () => sender.verb("ask", { question, wait: 0 });
    const isTaken = await showAsked(sender, () => sender.asked("ask"), this.form, this.trouble, ask);
    if (isTaken && this.field.value.trim() === question) this.field.value = "";
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.form.requestSubmit();
  }
}

function make() {
  const parts = [el("span", { class: "head-line" }), el("p", { class: "question" }), el("p", { class: "answer" })];
  return el("li", { class: "exchange" }, ...parts);
}

/** @param {HTMLElement} row @param {Exchange} one */
function draw(row, one) {
  const found = parts(row);
  say(found["head-line"], `${moment(one.at)} · ${one.by}`);
  say(found.question, one.question);
  say(found.answer, one.answer || (one.isOpen ? "It is thinking about it…" : "It gave no answer."));
  mark(found.answer, "class", `answer${one.answer ? "" : " soft"}`);
}
