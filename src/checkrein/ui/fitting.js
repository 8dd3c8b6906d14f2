// @ts-check
/**
 * Where there is little room, long consequences are cut off after two or three lines, so that the run stays in view. A
 * button shows them whole; it is there only while something is cut off.
 */
import { el, mark, say } from "./dom.js";

/** Up to this width there is little room; the same as in barstyle.js. */
export const NARROW = 640;

export class Fitting {
  #seen = "";
  #isWhole = false;

  /**
   * @param {HTMLElement} bar
   * @param {HTMLElement} keys the buttons with their consequences
   */
  constructor(bar, keys) {
    this.bar = bar;
    this.keys = keys;
    this.button = el("button", { type: "button", class: "room-for-words", onclick: () => this.#turn() }, "In full");
    mark(this.button, "aria-expanded", "false");
  }

  /** What the buttons say, or the room they have, may have changed. */
  show() {
    const { bar } = this;
    const isTight = !this.keys.hidden && (innerWidth <= NARROW || bar.hasAttribute("data-short"));
    bar.toggleAttribute("data-tight", isTight);
    if (!isTight || this.#isWhole) return;
    const seen = `${bar.clientWidth} ${bar.hasAttribute("data-narrow")} ${bar.hasAttribute("data-short")} ${this.keys.textContent}`;
    if (seen === this.#seen) return; // measuring costs time
    this.#seen = seen;
    const isCut = [...this.keys.querySelectorAll(".consequence")].some((one) => one.scrollHeight > one.clientHeight + 1);
    bar.toggleAttribute("data-cut", isCut);
  }

  #turn() {
    this.#isWhole = !this.#isWhole;
    this.bar.toggleAttribute("data-whole", this.#isWhole);
    mark(this.button, "aria-expanded", String(this.#isWhole));
    say(this.button, this.#isWhole ? "In short" : "In full");
    this.#seen = "";
    this.show();
  }
}
