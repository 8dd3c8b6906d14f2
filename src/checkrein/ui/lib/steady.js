// @ts-check
/**
 * Buttons that take no click which was meant for something else.
 *
 * What has just appeared, or has just moved to where another thing was, is not what somebody decided to press a moment
 * ago. Until it has stood still for `SETTLE_MS` it looks disabled and is; the second click of a double click is never
 * taken at all.
 */
import { mark } from "./dom.js";

export const SETTLE_MS = 600;
/** Fewer pixels than this are no other place. */
const SAME_PLACE = 6;

/** @typedef {{ left: number, top: number } | null} Place */

export class Steady {
  /** @type {Place} */
  #place = null;
  #since = Date.now();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /** @param {HTMLElement[]} buttons which stand together: the place of the first is the place of all */
  constructor(buttons) {
    this.buttons = buttons;
    this.#show();
  }

  /** See where they stand now. */
  look() {
    const place = placeOf(this.buttons[0]);
    if (isSame(place, this.#place)) return;
    this.#place = place;
    this.#since = Date.now();
    this.#show();
  }

  get isSteady() {
    return Date.now() - this.#since >= SETTLE_MS;
  }

  /** Whether a click, or a key pressed for it, may count. @param {Event | null} [event] */
  takes(event = null) {
    this.look();
    const isRepeated = event instanceof UIEvent && event.detail > 1;
    return this.isSteady && !isRepeated;
  }

  #show() {
    clearTimeout(this.#timer);
    for (const button of this.buttons) mark(button, "aria-disabled", "true");
    this.#timer = setTimeout(() => {
      for (const button of this.buttons) mark(button, "aria-disabled", null);
    }, SETTLE_MS);
  }
}

/** Where in the page it is, wherever that is scrolled to; null: nowhere. @param {HTMLElement | undefined} element @returns {Place} */
function placeOf(element) {
  const rect = element?.getClientRects()[0];
  return rect ? { left: rect.left + scrollX, top: rect.top + scrollY } : null;
}

/** @param {Place} one @param {Place} other */
function isSame(one, other) {
  if (one === null || other === null) return one === other;
  return Math.abs(one.left - other.left) < SAME_PLACE && Math.abs(one.top - other.top) < SAME_PLACE;
}
