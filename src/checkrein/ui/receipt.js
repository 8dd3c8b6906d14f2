// @ts-check
/**
 * How a run has ended, in plain words: what stopped and how fast, what was undone, what nobody knows, what is kept.
 *
 * The words of the runtime are in the folded details. Something undone is good news and looks like it.
 */
import { el, mark, place, say } from "./dom.js";
import { smallButton } from "./lines.js";
import { oneLine, plain } from "./plain.js";
import { Reasons } from "./reasons.js";
import { shape } from "./shapes.js";
import { clock, listed, milliseconds, plural, timeOfDay } from "./words.js";

/** @import { Asking } from "./asking.js" */
/** @import { ChangedEffect, EffectView, Receipt, RunView, StoppedCall } from "./types.js" */

const OVER = new Set(["completed", "failed", "aborted", "killed", "held"]);
const NO_UNDO = "there is no undo for it";

/** @type {Record<string, string>} */
const CALL_WORDS = {
  completed: "had finished",
  failed: "failed",
  aborted: "stopped",
  killed: "ended by force",
  detached: "could not be stopped; its result is dropped",
  in_doubt: "unknown whether it happened",
  held: "frozen where it is",
};
/** @type {Record<string, string>} */
const MODEL_WORDS = { ...CALL_WORDS, aborted: "closed", detached: "let go; the provider may go on for a while" };

/**
 * The receipt of the stop that ended a run, if one did.
 * @param {RunView} view
 * @returns {Receipt | null}
 */
export function stopReceipt(view) {
  if (view.status !== "cancelled" && view.status !== "killed") return null;
  const verb = view.status === "killed" ? "halt" : "cancel";
  return view.receipts.findLast((one) => one.verb === verb && one.superseded_by == null) ?? null;
}

/**
 * The end in two sentences, for the head of the card and for those who listen.
 * @param {RunView} view
 * @param {boolean} [isMine] the stop was asked for here
 * @returns {{ head: string, rest: string }}
 */
export function endWords(view, isMine = false) {
  const receipt = stopReceipt(view);
  if (receipt !== null) return stopWords(receipt, isMine);
  const took = clock(view.elapsed_seconds);
  switch (view.status) {
    case "completed":
      return { head: "Completed.", rest: `${took} at work.` };
    case "failed":
      return { head: "Failed.", rest: view.error ? oneLine(view.error, 400) : "The agent ended with an error." };
    case "killed":
      return { head: "Halted by an operator.", rest: "Nothing was undone." };
    default:
      return { head: "Cancelled.", rest: view.error ? oneLine(view.error, 400) : "" };
  }
}

/** @param {Receipt} receipt @param {boolean} isMine @returns {{ head: string, rest: string }} */
function stopWords(receipt, isMine) {
  const { calls = [], tokens_after_stop: tokens = 0 } = receipt;
  const took = receipt.timing_ms?.calls_stopped;
  const isOver = calls.every(({ now }) => OVER.has(now));
  const halted = receipt.verb === "halt" ? "Halted by an operator. " : "";
  const head = halted + (took == null || !isOver ? "Stopped." : `Stopped in ${milliseconds(took)}.`);
  if (!isOver) return { head, rest: "Not everything is known to have stopped." };
  if (tokens > 0) return { head, rest: `${plural(tokens, "token")} still came after the stop.` };
  if (calls.length === 0) return { head, rest: "Nothing was running." };
  return { head, rest: isMine ? "Nothing ran after you stopped it." : "Nothing ran after it was stopped." };
}

