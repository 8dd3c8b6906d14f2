// @ts-check
/** Time on a line: where something happened, with long silences folded so that the work stays readable. */

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
