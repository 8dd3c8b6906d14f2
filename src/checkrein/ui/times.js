// @ts-check
/** Times of a call or a step, and counts of many. */

import { goingOn, milliseconds } from "./words.js";

/**
 * How long something took, or takes already.
 * @param {number} seconds
 * @param {boolean} isOver
 */
export function span(seconds, isOver) {
  return isOver ? milliseconds(Math.max(0, seconds) * 1000) : goingOn(seconds);
}

/**
 * A time of day, with its date unless that is today's.
 * @param {number} at
 */
export function moment(at) {
  const date = new Date(at * 1000);
  const time = date.toLocaleTimeString("en-GB");
  if (date.toDateString() === new Date().toDateString()) return time;
  return `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })}, ${time}`;
}

/**
 * `1 call`, `9,800 calls`.
 * @param {number} count
 * @param {string} noun
 */
export function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}
