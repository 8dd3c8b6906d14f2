// @ts-check
/** What is said aloud about a run: one sentence or two, about what a person needs to know now, and never the time. */
import { ENDED } from "../lib/types.js";
import { askWords, capKind, isNear, standing } from "../lib/words.js";
import { settlingOf } from "./buttons.js";
import { endWords } from "./receipt.js";

/** @import { RunStore } from "../connection/run_store.js" */
/** @import { RunView } from "../lib/types.js" */

/**
 * @param {RunView} view
 * @param {RunStore} live
 * @param {string} refusal
 * @param {boolean} isMine the stop was asked for here
 * @returns {string}
 */
export function announcement(view, live, refusal, isMine) {
  if (live.state !== "live") return "Connection lost. The controls do not work until it is back.";
  if (refusal) return refusal;
  if (ENDED.has(view.status)) {
    const { head, rest } = endWords(view, isMine);
    return `${head} ${rest}`.trim();
  }
  const waits = settlingOf(view)?.waiting_for;
  const needs = standing(view).shape === "needs_you" ? view.waiting.map((one) => askWords(one).replace(/([^.?!])$/, "$1.")) : [];
  const near = view.caps.filter(isNear).map((cap) => `${capKind(cap)} near their cap.`);
  const status = `${standing(view).word.replace("…", "")}.`;
  return [status, ...(waits ? [`Waits for ${waits}.`] : []), ...needs, ...near].join(" ");
}
