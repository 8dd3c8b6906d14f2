// @ts-check
/** Everything the run needs from a person, in one place above the rest. */

import { approvalCard } from "./approvals.js";
import { doubtCard } from "./doubts.js";
import { el, Keyed, look } from "./dom.js";
import { Panel } from "./panel.js";
import { plain } from "./plain.js";
import { capital } from "./words.js";

/** @typedef {import("./types.js").RunView} RunView */

/** @typedef {{key: string, text: string, make: () => HTMLElement}} Need */

const ONLY_LOOKING = "You may look at this run. To answer takes somebody who may steer it.";

export class NeedsPanel extends Panel {
  static needs = ["waiting", "approvals", "doubts"];

  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    super(context, "Needs you", "needs");
    this.list = el("ul", { class: "rows" });
    this.note = el("p", { class: "soft", hidden: true }, ONLY_LOOKING);
    this.body.append(this.note, this.list);
    this.show(false);
    // A card is made anew only if what it says is another: an answer half typed stays.
    const key = (/** @type {Need} */ need) => `${need.key} ${need.text}`;
    this.rows = new Keyed(this.list, key, (need) => need.make(), () => {});
  }

  /** @param {RunView} view */
  draw(view) {
    const needs = needsOf(view, this.context);
    this.rows.show(needs);
    this.show(needs.length > 0);
    this.note.hidden = this.context.maySteer;
    this.list.toggleAttribute("inert", !this.context.maySteer);
  }
}

/**
 * @param {RunView} view
 * @param {import("./panel.js").Context} context
 * @returns {Need[]}
 */
function needsOf(view, context) {
  const asked = new Set(["approval", "in_doubt"]);
  return [
    ...view.doubts.map((one) => need(one.call, one, () => doubtCard(context, one))),
    ...view.approvals.map((one) => need(one.call, one, () => approvalCard(context, one))),
    ...view.waiting.filter(({ kind }) => !asked.has(kind)).map((one) => need(one.kind, one, () => mendCard(one))),
  ];
}

/** @param {string} key @param {object} thing @param {() => HTMLElement} make @returns {Need} */
function need(key, thing, make) {
  return { key, text: JSON.stringify(thing), make };
}

/** Something to mend, with its remedy. @param {import("./types.js").WaitingView} waiting */
function mendCard(waiting) {
  const glyph = el("span", { class: "glyph" });
  look(glyph, "needs_you");
  return el(
    "li",
    { class: "need mend" },
    el("h3", null, glyph, ` ${capital(plain(waiting.what))}`),
    waiting.remedy && el("p", null, plain(waiting.remedy)),
  );
}
