// @ts-check
/**
 * The three controls: pause or resume, redirect, cancel. Each says what it would do, or why it cannot.
 *
 * They are real buttons that stay where they are and keep the focus. One that cannot be used now is not taken out of
 * reach: it is still there to say why.
 */
import { el, mark, say } from "../lib/dom.js";
import { shape } from "../lib/shapes.js";
import { SETTLE_MS } from "../lib/steady.js";
import { goingOn } from "../lib/time.js";
import { ENDED } from "../lib/types.js";
import { voice } from "../lib/voice.js";
import { capital, wordFor } from "../lib/words.js";

/** @import { Asked, VerbSender } from "../connection/verbs.js" */
/** @import { RunStore } from "../connection/run_store.js" */
/** @import { Control, RunView, SettlingView } from "../lib/types.js" */

/** @typedef {"hold" | "redirect" | "cancel"} Slot */
/** @typedef {{ verb: Control, label: string, consequence: string, isEnabled: boolean, isBusy: boolean }} Face */

/** @type {Record<Slot, string>} */
const KEYS = { hold: "p", redirect: "r", cancel: "c" };
const SLOW_MS = 1_000;

export const NOT_CONNECTED = "not connected, comes back by itself";
/** Of what is never stale and done only once, however often it is asked: it can be asked without seeing the run. */
const UNSEEN = "can be asked for, although nothing is seen of the run just now";
/** @type {ReadonlySet<Control>} */
const NEVER_STALE = new Set(/** @type {Control[]} */ (["pause", "cancel"]));
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
      // One that has just become another does not take a click that was meant for what it was before.
      const isUsable = this.element.ariaDisabled !== "true" && Date.now() - this.#changedAt >= SETTLE_MS;
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
    voice(this.#consequence, face.consequence);
    mark(this.element, "aria-disabled", face.isEnabled ? null : "true");
    mark(this.element, "aria-busy", face.isBusy ? "true" : null);
  }
}

/**
 * What a control says now. Only from what the server has said, and from what was asked of it.
 * @param {Slot} slot
 * @param {RunView} view
 * @param {RunStore} live
 * @param {VerbSender} sender
 * @param {boolean} [maySteer] whether whoever looks may also steer
 * @returns {Face}
 */
export function faceOf(slot, view, live, sender, maySteer = true) {
  const verb = verbOf(slot, view);
  const label = capital(verb);
  const control = view.controls[verb] ?? { enabled: false, consequence: "" };
  const asked = sender.asked(verb);
  if (asked !== null) {
    return { verb, label: wordFor("settling", verb), consequence: askedWords(asked), isEnabled: false, isBusy: true };
  }
  if (live.state !== "live" && (!live.answers || !NEVER_STALE.has(verb) || ENDED.has(view.status))) {
    return { verb, label, consequence: NOT_CONNECTED, isEnabled: false, isBusy: false };
  }
  if (!maySteer) return { verb, label, consequence: ONLY_WATCH, isEnabled: false, isBusy: false };
  if (live.state !== "live") return { verb, label, consequence: UNSEEN, isEnabled: true, isBusy: false };
  const settling = slot === "redirect" ? null : settlingOf(view, verb);
  if (settling !== null) {
    const consequence = settlingWords(settling);
    return { verb, label: wordFor("settling", verb), consequence, isEnabled: false, isBusy: true };
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
