// @ts-check
/** Why a run was stopped, in one more click. Asked for after the stop, never before it. */
import { el, mark, say } from "./dom.js";
import { capital } from "./words.js";

/** @import { Asking } from "./asking.js" */
/** @import { RunView } from "./types.js" */

export const REASONS = Object.freeze(["wrong direction", "too expensive", "suspected confession", "other"]);

export class Reasons {
  #question = el("p", { class: "question", id: "why" });
  /** @type {Map<string, HTMLButtonElement>} */
  #buttons = new Map();

  /** @param {(reason: string) => void} give */
  constructor(give) {
    const row = el("div", { class: "row", role: "group", "aria-labelledby": "why" });
    for (const reason of REASONS) {
      const button = el("button", { type: "button", class: "reason" }, capital(reason));
      button.addEventListener("click", () => button.ariaDisabled !== "true" && give(reason));
      this.#buttons.set(reason, button);
      row.append(button);
    }
    this.element = el("div", { class: "reasons" }, this.#question, row);
  }

  /**
   * @param {RunView} view
   * @param {Asking} asking
   * @param {boolean} isLive
   */
  show(view, asking, isLive) {
    const given = view.reasons.at(-1)?.reason;
    say(this.#question, given ? `Noted: ${given}. It can be changed.` : "Why was it stopped?");
    const isAsked = asking.asked("reason") !== null;
    for (const [reason, button] of this.#buttons) {
      mark(button, "aria-pressed", String(reason === given));
      mark(button, "aria-disabled", isAsked || !isLive ? "true" : null);
    }
  }
}