export class ReceiptCard {
  #sign = el("span", { class: "sign" });
  #signShown = "";
  #head = el("strong", null);
  #rest = el("span", null);
  #facts = el("ul", { class: "outcome" });
  #running = el("tbody", null);
  #table = el(
    "table", null,
    el("thead", null, el("tr", null, ...["What was running", "Now", "After"].map(heading))),
    this.#running,
  );
  #small = el("p", { class: "soft small" });
  #drawn = "";

  /**
   * @param {Asking} asking
   * @param {() => boolean} isMine whether the stop was asked for here
   */
  constructor(asking, isMine = () => false) {
    this.asking = asking;
    this.isMine = isMine;
    this.reasons = new Reasons((reason) => void asking.reason(reason));
    this.title = el("p", { class: "ending", tabIndex: -1 }, this.#sign, this.#head, " ", this.#rest);
    this.details = el(
      "details", null, el("summary", null, "Details"), el("div", { class: "scroll" }, this.#table), this.#small,
    );
    this.element = el("div", { class: "receipt" }, this.title, this.#facts, this.reasons.element, this.details);
  }

  /**
   * @param {RunView} view of a run that has ended
   * @param {boolean} isLive
   * @param {boolean} maySteer whether whoever looks may also do something about it
   */
  show(view, isLive = true, maySteer = true) {
    this.#showTitle(view);
    const receipt = stopReceipt(view);
    const hasReason = view.reasons.length > 0;
    this.reasons.element.hidden = (receipt === null && view.status !== "cancelled") || !(maySteer || hasReason);
    const isUsable = isLive && maySteer;
    this.reasons.show(view, this.asking, isUsable);
    const drawn = JSON.stringify([view.receipts.length, view.effects, view.instructions, view.status, isUsable]);
    if (drawn === this.#drawn) return; // nothing that a person may just be reading or pressing is made anew
    this.#drawn = drawn;
    place(this.#facts, [...outcome(view, receipt, this.asking, isUsable)]);
    this.details.hidden = receipt === null;
    if (receipt !== null) this.#showDetails(view, receipt);
  }

  /** @param {RunView} view */
  #showTitle(view) {
    if (this.#signShown !== view.status) {
      this.#signShown = view.status;
      this.#sign.className = `sign is-${view.status}`;
      this.#sign.replaceChildren(shape(view.status));
    }
    const { head, rest } = endWords(view, this.isMine());
    say(this.#head, head);
    say(this.#rest, rest);
  }

  /** @param {RunView} view @param {Receipt} receipt */
  #showDetails(view, receipt) {
    const calls = receipt.calls ?? [];
    this.#table.hidden = calls.length === 0;
    this.#running.replaceChildren(...calls.map(callRow));
    const asked = view.verbs.find(({ seq }) => seq === receipt.seq);
    const { accepted, settled } = receipt.timing_ms ?? {};
    const parts = [
      `${plural(receipt.tokens_after_stop ?? 0, "token")} after the stop.`,
      `Asked by ${plain(receipt.by)}${asked ? ` at ${timeOfDay(asked.at)}` : ""}.`,
      receipt.reason ? `Reason: ${plain(receipt.reason)}.` : "",
      accepted == null ? "" : `In force in ${milliseconds(accepted)}.`,
      settled == null ? "" : `Everything settled in ${milliseconds(settled)}.`,
      `Event ${receipt.seq} of run ${plain(view.id)}.`,
    ];
    say(this.#small, parts.filter(Boolean).join(" "));
  }
}

/** @param {string} text */
function heading(text) {
  return el("th", { scope: "col" }, text);
}

/** @param {StoppedCall} call */
function callRow(call) {
  const words = call.kind === "model" || call.kind === "ask" ? MODEL_WORDS : CALL_WORDS;
  const name = call.kind === "model" ? `request to the model (${call.name})` : call.name;
  return el(
    "tr", null,
    el("td", null, oneLine(name, 80)),
    el("td", null, words[call.now] ?? call.now),
    el("td", { class: "mono" }, call.ms === undefined ? "" : milliseconds(call.ms)),
  );
}

/**
 * One line for each thing worth knowing about the end.
 * @param {RunView} view
 * @param {Receipt | null} receipt
 * @param {Asking} asking
 * @param {boolean} isLive
 * @returns {Generator<HTMLLIElement>}
 */
function* outcome(view, receipt, asking, isLive) {
  const wasSpeaking = receipt?.calls?.some(({ kind }) => kind === "model") ?? false;
  if (wasSpeaking && !receipt?.tokens_after_stop) yield item("done", "0 tokens after the stop.");
  const effects = view.effects.filter(({ id }) => receipt?.effects?.some((one) => one.id === id) ?? true);
  yield* effectItems(effects, receipt, asking, isLive);
  const chars = receipt?.partial?.chars ?? 0;
  if (chars > 0) {
    const thread = receipt?.partial?.thread || view.thread;
    yield item("done", `Kept: ${plural(chars, "character")} of partial work, in the thread ${oneLine(thread, 80)}.`);
  } else if (receipt !== null) {
    yield item("done", `Kept: all finished work, in the thread ${oneLine(view.thread, 80)}.`);
  }
  const lost = view.instructions.findLast(({ delivered }) => delivered !== true);
  if (lost !== undefined && lost === view.instructions.at(-1)) {
    yield item("not_started", `It ended before it was given your last instruction: “${oneLine(lost.text, 160)}”`);
  }
}

/**
 * @param {(EffectView | ChangedEffect)[]} effects
 * @param {Receipt | null} receipt
 * @param {Asking} asking
 * @param {boolean} isLive
 */
function* effectItems(effects, receipt, asking, isLive) {
  const undone = effects.filter(({ now }) => now === "undone").map(({ what }) => oneLine(what, 80));
  if (undone.length && receipt !== null) yield item("undone", `Undone: ${listed(undone)}.`);
  for (const { what, why } of effects.filter(({ now }) => now === "in_doubt")) {
    const because = why ? ` (${oneLine(why, 160)})` : "";
    yield item("needs_you", `Unknown whether it happened: ${oneLine(what, 80)}${because}.`);
  }
  for (const effect of effects.filter(({ now }) => now === "left")) {
    const { id, what, why } = effect;
    const canUndo = "can_undo" in effect && effect.can_undo === true;
    if (why === NO_UNDO || (!why && !canUndo)) {
      yield item("not_started", `Stays, there is no undo for it: ${oneLine(what, 80)}.`);
      continue;
    }
    const again = smallButton(why ? "Try again" : "Undo it", () => void asking.retryUndo(id));
    mark(again, "aria-disabled", isLive ? null : "true");
    again.append(el("span", { class: "unseen" }, why ? ` to undo ${plain(what)}` : `: ${plain(what)}`));
    if (why) yield item("failed", `Could not be undone: ${oneLine(what, 80)} (${oneLine(why, 200)}).`, again);
    else yield item("near", `Not undone: ${oneLine(what, 80)}.`, again);
  }
}

/**
 * @param {string} name
 * @param {string} text
 * @param {...HTMLElement} actions
 */
function item(name, text, ...actions) {
  return el("li", null, el("span", { class: `sign is-${name}` }, shape(name)), el("span", null, text), ...actions);
}
