// @ts-check
/**
 * Text that streams, as lines of text nodes. Only the last line ever changes, so a long text costs no more to
 * continue than a short one.
 */

import { el } from "./dom.js";
import { plain } from "./plain.js";

/** From so many lines on, the first ones make room. All of the text stays readable by opening its call. */
const LINES = 1_500;

export class Streamed {
  constructor() {
    this.caret = el("span", { class: "caret", "aria-hidden": "true", hidden: true });
    this.element = el("div", { class: "streamed" });
    this.length = 0;
    this.attempt = 0;
    this.last = "";
    this.text = document.createTextNode("");
    this.clear();
  }

  clear() {
    this.length = 0;
    this.attempt = 0;
    this.last = "";
    this.element.replaceChildren();
    this.#newLine();
  }

  /**
   * Show this text, which begins with what is shown already unless it is of another attempt.
   * @param {{attempt: number, text: string}} told
   */
  show(told) {
    if (told.attempt !== this.attempt || told.text.length < this.length) this.clear();
    this.attempt = told.attempt;
    if (told.text.length > this.length) this.#append(told.text.slice(this.length));
    this.length = told.text.length;
  }

  /** @param {boolean} isLive */
  goesOn(isLive) {
    this.caret.hidden = !isLive;
  }

  /** @param {string} text */
  #append(text) {
    const shown = plain(text, this.last);
    this.last = text.slice(-2);
    shown.split("\n").forEach((piece, n) => {
      if (n > 0) this.#newLine();
      if (piece) this.text.appendData(piece);
    });
  }

  #newLine() {
    this.text = document.createTextNode("");
    this.element.append(el("p", null, this.text, this.caret));
    if (this.element.childElementCount > LINES) this.element.firstElementChild?.remove();
  }
}
