// @ts-check
/** Why a run was stopped, in one more click. Asked for after the stop, never before it. */
import { el, mark, say } from "../lib/dom.js";
import { capital, wordFor, wordsOf } from "../lib/words.js";

/** @import { VerbSender } from "../connection/verbs.js" */
/** @import { RunView } from "../lib/types.js" */

export class Reasons {
  #question = el("p", { class: "question", id: "why" });
  /** @type {Map<string, HTMLButtonElement>} */
  #buttons = new Map();

  /** @param {(reason: string) => void} give */
  constructor(give) {
    const row = el("div", { class: "row", role: "group", "aria-labelledby": "why" });
    for (const reason of wordsOf("reasons")) {
      const button = el("button", { type: "button", class: "reason" }, capital(reason));
      button.addEventListener("click", () => button.ariaDisabled !== "true" && give(reason));
      this.#buttons.set(reason, button);
      row.append(button);
    }
    this.element = el("div", { class: "reasons" }, this.#question, row);
  }

  /**
   * @param {RunView} view
   * @param {VerbSender} sender
   * @param {boolean} isLive
   */
  show(view, sender, isLive) {
    const recorded = view.reasons.at(-1)?.reason;
    const given = recorded === undefined ? "" : wordFor("reasons", recorded);
    say(this.#question, given ? `Noted: ${given}. It can be changed.` : "Why was it stopped?");
    const isAsked = sender.asked("reason") !== null;
    for (const [reason, button] of this.#buttons) {
      mark(button, "aria-pressed", String(reason === given));
      mark(button, "aria-disabled", isAsked || !isLive ? "true" : null);
    }
  }
}
