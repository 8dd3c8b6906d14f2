// @ts-check
/** How the run ended: its answer first, or the receipt of the stop, or what went wrong. The text stays in view below it. */

import { Drafts } from "../bar/drafts.js";
import { ReceiptCard } from "../bar/receipt.js";
import { copyButton, el } from "../lib/dom.js";
import { plain } from "../lib/escape.js";
import { markdown } from "../lib/markdown.js";
import { ENDED } from "../lib/types.js";
import { block, textOf } from "../lib/value.js";
import { Panel } from "./panel.js";

/** @typedef {import("../lib/types.js").RunView} RunView */

/** An error longer than this is not whole in the card's own sentence. */
const LONG = 400;

export class EndedPanel extends Panel {
  static needs = ["status", "receipts", "effects", "reasons", "instructions", "result", "error", "elapsed_seconds", "calls"];

  #drawn = "";

  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    super(context, "How it ended", "ended");
    this.head.className = "unseen"; // the first words of the card say it to everybody else
    const { live, sender } = context;
    const drafts = new Drafts(live.runId);
    this.card = new ReceiptCard(sender, () => drafts.stoppedHere);
    this.outcome = el("div", { class: "result" });
    this.proof = el(
      "p", { class: "proof soft", hidden: true },
      el("a", { href: `${context.base}${context.path("/story")}`, target: "_blank", rel: "noopener" }, "The story of this stop"),
      " · ",
      el("a", { href: `${context.base}${context.path("/evidence")}`, download: "" }, "Evidence (zip)"),
    );
    this.body.append(this.outcome, this.card.element, this.proof);
    this.show(false);
    sender.addEventListener("change", () => this.#again());
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
    this.proof.hidden = !this.context.maySteer || !["cancelled", "killed"].includes(view.status);
    this.card.show(view, this.context.live.state === "live", this.context.maySteer);
    const drawn = JSON.stringify([view.status, view.result, view.error]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.outcome.replaceChildren(...this.#outcome(view));
  }

  /** What it brought. @param {RunView} view */
  #outcome(view) {
    const { result, error } = view;
    if (view.status === "completed" && typeof result === "string" && result.trim()) return [this.#answer(view, result)];
    if (view.status === "completed" && result !== null) {
      return [el("h3", null, "Its result"), block(textOf(result), "Its result")];
    }
    return error && error.length > LONG ? [block(error, "What went wrong, in full")] : [];
  }

  /**
   * An answer in words: as text at once, and as the Markdown that the server makes of it as soon as that is there.
   * @param {RunView} view
   * @param {string} text
   */
  #answer(view, text) {
    const said = el("div", { class: "final", tabIndex: 0, role: "region", "aria-label": "Its answer" }, plain(text));
    const last = [...view.calls.values()].findLast(({ kind, now }) => kind === "model" && now === "completed");
    if (last) void this.#render(last.id, text, said);
    return el("div", { class: "block" }, said, copyButton(() => text, "its answer"));
  }

  /** @param {string} call @param {string} text @param {HTMLElement} place */
  async #render(call, text, place) {
    try {
      const whole = /** @type {import("../lib/types.js").CallWhole} */ (await this.context.api.get(this.context.callPath(call)));
      if (whole.text?.trim() !== text.trim() || typeof whole.html !== "string") return;
      place.replaceChildren(markdown(whole.html));
      place.classList.add("markdown");
    } catch {
      // The text itself is there.
    }
  }
}
