// @ts-check
/** How the run ended: the receipt of the stop, or its result, or what went wrong. The text stays in view below it. */

import { Asking } from "./asking.js";
import { el } from "./dom.js";
import { Drafts } from "./drafts.js";
import { Panel } from "./panel.js";
import { ReceiptCard } from "./receipt.js";
import { ENDED } from "./types.js";
import { block, textOf } from "./value.js";

/** @typedef {import("./types.js").RunView} RunView */

/** An error longer than this is not whole in the card's own sentence. */
const LONG = 400;

export class EndedPanel extends Panel {
  static needs = ["status", "receipts", "effects", "reasons", "instructions", "result", "error", "elapsed_seconds"];

  #drawn = "";

  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    super(context, "How it ended", "ended");
    this.head.className = "unseen"; // the first words of the card say it to everybody else
    const { live } = context;
    this.asking = new Asking(live);
    const drafts = new Drafts(live.runId);
    this.card = new ReceiptCard(this.asking, () => drafts.stoppedHere);
    this.outcome = el("div", { class: "result" });
    this.body.append(this.card.element, this.outcome);
    this.show(false);
    this.asking.addEventListener("change", () => this.#again());
    live.addEventListener("state", () => this.#again());
  }

  #again() {
    const view = this.context.live.view;
    if (view && ENDED.has(view.status)) this.draw(view);
  }

  /** @param {RunView} view */
  draw(view) {
    const hasEnded = ENDED.has(view.status);
    this.show(hasEnded);
    if (!hasEnded) return;
    this.card.show(view, this.context.live.state === "live", this.context.maySteer);
    const drawn = JSON.stringify([view.status, view.result, view.error]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.outcome.replaceChildren(...outcome(view));
  }

  close() {
    this.asking.close();
  }
}

/** What it brought. A result in words is the last text, which stands below anyway. @param {RunView} view */
function outcome(view) {
  const { result, error } = view;
  if (view.status === "completed" && result !== null && typeof result !== "string") {
    return [el("h3", null, "Its result"), block(textOf(result), "Its result")];
  }
  return error && error.length > LONG ? [block(error, "What went wrong, in full")] : [];
}
