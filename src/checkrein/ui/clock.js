// @ts-check
/** A beat for what shows time passing. Nothing is counted here: whoever listens looks at the clock. */

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
