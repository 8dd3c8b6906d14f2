// @ts-check
/** Calls of which nobody knows whether they happened: what was asked for, what a check said, and three answers. */

import { el, look } from "./dom.js";
import { asking } from "./panel.js";
import { plain } from "./plain.js";
import { moment } from "./times.js";
import { fields } from "./value.js";

/** @typedef {import("./types.js").DoubtView} DoubtView */
/** @typedef {import("./types.js").CheckView} CheckView */

const ANSWERS = { happened: "It happened", did_not_happen: "It did not", undo: "Undo it" };

/**
 * @param {import("./panel.js").Context} context
 * @param {DoubtView} doubt
 */
export function doubtCard(context, doubt) {
  const answers = doubt.answers.map((answer) => {
    const made = asking(ANSWERS[answer.answer], answer.consequence, () =>
      context.api.post(context.callPath(doubt.call, "/resolve"), { outcome: answer.answer }),
    );
    if (!answer.enabled) made.button.disabled = true;
    return made;
  });
  const glyph = el("span", { class: "glyph" });
  look(glyph, "needs_you");
  return el(
    "li",
    { class: "need doubt", "data-call": doubt.call },
    el("h3", null, glyph, " Did ", el("code", null, plain(doubt.name)), " happen?"),
    el("p", null, story(doubt)),
    ...(doubt.checked ? checkNodes(context, doubt, doubt.checked) : []),
    fields(doubt.arguments, `What ${doubt.name} was given`),
    el("div", { class: "answers" }, ...answers.map((answer) => answer.button)),
    ...answers.map((answer) => answer.trouble),
  );
}

/** @param {DoubtView} doubt */
function story(doubt) {
  const began = doubt.started_at ? `It had begun at ${moment(doubt.started_at)} and` : "It had begun and";
  const open = doubt.may_still_happen
    ? " Whoever began it has not been heard of since, so it may still happen."
    : "";
  return `${began} was cut off before it could say how it ended. Nobody knows whether it was done.${open}`;
}

/**
 * What the tool's own check said, and a way to have it look once more.
 * @param {import("./panel.js").Context} context
 * @param {DoubtView} doubt
 * @param {CheckView} checked
 */
function checkNodes(context, doubt, checked) {
  const words = el("p", null, checkWords(checked, doubt.name), el("span", { class: "soft" }, ` ${moment(checked.at)}`));
  if (!doubt.blocks && doubt.blocks !== undefined) return [el("div", { class: "checked" }, words)];
  const again = asking("Check again", "", () => context.api.post(context.callPath(doubt.call, "/check")), "small");
  return [el("div", { class: "checked" }, words, again.button, again.trouble)];
}

/** @param {CheckView} checked @param {string} name */
function checkWords(checked, name) {
  const said =
    checked.answer === "happened"
      ? "it did happen"
      : checked.answer === "did_not_happen"
        ? "it did not happen"
        : "it could not tell";
  const note = checked.note ? ` (${plain(checked.note)})` : "";
  return `The check that comes with ${plain(name)} says: ${said}${note}. You decide.`;
}
