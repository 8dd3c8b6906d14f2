// @ts-check
/** Values of calls (arguments, results) as a person reads them: names and values, text as text, the rest as JSON. */

import { copyButton, el } from "./dom.js";
import { plain } from "./plain.js";

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
 * Arguments in full: each name with its value.
 * @param {unknown} value
 * @param {string} label
 */
export function fields(value, label) {
  if (value === null || value === undefined) return el("p", { class: "soft" }, "None.");
  if (typeof value !== "object" || Array.isArray(value)) return block(textOf(value), label);
  const entries = Object.entries(value);
  if (entries.length === 0) return el("p", { class: "soft" }, "None.");
  const list = el("dl", { class: "fields" });
  for (const [name, item] of entries) list.append(el("dt", null, plain(name)), el("dd", null, plain(textOf(item))));
  return list;
}
