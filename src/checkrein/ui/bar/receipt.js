// @ts-check
/**
 * How a run has ended, in plain words: what stopped and how fast, what was undone, what nobody knows, what is kept.
 *
 * The words of the runtime are in the folded details. Something undone is good news and looks like it.
 */
import { el, mark, place, say } from "../lib/dom.js";
import { oneLine, plain } from "../lib/escape.js";
import { shape } from "../lib/shapes.js";
import { clock, milliseconds, timeOfDay } from "../lib/time.js";
import { inShort, voiced } from "../lib/voice.js";
import { capital, listed, plural, wordFor } from "../lib/words.js";
import { smallButton } from "./notices.js";
import { Reasons } from "./reasons.js";

/** @import { VerbSender } from "../connection/verbs.js" */
/** @import { ChangedEffect, EffectView, Receipt, RunView, StoppedCall } from "../lib/types.js" */

/** So much of a text that was kept is shown in a receipt, from its end. */
const KEPT_SHOWN = 160;
const OVER = new Set(["completed", "failed", "aborted", "killed", "held"]);
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
  const head = `${wordFor("statuses", view.status)}.`;
  if (view.status === "completed") return { head, rest: `${clock(view.elapsed_seconds)} at work.` };
  if (view.status === "killed") return { head, rest: "Nothing was undone." };
  const unsaid = view.status === "failed" ? "The agent ended with an error." : "";
  return { head, rest: view.error ? oneLine(view.error, 400) : unsaid };
}

/** @param {Receipt} receipt @param {boolean} isMine @returns {{ head: string, rest: string }} */
function stopWords(receipt, isMine) {
  const { calls = [], tokens_after_stop: tokens = 0 } = receipt;
  const took = receipt.timing_ms?.calls_stopped;
  const isOver = calls.every(({ now }) => OVER.has(now));
  const halted = receipt.verb === "halt" ? `${wordFor("receipt_heads", receipt.verb)} ` : "";
  const head = halted + (took == null || !isOver ? "Stopped." : `Stopped in ${milliseconds(took)}.`);
  if (!isOver) return { head, rest: wordFor("receipt_phrases", "unknown") };
  if (tokens > 0) return { head, rest: `${plural(tokens, "token")} still came after the stop.` };
  if (calls.length === 0) return { head, rest: wordFor("receipt_phrases", "nothing") };
  return { head, rest: wordFor("receipt_phrases", afterwards(calls, isMine)) };
}

/**
 * Which sentence is known to be true of the time after the stop.
 * @param {StoppedCall[]} calls
 * @param {boolean} isMine
 */
