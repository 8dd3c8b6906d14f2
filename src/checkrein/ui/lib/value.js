// @ts-check
/** Values of calls (arguments, results) as a person reads them: names and values, text as text, the rest as JSON. */

import { copyButton, el, mark, say } from "./dom.js";
import { plain } from "./escape.js";
import { counted } from "./words.js";

/** @import { ShownValue } from "./types.js" */

const LONGEST = 200_000;

/**
 * The value as text: a string as it is, everything else as JSON on several lines.
 * @param {unknown} value
 */
export function textOf(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "";
}

/**
 * A block of text that keeps its lines and can be scrolled and copied.
 * @param {string} text
 * @param {string} label
 */
export function block(text, label) {
  const cut = text.length > LONGEST;
  const [some, all] = [LONGEST, text.length].map((count) => count.toLocaleString("en"));
  const shown = cut ? text.slice(0, LONGEST) : text;
  return el(
    "div",
    { class: "block" },
    el("pre", { tabIndex: 0, role: "region", "aria-label": plain(label) }, plain(shown)),
    cut && el("p", { class: "soft" }, `The first ${some} of ${all} characters. Copy takes all of it.`),
    copyButton(() => text, label),
  );
}

/**
 * Values in full: each name with its value, as the server has put it into words.
 * @param {readonly ShownValue[] | undefined} values
 * @param {string} label
 */
export function fields(values, label) {
  const [first, ...more] = values ?? [];
  if (first === undefined) return el("p", { class: "soft" }, "None.");
  if (first.name === "" && !more.length) return block(first.text, label);
  const list = el("dl", { class: "fields", tabIndex: 0, "aria-label": plain(label) });
  for (const { name, text } of [first, ...more]) list.append(el("dt", null, plain(name)), el("dd", null, plain(text)));
  return list;
}

/**
 * What a call is given, as the server has put it into words: every argument with its name, a long one cut with how much
 * is hidden, and a way to see all of it.
 */
export class Given {
  /** @type {HTMLElement[]} */
  #values = [];
  #hidden = 0;
  #isWhole = false;
  #seen = "";

  /**
   * @param {readonly ShownValue[] | undefined} shown
   * @param {string} label
   * @param {() => Promise<readonly ShownValue[]>} whole all of it
   */
  constructor(shown, label, whole) {
    this.label = label;
    this.whole = whole;
    this.list = el("dl", { class: "fields given", "aria-label": plain(label) });
    this.button = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => void this.#turn() }, "Show all of it");
    this.element = el("div", { class: "given-all" }, this.list, this.button);
    for (const { name, text, hidden = 0 } of shown ?? []) {
      this.#hidden += hidden;
      const value = el("dd", null, el("span", { class: "value" }, plain(text)));
      if (hidden) value.append(el("span", { class: "hidden-count" }, ` … ${counted(hidden, "more character")}`));
      this.#values.push(/** @type {HTMLElement} */ (value.firstElementChild));
      this.list.append(el("dt", null, plain(name)), value);
    }
    if (!shown?.length) this.element.replaceChildren(el("p", { class: "soft" }, "It is given nothing."));
    this.button.hidden = this.#hidden === 0;
  }

  /** See whether anything is cut off where there is little room. */
  fit() {
    if (this.#isWhole || !this.#values.length) return;
    const seen = `${this.list.clientWidth}`;
    if (seen === this.#seen) return; // measuring costs time
    this.#seen = seen;
    let isCut = this.#hidden > 0;
    for (const value of this.#values) {
      const isThis = value.scrollHeight > value.clientHeight + 1;
      const all = isThis ? `${counted(Array.from(value.textContent ?? "").length, "character")} in all` : null;
      if (value.parentElement) mark(value.parentElement, "data-cut", all);
      isCut ||= isThis;
    }
    this.button.hidden = !isCut;
  }

  async #turn() {
    if (this.#isWhole) return;
    try {
      const value = this.#hidden ? await this.whole() : null;
      this.#isWhole = true;
      this.list.toggleAttribute("data-whole", true);
      if (value !== null) this.list.replaceWith(fields(value, this.label));
      this.button.hidden = true;
    } catch {
      say(this.button, "It could not be looked up. Try again");
    }
    mark(this.button, "aria-expanded", String(this.#isWhole));
  }
}
