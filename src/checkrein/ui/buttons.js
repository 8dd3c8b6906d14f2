// @ts-check
/**
 * The three controls: pause or resume, redirect, cancel. Each says what it would do, or why it cannot.
 *
 * They are real buttons that stay where they are and keep the focus. One that cannot be used now is not taken out of
 * reach: it is still there to say why.
 */
import { el, mark, say } from "./dom.js";
import { shape } from "./shapes.js";
import { capital, goingOn } from "./words.js";

/** @import { Asked, Asking } from "./asking.js" */
/** @import { LiveRun } from "./live.js" */
/** @import { Control, RunView, SettlingView } from "./types.js" */

/** @typedef {"hold" | "redirect" | "cancel"} Slot */
/** @typedef {{ verb: Control, label: string, consequence: string, isEnabled: boolean, isBusy: boolean }} Face */

/** @type {Record<string, string>} */
const GERUNDS = { pause: "Pausing…", resume: "Resuming…", redirect: "Redirecting…", cancel: "Cancelling…" };
/** @type {Record<Slot, string>} */
const KEYS = { hold: "p", redirect: "r", cancel: "c" };
/** A button that has just become another one does not take a click that was meant for what it was before. */
const CHANGED_MS = 600;
const SLOW_MS = 1_000;

export const NOT_CONNECTED = "not connected, comes back by itself";
export const ONLY_WATCH = "you may only watch";

export class ControlButton {
  /** @type {Control | null} */
  #verb = null;
  #changedAt = 0;
  #label = el("b", { id: "" });
  #consequence = el("span", { class: "consequence" });
  #shape = el("span", { class: "sign" });

  /**
   * @param {Slot} slot
   * @param {(verb: Control) => void} use
   */
  constructor(slot, use) {
    this.slot = slot;
    this.#label.id = `${slot}-label`;
    this.#consequence.id = `${slot}-consequence`;
    const key = el("kbd", { "aria-hidden": "true" }, KEYS[slot]);
    const head = el("span", { class: "head" }, this.#shape, this.#label, key);
    this.element = el("button", { type: "button", class: `key key-${slot}` }, head, this.#consequence);
    mark(this.element, "aria-labelledby", this.#label.id);
    mark(this.element, "aria-describedby", this.#consequence.id);
    mark(this.element, "aria-keyshortcuts", KEYS[slot]);
    this.element.addEventListener("click", () => {
      const isUsable = this.element.ariaDisabled !== "true" && Date.now() - this.#changedAt >= CHANGED_MS;
      if (isUsable && this.#verb !== null) use(this.#verb);
    });
  }

  /** @param {Face} face */
  show(face) {
    if (this.#verb !== face.verb) {
      this.#changedAt = this.#verb === null ? 0 : Date.now();
      this.#verb = face.verb;
      this.#shape.replaceChildren(shape(face.verb));
      this.element.dataset.verb = face.verb;
    }
    say(this.#label, face.label);
    say(this.#consequence, face.consequence);
    mark(this.element, "aria-disabled", face.isEnabled ? null : "true");
    mark(this.element, "aria-busy", face.isBusy ? "true" : null);
  }
}

/**
 * What a control says now. Only from what the server has said, and from what was asked of it.
 * @param {Slot} slot
 * @param {RunView} view
 * @param {LiveRun} live
 * @param {Asking} asking
 * @param {boolean} [maySteer] whether whoever looks may also steer
 * @returns {Face}
 */
export function faceOf(slot, view, live, asking, maySteer = true) {
  const verb = verbOf(slot, view);
  const label = capital(verb);
  const control = view.controls[verb] ?? { enabled: false, consequence: "" };
  const asked = asking.asked(verb);
  if (asked !== null) {
    return { verb, label: GERUNDS[verb] ?? label, consequence: askedWords(asked), isEnabled: false, isBusy: true };
  }
  if (live.state !== "live") return { verb, label, consequence: NOT_CONNECTED, isEnabled: false, isBusy: false };
  if (!maySteer) return { verb, label, consequence: ONLY_WATCH, isEnabled: false, isBusy: false };
  const settling = slot === "redirect" ? null : settlingOf(view, verb);
  if (settling !== null) {
    const consequence = settlingWords(settling);
    return { verb, label: GERUNDS[verb] ?? label, consequence, isEnabled: false, isBusy: true };
  }
  const consequence = control.enabled || !control.consequence ? control.consequence : `not now: ${control.consequence}`;
  return { verb, label, consequence, isEnabled: control.enabled, isBusy: false };
}

/** @param {Slot} slot @param {RunView} view @returns {Control} */
function verbOf(slot, view) {
  if (slot !== "hold") return slot;
  return view.status === "paused" ? "resume" : "pause";
}

/**
 * The verb that the status of the run is about, while it settles.
 * @param {RunView} view
 * @param {string} [verb]
 * @returns {SettlingView | null}
 */
export function settlingOf(view, verb = SETTLING[view.status]) {
  if (verb === undefined || SETTLING[view.status] !== verb) return null;
  return view.settling.findLast((one) => one.verb === verb) ?? null;
}

/** @type {Record<string, string>} */
const SETTLING = { pausing: "pause", redirecting: "redirect", cancelling: "cancel" };

/** @param {SettlingView} settling */
function settlingWords(settling) {
  return settling.waiting_for ? `waits for ${settling.waiting_for}` : "nearly done";
}

/** @param {Asked} asked */
function askedWords(asked) {
  const ms = Date.now() - asked.since;
  if (asked.isRepeated) return `no answer for ${goingOn(ms / 1000)}, asking again`;
  return ms < SLOW_MS ? "asked" : `asked ${goingOn(ms / 1000)} ago, no answer yet`;
}
