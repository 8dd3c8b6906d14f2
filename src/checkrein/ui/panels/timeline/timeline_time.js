// @ts-check
/** Time in a run: on a line, with long silences folded so that the work stays readable, and without its pauses. */

/** @import { RunView } from "../../lib/types.js" */

/** @typedef {{ from: number, to: number }} Interval in seconds since 1970; `to` is infinite while it lasts */

/** A silence longer than this is folded, in seconds. */
const SILENCE = 6;

/** How wide a folded silence is, as a part of the whole. */
const FOLDED = 0.035;

/** @typedef {{from: number, to: number, x: number, width: number, isFolded: boolean}} Stretch */

export class TimeMap {
  /**
   * @param {Iterable<{from: number, to: number}>} intervals when something was going on
   * @param {number} start
   * @param {number} end
   */
  constructor(intervals, start, end) {
    /** @type {Stretch[]} */
    this.stretches = [];
    this.#lay(silences(intervals, start, end), start, Math.max(end, start + 1));
  }

  /** Where a time lies, from 0 to 1. @param {number} at */
  x(at) {
    let low = 0;
    let high = this.stretches.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.stretches[middle]?.from ?? 0) <= at) low = middle;
      else high = middle - 1;
    }
    const stretch = this.stretches[low];
    if (!stretch) return 0;
    const part = (at - stretch.from) / Math.max(1e-9, stretch.to - stretch.from);
    return stretch.x + stretch.width * Math.min(1, Math.max(0, part));
  }

  get folded() {
    return this.stretches.filter((stretch) => stretch.isFolded);
  }

  /** The time that is shown to scale, in seconds. */
  get seconds() {
    return this.stretches.reduce((sum, one) => sum + (one.isFolded ? 0 : one.to - one.from), 0);
  }

  /** @param {{from: number, to: number}[]} gaps @param {number} start @param {number} end */
  #lay(gaps, start, end) {
    const shut = gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0);
    const open = Math.max(1e-9, end - start - shut);
    const scale = Math.max(0.2, 1 - gaps.length * FOLDED) / open;
    const fold = gaps.length ? (1 - scale * open) / gaps.length : 0;
    let at = start;
    let x = 0;
    const add = (/** @type {number} */ to, /** @type {boolean} */ isFolded) => {
      if (to <= at) return;
      const width = isFolded ? fold : (to - at) * scale;
      this.stretches.push({ from: at, to, x, width, isFolded });
      x += width;
      at = to;
    };
    for (const gap of gaps) {
      add(gap.from, false);
      add(gap.to, true);
    }
    add(end, false);
  }
}

/**
 * @param {Iterable<{from: number, to: number}>} intervals
 * @param {number} start
 * @param {number} end
 */
function silences(intervals, start, end) {
  const sorted = [...intervals].sort((one, other) => one.from - other.from);
  const gaps = [];
  let reached = start;
  for (const { from, to } of sorted) {
    if (from - reached > SILENCE) gaps.push({ from: reached + 0.5, to: from - 0.5 });
    reached = Math.max(reached, to);
  }
  if (end - reached > SILENCE) gaps.push({ from: reached + 0.5, to: end });
  return gaps;
}

// -- pauses: what is frozen by one does not work meanwhile

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
