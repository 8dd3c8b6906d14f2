// @ts-check
/** What things are called, and numbers in words. The command line says the same. */

/** @import { CapView, RunView, Shown, Status, StepView } from "./types.js" */

/** How a status of a run is called. A gerund says that something is still settling. @type {Record<Status, string>} */
export const STATUS_WORDS = {
  queued: "Queued",
  running: "Running",
  pausing: "Pausing…",
  paused: "Paused",
  redirecting: "Redirecting…",
  cancelling: "Cancelling…",
  completed: "Completed",
  failed: "Failed",
  cancelled: "Cancelled",
  killed: "Halted by an operator",
};

/** How a step or a call looks, in a word. @type {Record<Shown, string>} */
export const SHOWN_WORDS = {
  queued: "Queued",
  running: "Running",
  paused: "Paused",
  done: "Done",
  cancelled: "Cancelled",
  undone: "Undone",
  failed: "Failed",
  needs_you: "Needs you",
  not_started: "Not started",
};

/** Every word, by status or by how it is shown. @type {Readonly<Record<string, string>>} */
export const WORDS = Object.freeze({ ...SHOWN_WORDS, ...STATUS_WORDS });

/**
 * The word and the shape of a run. One that waits for a person says so besides.
 * @param {RunView} view
 * @returns {{ word: string, shape: string }}
 */
export function standing(view) {
  const word = STATUS_WORDS[view.status];
  const waits = view.waiting.length > 0 && (view.status === "running" || view.status === "paused");
  return waits ? { word: `${word}, needs you`, shape: "needs_you" } : { word, shape: view.status };
}

// -- numbers

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
 * `812`, `6.1k`, `50k`, `1.2M`.
 * @param {number} count
 */
export function amount(count) {
  if (count < 1000) return String(count);
  const [size, unit] = count < 999_500 ? [count / 1000, "k"] : [count / 1_000_000, "M"];
  return `${size < 100 ? size.toFixed(1).replace(/\.0$/, "") : size.toFixed(0)}${unit}`;
}

/**
 * @param {number} count
 * @param {string} noun
 */
export function plural(count, noun) {
  return count === 1 ? `${count} ${noun}` : `${count} ${noun}s`;
}

/**
 * `a`, `a and b`, `a, b and c`.
 * @param {string[]} names
 */
export function listed(names) {
  const last = names.at(-1);
  return names.length < 2 ? last ?? "" : `${names.slice(0, -1).join(", ")} and ${last}`;
}

/**
 * A time of day as it is here: `18:04:11`.
 * @param {number} at seconds since 1970
 */
export function timeOfDay(at) {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}

/**
 * A sentence begins with a capital letter.
 * @param {string} text
 */
export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// -- caps and steps

/** From so much of its allowance on, a cap is near. */
const NEAR = 0.8;

/**
 * @param {CapView} cap
 * @returns {number} how much of it is used, from 0 to 1; what is not known counts as nothing
 */
export function share(cap) {
  return cap.allowed > 0 ? Math.min(1, Math.max(0, (cap.used ?? 0) / cap.allowed)) : 0;
}

/** @param {CapView} cap */
export function isNear(cap) {
  return share(cap) >= NEAR;
}

/**
 * The name of a cap without its number: `Turns`, `Tokens`, `Cost`, `Elapsed`.
 * @param {CapView} cap
 */
export function capKind(cap) {
  return cap.label.replace(/\(.*$/, "");
}

/**
 * `turn 7 of 50`, `6.1k of 50k tokens`, `$0.12 of $1.00`.
 * @param {CapView} cap
 */
export function capWords(cap) {
  if (capKind(cap) === "Tokens") return `${amount(cap.used ?? 0)} of ${amount(cap.allowed)} tokens`;
  return cap.words;
}

/**
 * The step at work, or the next one, of a plan; null where there is no plan.
 * @param {RunView} view
 * @returns {StepView | null}
 */
export function nextStep(view) {
  if (!view.planned) return null;
  const isBegun = (/** @type {StepView} */ step) => step.started_at != null && step.finished_at == null;
  return view.steps.findLast(isBegun) ?? view.steps.find((step) => step.started_at == null) ?? null;
}

/**
 * `step 3 of 4`; empty where there are no steps.
 * @param {RunView} view
 */
export function stepWords(view) {
  const begun = view.steps.filter(({ shown }) => shown !== "queued" && shown !== "not_started");
  const reached = Math.max(0, ...begun.map(({ number }) => number));
  return view.steps.length ? `step ${reached} of ${view.steps.length}` : "";
}
