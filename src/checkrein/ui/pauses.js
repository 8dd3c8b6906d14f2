// @ts-check
/** When a run was paused, and how long something worked: what is frozen by a pause does not work meanwhile. */

/** @import { RunView } from "./types.js" */

/** @typedef {{ from: number, to: number }} Interval in seconds since 1970; `to` is infinite while it lasts */

const ENDS_IT = new Set(["resume", "redirect", "cancel", "halt"]);
/** @type {readonly Interval[]} */
const NONE = [];

/**
 * From when a pause had settled to when the next verb ended it.
 * @param {RunView | null} view
 * @returns {readonly Interval[]}
 */
export function pausesOf(view) {
  if (!view?.verbs.some(({ verb }) => verb === "pause")) return NONE;
  /** @type {Interval[]} */
  const found = [];
  for (const { verb, seq, at } of view.verbs) {
    const last = found.at(-1);
    if (last?.to === Infinity && ENDS_IT.has(verb)) last.to = Math.max(last.from, at);
    if (verb !== "pause" || last?.to === Infinity) continue;
    const receipt = view.receipts.find((one) => one.seq === seq && one.verb === "pause");
    const settled = receipt?.superseded_by == null ? receipt?.timing_ms?.settled : null;
    if (settled != null) found.push({ from: at + settled / 1000, to: Infinity });
  }
  return found;
}

/**
 * An interval without the pauses in it: what is left, in order.
 * @param {number} from
 * @param {number} to
 * @param {readonly Interval[]} pauses
 * @returns {Interval[]}
 */
export function without(from, to, pauses) {
  /** @type {Interval[]} */
  const left = [];
  let at = from;
  for (const pause of pauses) {
    if (pause.to <= at || pause.from >= to) continue;
    if (pause.from > at) left.push({ from: at, to: pause.from });
    at = Math.min(to, pause.to);
  }
  if (at < to || left.length === 0) left.push({ from: at, to });
  return left;
}
