// @ts-check
/** Time as a person reads it: how long, since when, at what time; and a tick for what shows it passing. */

/**
 * Time at work: `00:12`, `1:03:09`.
 * @param {number} seconds
 */
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const rest = String(whole % 60).padStart(2, "0");
  const minutes = Math.floor(whole / 60) % 60;
  const hours = Math.floor(whole / 3600);
  const padded = String(minutes).padStart(2, "0");
  return hours ? `${hours}:${padded}:${rest}` : `${padded}:${rest}`;
}

/**
 * `9 ms`, `3.2 s`, `2 min 5 s`.
 * @param {number} ms
 */
export function milliseconds(ms) {
  if (ms < 1000) return ms >= 1 || ms === 0 ? `${Math.round(ms)} ms` : "under 1 ms";
  const seconds = ms / 1000;
  return seconds < 60 ? `${seconds.toFixed(1)} s` : `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

/**
 * How long something goes on already, in whole seconds so that it does not flicker: `3 s`, `2 min 5 s`.
 * @param {number} seconds
 */
export function goingOn(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/**
 * A time of day as it is here: `18:04:11`.
 * @param {number} at seconds since 1970
 */
export function timeOfDay(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

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

// -- a tick: nothing is counted here, whoever listens looks at the clock

const BEAT_MS = 250;

/** @type {Set<() => void>} */
const listeners = new Set();
/** @type {ReturnType<typeof setInterval> | undefined} */
let beating;

/**
 * Have `listener` called a few times a second, until the returned function is called.
 * @param {() => void} listener
 * @returns {() => void}
 */
export function onBeat(listener) {
  listeners.add(listener);
  beating ??= setInterval(() => listeners.forEach((told) => told()), BEAT_MS);
  return () => {
    listeners.delete(listener);
    if (listeners.size) return;
    clearInterval(beating);
    beating = undefined;
  };
}
