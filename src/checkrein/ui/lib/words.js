// @ts-check
/** What things are called, in the words of the server, and numbers in words. The command line says the same. */

import WORDING from "../wording.js";
import { ENDED } from "./types.js";

/** @import { CapView, RunView, StepView } from "./types.js" */

/**
 * The English for a word of the runtime, as the server gives it; the word itself where there is none.
 * @param {string} table of `checkrein.core.wording.words_for_page`
 * @param {string} key
 */
export function wordFor(table, key) {
  return WORDING[table]?.[key] ?? key;
}

/**
 * Everything that is said for the words of a table, each once.
 * @param {string} table
 */
export function wordsOf(table) {
  return [...new Set(Object.values(WORDING[table] ?? {}))];
}

/**
 * A run's status. A stop is in force with or without a process that drives the run.
 * @param {{ status: string, driven?: boolean, waits_for_worker?: string }} run
 */
export function statusWord({ status, driven, waits_for_worker: worker }) {
  const word = wordFor("statuses", status);
  if (worker) return status === "running" ? `Waiting for ${worker}` : `${word}, waiting for ${worker}`;
  if (driven !== false) return word;
  const undriven = wordFor("statuses", "undriven");
  return status === "running" ? undriven : `${word}, ${undriven.toLowerCase()}`;
}

/**
 * The word and the shape of a run. One that waits for a person says so besides.
 * @param {RunView} view
 * @returns {{ word: string, shape: string }}
 */
export function standing(view) {
  const word = statusWord(view);
  const waits = view.waiting.length > 0 && (view.status === "running" || view.status === "paused");
  const isLeft = view.status === "running" && view.driven === false;
  if (!waits) return { word, shape: isLeft ? "undriven" : view.status };
  const isHeldUp = view.status === "running" && view.driven !== false && isBlocked(view);
  return { word: isHeldUp ? WAITING : `${word}, needs you`, shape: "needs_you" };
}

/** Of a run that does nothing until a person has answered. */
export const WAITING = "Waiting for you";

/**
 * What it waits for, as a question where a person is asked one.
 * @param {import("./types.js").WaitingView} waiting
 */
export function askWords({ kind, what }) {
  return kind === "approval" ? what.replace(/^approve (.*)$/s, "May it use $1?") : what;
}

/** Whether it waits for an answer, and does nothing else meanwhile. @param {RunView} view */
function isBlocked(view) {
  const asked = [...view.approvals, ...view.doubts];
  return asked.some(({ blocks }) => blocks !== false) || view.waiting.some(({ kind }) => kind !== "approval" && kind !== "in_doubt");
}

// -- numbers

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
 * `1 call`, `9,800 calls`.
 * @param {number} count
 * @param {string} noun
 */
export function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
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
  if (capKind(cap) !== "Tokens") return cap.words;
  const about = cap.words.startsWith("about ") ? "about " : "";
  return `${about}${amount(cap.used ?? 0)} of ${amount(cap.allowed)} tokens`;
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
 * How far it is: `step 3 of 4`, in the end `2 of 4 steps done`. Without a plan nobody knows of how many, so its calls are
 * counted; empty where there are none.
 * @param {RunView} view
 */
export function stepWords({ planned, steps, status }) {
  if (!steps.length) return "";
  if (!planned) return counted(steps.length, "call");
  if (ENDED.has(status)) return `${steps.filter(({ shown }) => shown === "done").length} of ${counted(steps.length, "step")} done`;
  const begun = steps.filter(({ shown }) => shown !== "queued" && shown !== "not_started");
  return `step ${Math.max(0, ...begun.map(({ number }) => number))} of ${steps.length}`;
}
