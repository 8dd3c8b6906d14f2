// @ts-check
/** Which keys there are, for those who press `?`. */

import { el } from "./dom.js";

/** @type {[keys: string, does: string][]} */
const KEYS = [
  ["p", "pause, or resume"],
  ["r", "redirect"],
  ["c", "cancel"],
  ["y", "approve the question in view"],
  ["n", "deny it"],
  ["Ctrl Enter", "send what you have written"],
  ["Esc", "close what you are writing; it is kept"],
  ["?", "show this"],
];

/** A dialog that is shown by `showModal`. */
export function keysHelp() {
  const rows = KEYS.flatMap(([keys, does]) => [el("dt", null, el("kbd", null, keys)), el("dd", null, does)]);
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
  /** @type {HTMLDialogElement} */
  const dialog = el(
    "dialog", { class: "help", "aria-label": "Keys" },
    el("h2", null, "Keys"),
    el("p", { class: "soft small" }, "Letters work while the bar or a question has the focus, and never while you type."),
    el("dl", null, ...rows), close,
  );
  return dialog;
}
