// @ts-check
/** How the bar finds room: where it stands, and what it leaves out where there is little. */

import { el, mark, say } from "../lib/dom.js";

/** Up to this width there is little room; the same as in styles/bar.js. */
export const NARROW = 640;

/**
 * Where there is little room, long consequences are cut off after two or three lines, so that the run stays in view. A
 * button shows them whole; it is there only while something is cut off.
 */
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

/**
 * Where the bar stands: at the bottom of what can be seen, above an on-screen keyboard, with room kept free under the
 * page so that nothing is hidden behind it.
 * @param {HTMLElement} bar
 * @param {HTMLElement} room what keeps the room free
 * @returns {() => void} an undo
 */
export function keepInView(bar, room) {
  const viewport = globalThis.visualViewport;
  const lift = () => {
    // Of somebody who has zoomed in with two fingers only a part of the page is seen, and no keyboard is meant.
    const isZoomed = viewport !== null && viewport.scale > 1.01;
    const hidden = viewport === null || isZoomed ? 0 : innerHeight - viewport.height - viewport.offsetTop;
    const height = viewport === null || isZoomed ? innerHeight : viewport.height;
    bar.style.setProperty("--lift", `${Math.max(0, Math.round(hidden))}px`);
    bar.style.setProperty("--seen", `${Math.round(height)}px`);
    bar.toggleAttribute("data-short", height < 480);
  };
  const resized = new ResizeObserver(() => (room.style.blockSize = `${bar.offsetHeight}px`));
  resized.observe(bar);
  viewport?.addEventListener("resize", lift);
  viewport?.addEventListener("scroll", lift);
  addEventListener("resize", lift);
  lift();
  return () => {
    resized.disconnect();
    viewport?.removeEventListener("resize", lift);
    viewport?.removeEventListener("scroll", lift);
    removeEventListener("resize", lift);
  };
}
