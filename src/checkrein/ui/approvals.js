// @ts-check
/** Calls that wait for a person's consent: what exactly would be done, and two answers. */

import { el, look } from "./dom.js";
import { asking } from "./panel.js";
import { plain } from "./plain.js";
import { moment } from "./times.js";
import { fields } from "./value.js";

/** @typedef {import("./types.js").ApprovalView} ApprovalView */

/**
 * @param {import("./panel.js").Context} context
 * @param {ApprovalView} approval
 */
export function approvalCard(context, approval) {
  const note = el("input", {
    type: "text",
    "aria-label": `A word about ${plain(approval.name)}, if you like`,
    placeholder: "A word about it, if you like",
  });
  const decide = (/** @type {string} */ word) => () =>
    context.api.post(context.callPath(approval.call, `/${word}`), note.value.trim() ? { note: note.value.trim() } : {});
  const approve = asking("Approve", "it is done now, exactly so", decide("approve"), "yes");
  const deny = asking("Deny", "it is not done, and the agent is told", decide("deny"));
  const glyph = el("span", { class: "glyph" });
  look(glyph, "needs_you");
  return el(
    "li",
    { class: "need approval", "data-call": approval.call },
    el("h3", null, glyph, ` May it use `, el("code", null, plain(approval.name)), "?"),
    el(
      "p",
      { class: "soft" },
      `Asked at ${moment(approval.requested_at)}. `,
      approval.blocks === false ? "The agent works on meanwhile." : "The agent waits for your answer.",
    ),
    fields(approval.arguments, `What ${approval.name} would be given`),
    note,
    el("div", { class: "answers" }, approve.button, deny.button),
    approve.trouble,
    deny.trouble,
  );
}