function afterwards(calls, isMine) {
  if (calls.some(({ before_first_token: isBefore }) => isBefore)) return "before_first_token";
  return isMine ? "nothing_ran_after_you" : "nothing_ran";
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
   * @param {VerbSender} sender
   * @param {() => boolean} isMine whether the stop was asked for here
   */
  constructor(sender, isMine = () => false) {
    this.sender = sender;
    this.isMine = isMine;
    this.reasons = new Reasons((reason) => void sender.reason(reason));
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
    this.reasons.show(view, this.sender, isUsable);
    const ended = [...view.calls.values()].map(({ now }) => now).join();
    const drawn = JSON.stringify([view.receipts.length, view.effects, view.instructions, view.status, isUsable, ended]);
    if (drawn === this.#drawn) return; // nothing that a person may just be reading or pressing is made anew
    this.#drawn = drawn;
    place(this.#facts, [...outcome(view, receipt, this.sender, isUsable)]);
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

/** What kept a stop waiting, and what it could not stop. @param {StoppedCall} call */
function more(call) {
  const waited = call.waited_for ? `waited for ${call.waited_for}` : "";
  const left = call.left?.length ? `still running: ${call.left.join(", ")}` : "";
  return [waited, left].filter(Boolean).map((text) => el("small", null, ` ${oneLine(text, 200)}`));
}

/** A sentence of the receipt, as part of a table. */
function closedHere() {
  return wordFor("receipt_phrases", "before_first_token").replace(/\.$/, "").toLowerCase();
}

/** @param {StoppedCall} call */
function callRow(call) {
  const table = call.kind === "model" || call.kind === "ask" ? "stopped_models" : "stopped_calls";
  const name = call.kind === "model" ? `request to the model (${call.name})` : call.name;
  return el(
    "tr", null,
    el("td", null, oneLine(name, 80)),
    el("td", null, call.before_first_token ? closedHere() : wordFor(table, call.now), ...more(call)),
    el("td", { class: "mono" }, call.ms === undefined ? "" : milliseconds(call.ms)),
  );
}

/**
 * One line for each thing worth knowing about the end.
 * @param {RunView} view
 * @param {Receipt | null} receipt
 * @param {VerbSender} sender
 * @param {boolean} isLive
 * @returns {Generator<HTMLLIElement>}
 */
function* outcome(view, receipt, sender, isLive) {
  const wasSpeaking = receipt?.calls?.some(({ kind }) => kind === "model") ?? false;
  if (wasSpeaking && !receipt?.tokens_after_stop) yield item("done", "0 tokens after the stop.");
  const effects = view.effects.filter(({ id }) => receipt?.effects?.some((one) => one.id === id) ?? true);
  yield* effectItems(effects, receipt, sender, isLive);
  yield* notDone(view, receipt);
  if (receipt !== null) yield item("done", keptWords(receipt, effects, sender));
  const lost = view.instructions.findLast(({ delivered }) => delivered !== true);
  if (lost !== undefined && lost === view.instructions.at(-1)) {
    yield item("not_started", `It ended before it was given your last instruction: “${oneLine(lost.text, 160)}”`);
  }
}

/**
 * What is still there of what was under way: the end of it in its own words, where they are known here.
 * @param {Receipt} receipt
 * @param {(EffectView | ChangedEffect)[]} effects
 * @param {VerbSender} sender
 */
function keptWords(receipt, effects, sender) {
  if (receipt.partial?.chars) {
    const spoken = (receipt.calls ?? []).map(({ id }) => sender.live.texts.get(id)?.text.trim()).findLast(Boolean);
    if (!spoken) return "Kept: what it had written so far.";
    const end = spoken.length > KEPT_SHOWN ? `…${spoken.slice(1 - KEPT_SHOWN)}` : spoken;
    return `Kept: what it had written so far, “${end.replace(/[“”]/g, '"')}”`;
  }
  const isUndone = effects.some(({ now }) => now === "undone");
  return isUndone ? "Kept: all finished work that was not undone." : "Kept: all finished work.";
}

/**
 * Of a run that came to its own end: what was asked for on the way and, as far as is known, did not happen.
 * @param {RunView} view
 * @param {Receipt | null} receipt
 */
function* notDone(view, receipt) {
  if (receipt !== null) return;
  const unknown = new Set(view.effects.filter(({ now }) => now === "in_doubt").map(({ id }) => id)); // said above
  const isLeftOut = (/** @type {import("../lib/types.js").CallBrief} */ { id, kind, shown }) =>
    (kind === "tool" || kind === "run") && shown === "cancelled" && !unknown.has(id);
  const calls = [...view.calls.values()].filter(isLeftOut);
  const names = new Set(calls.map(({ name, now }) => `${oneLine(name, 60)} (${wordFor("stopped_calls", now)})`));
  if (names.size) yield item("near", `Not done: ${listed([...names].slice(-5))}.`);
}

/**
 * @param {(EffectView | ChangedEffect)[]} effects
 * @param {Receipt | null} receipt
 * @param {VerbSender} sender
 * @param {boolean} isLive
 */
function* effectItems(effects, receipt, sender, isLive) {
  const undone = effects.filter(({ now }) => now === "undone").map(({ what }) => inShort(what));
  if (undone.length && receipt !== null) yield item("undone", `${wordFor("effect_heads", "undone")}: ${listed(undone)}.`);
  for (const { what, why } of effects.filter(({ now }) => now === "in_doubt")) {
    const because = why ? ` (${oneLine(why, 160)})` : "";
    yield item("needs_you", `${capital(wordFor("stopped_calls", "in_doubt"))}: ${inShort(what)}${because}.`);
  }
  for (const effect of effects.filter(({ now }) => now === "left")) {
    const { id, what, why } = effect;
    const canUndo = "can_undo" in effect && effect.can_undo === true;
    const noUndo = wordFor("receipt_phrases", "no_undo");
    if (why === noUndo || (!why && !canUndo)) {
      yield item("not_started", `Stays, ${noUndo}: ${inShort(what)}.`);
      continue;
    }
    const again = smallButton(why ? "Try again" : "Undo it", () => void sender.decide("retry_undo", id));
    mark(again, "aria-disabled", isLive ? null : "true");
    again.append(el("span", { class: "unseen" }, why ? ` to undo ${plain(what)}` : `: ${plain(what)}`));
    if (why) yield item("failed", `Could not be undone: ${inShort(what)} (${oneLine(why, 200)}).`, again);
    else yield item("near", `Not undone: ${inShort(what)}.`, again);
  }
}

/**
 * @param {string} name
 * @param {string} text
 * @param {...HTMLElement} actions
 */
function item(name, text, ...actions) {
  return el("li", null, el("span", { class: `sign is-${name}` }, shape(name)), el("span", null, ...voiced(text, 200)), ...actions);
}
