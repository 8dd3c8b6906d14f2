// @ts-check
/**
 * What the bar says above its controls, one line for each thing that is so: no connection, a refusal, what the run
 * needs, what a verb waits for, and that it is paused.
 */
import { settlingOf } from "./buttons.js";
import { el, mark, say } from "./dom.js";
import { shape } from "./shapes.js";
import { capital, goingOn, listed, milliseconds } from "./words.js";

/** @import { Asking } from "./asking.js" */
/** @import { LiveRun } from "./live.js" */
/** @import { CallBrief, RunView, SettlingView } from "./types.js" */

/** How long a verb that waits for nothing in particular may take before that is worth a line. */
const LATE_SECONDS = 1;

class Line {
  #text = el("p", null);

  /**
   * @param {string} name of its shape
   * @param {...HTMLElement} actions
   */
  constructor(name, ...actions) {
    this.element = el("div", { class: `line is-${name}`, hidden: true }, shape(name), this.#text, ...actions);
  }

  /** @param {string} text nothing hides the line */
  say(text) {
    if (text !== "") say(this.#text, text);
    this.element.hidden = text === "";
  }
}

/**
 * A button with a word for a name.
 * @param {string} label
 * @param {() => void} use
 */
export function smallButton(label, use) {
  const button = el("button", { type: "button", class: "plain" }, label);
  button.addEventListener("click", () => button.ariaDisabled !== "true" && use());
  return button;
}

export class Lines {
  /**
   * @param {object} actions
   * @param {(calls: CallBrief[]) => void} actions.abort
   * @param {() => void} actions.goOn
   * @param {() => void} actions.stay
   * @param {() => void} actions.instruct
   * @param {() => void} actions.dismiss
   */
  constructor(actions) {
    /** @type {CallBrief[]} */
    this.waitedFor = [];
    this.abort = smallButton("Don't wait: abort it", () => actions.abort(this.waitedFor));
    this.goOn = smallButton("Don't pause: go on", actions.goOn);
    this.stay = smallButton("Keep it paused", actions.stay);
    this.instruct = smallButton("Resume with an instruction", actions.instruct);
    this.lost = new Line("lost");
    this.refused = new Line("failed", smallButton("Close", actions.dismiss));
    this.needs = new Line("needs_you");
    this.late = new Line("pausing", this.abort, this.goOn);
    this.paused = new Line("paused", this.stay, this.instruct);
    this.refused.element.classList.add("refused");
    this.element = el("div", { class: "lines" });
    for (const line of [this.lost, this.refused, this.needs, this.late, this.paused]) this.element.append(line.element);
  }

  /**
   * @param {RunView} view
   * @param {LiveRun} live
   * @param {Asking} asking
   * @param {{ maySteer?: boolean, isWriting?: boolean }} [now] whether a person may do something about it, and whether
   *   they are writing already
   */
  show(view, live, asking, { maySteer = true, isWriting = false } = {}) {
    const isLive = live.state === "live";
    this.lost.say(isLive ? "" : lostWords(live, asking));
    this.refused.say(asking.refusal);
    this.needs.say(isLive ? needsWords(view) : "");
    this.#showLate(view, live, asking);
    this.#showPaused(view, isLive, asking);
    if (isWriting) this.instruct.hidden = true;
    if (maySteer) return;
    for (const button of [this.abort, this.goOn, this.stay, this.instruct]) button.hidden = true;
  }

  /** @param {RunView} view @param {LiveRun} live @param {Asking} asking */
  #showLate(view, live, asking) {
    const settling = settlingOf(view);
    this.waitedFor = view.status === "pausing" ? waitedFor(view) : [];
    const isWorthALine =
      settling !== null && (this.waitedFor.length > 0 || live.now() - settling.at >= LATE_SECONDS);
    if (!isWorthALine || live.state !== "live") {
      this.late.say("");
      return;
    }
    this.late.say(lateWords(view, settling, this.waitedFor, live.now()));
    this.abort.hidden = this.waitedFor.length === 0;
    this.goOn.hidden = view.status !== "pausing" || view.controls.resume?.enabled !== true;
    const several = this.waitedFor.length > 1;
    say(this.abort, `Don't wait: abort ${several ? listed(this.waitedFor.map(({ name }) => name)) : "it"}`);
    const isAsked = this.waitedFor.some(({ id }) => asking.asked(`abort ${id}`) !== null);
    mark(this.abort, "aria-busy", isAsked ? "true" : null);
    mark(this.abort, "aria-disabled", isAsked ? "true" : null);
    mark(this.goOn, "aria-disabled", asking.asked("resume") ? "true" : null);
  }

  /** @param {RunView} view @param {boolean} isLive @param {Asking} asking */
  #showPaused(view, isLive, asking) {
    const isPaused = isLive && view.status === "paused";
    this.paused.say(isPaused ? pausedWords(view) : "");
    this.stay.hidden = view.controls.pause?.enabled !== true;
    this.instruct.hidden = false;
    const canInstruct = view.controls.resume?.enabled === true && asking.asked("resume") === null;
    mark(this.instruct, "aria-disabled", canInstruct ? null : "true");
  }
}

/**
 * @param {RunView} view
 * @param {SettlingView} settling
 * @param {CallBrief[]} waitedFor
 * @param {number} now
 */
function lateWords(view, settling, waitedFor, now) {
  const since = goingOn(now - settling.at);
  const names = listed(waitedFor.map(({ name }) => name));
  if (names) return `A pause lets ${names} finish first: ${since} so far.`;
  const waits = settling.waiting_for ? `waits for ${settling.waiting_for}` : "is nearly done";
  return `${capital(view.status)} ${waits}: ${since} so far.`;
}

/** @param {LiveRun} live @param {Asking} asking */
function lostWords(live, asking) {
  const pending = [...asking.all()].map(([verb]) => capital(verb.replace(/ .*/, "")));
  const still = pending.length ? ` ${listed(pending)} was asked for and is asked again until there is an answer.` : "";
  if (live.problem !== null) return `Not connected: ${live.problem.message} Trying again.${still}`;
  const seconds = (Date.now() - live.heardAt) / 1000;
  return `Connection lost ${goingOn(seconds)} ago. The run does not need this page; connecting again.${still}`;
}

/** @param {RunView} view */
function needsWords(view) {
  if (view.status !== "running" && view.status !== "paused") return "";
  return view.waiting
    .map(({ what, remedy }) => `Needs you: ${sentence(what)}${remedy ? ` ${sentence(capital(remedy))}` : ""}`)
    .join(" ");
}

/** @param {string} text */
function sentence(text) {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

/** @param {RunView} view */
function pausedWords(view) {
  const held = [...view.calls.values()].filter(({ now }) => now === "held").map(({ name }) => name);
  const receipt = view.receipts.findLast(({ verb, superseded_by }) => verb === "pause" && superseded_by == null);
  const took = receipt?.timing_ms?.calls_stopped;
  const head = took == null ? "Paused." : `Paused in ${milliseconds(took)}.`;
  if (held.length) return `${head} ${listed(held)} is frozen where it is. Nothing else runs.`;
  if (view.controls.pause?.enabled) return `${head} It goes on by itself when its server is back.`;
  return `${head} Nothing runs and nothing is spent. What it had is kept.`;
}

/**
 * The calls that a pause waits for and that could be aborted instead.
 * @param {RunView} view
 */
function waitedFor(view) {
  return [...view.calls.values()].filter(
    ({ shown, now, kind }) => shown === "running" && now === "running" && (kind === "tool" || kind === "run"),
  );
}
