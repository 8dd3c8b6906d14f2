// @ts-check
/**
 * What the bar says above its controls, one line for each thing that is so: no connection, a refusal, what the run
 * needs, what a verb waits for, and that it is paused.
 */
import { el, mark, say } from "../lib/dom.js";
import { shape } from "../lib/shapes.js";
import { goingOn, milliseconds } from "../lib/time.js";
import { voice } from "../lib/voice.js";
import { capital, counted, listed } from "../lib/words.js";
import { settlingOf } from "./buttons.js";

/** @import { VerbSender } from "../connection/verbs.js" */
/** @import { RunStore } from "../connection/run_store.js" */
/** @import { CallBrief, RunView, SettlingView } from "../lib/types.js" */

/** How long a verb that waits for nothing in particular may take before that is worth a line. */
const LATE_SECONDS = 1;

class Notice {
  #text = el("p", { class: "words" });
  #all = el("button", { type: "button", class: "all", hidden: true, onclick: () => this.#turn() }, "Show all");
  #measured = "";

  /**
   * @param {string} name of its shape
   * @param {...HTMLElement} actions
   */
  constructor(name, ...actions) {
    this.element = el("div", { class: `line is-${name}`, hidden: true }, shape(name), this.#text, this.#all, ...actions);
  }

  #turn() {
    const isWhole = this.element.toggleAttribute("data-whole");
    say(this.#all, isWhole ? "Show less" : "Show all");
    mark(this.#all, "aria-expanded", String(isWhole));
  }

  /** @param {string} text nothing hides the line */
  say(text) {
    if (text !== "") voice(this.#text, text);
    this.element.hidden = text === "";
    if (text === "" || this.element.hasAttribute("data-whole")) return;
    // A long one is cut off after a few lines: the run and the buttons need the room.
    const measured = `${this.element.clientWidth} ${text.length}`;
    if (measured === this.#measured) return;
    this.#measured = measured;
    this.#all.hidden = this.#text.scrollHeight <= this.#text.clientHeight + 1;
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

export class Notices {
  /**
   * @param {object} actions
   * @param {(calls: CallBrief[]) => void} actions.abort
   * @param {() => void} actions.goOn
   * @param {() => void} actions.stay
   * @param {(call: string) => void} actions.look
   * @param {() => void} actions.dismiss
   */
  constructor(actions) {
    /** @type {CallBrief[]} */
    this.waitedFor = [];
    /** The call that a person is asked about first. */
    this.asked = "";
    this.abort = smallButton("Don't wait: abort it", () => actions.abort(this.waitedFor));
    this.goOn = smallButton("Don't pause: go on", actions.goOn);
    this.stay = smallButton("Keep it paused", actions.stay);
    this.look = smallButton("Look", () => actions.look(this.asked));
    this.lost = new Notice("lost");
    this.refused = new Notice("failed", smallButton("Close", actions.dismiss));
    this.needs = new Notice("needs_you", this.look);
    this.late = new Notice("pausing", this.abort, this.goOn);
    this.paused = new Notice("paused", this.stay);
    this.refused.element.classList.add("refused");
    this.element = el("div", { class: "lines" });
    for (const line of [this.lost, this.refused, this.needs, this.late, this.paused]) this.element.append(line.element);
  }

  /**
   * @param {RunView} view
   * @param {RunStore} live
   * @param {VerbSender} sender
   * @param {boolean} [maySteer] whether a person may do something about it
   */
  show(view, live, sender, maySteer = true) {
    const isLive = live.state === "live";
    this.lost.say(isLive ? "" : lostWords(live, sender));
    this.refused.say(sender.refusal);
    this.asked = firstAsked(view);
    this.needs.say(isLive ? needsWords(view) : "");
    this.look.hidden = this.asked === "";
    this.#showLate(view, live, sender);
    this.#showPaused(view, isLive);
    if (maySteer) return;
    for (const button of [this.abort, this.goOn, this.stay]) button.hidden = true;
  }

  /** @param {RunView} view @param {RunStore} live @param {VerbSender} sender */
  #showLate(view, live, sender) {
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
    const isAsked = this.waitedFor.some(({ id }) => sender.asked("abort", id) !== null);
    mark(this.abort, "aria-busy", isAsked ? "true" : null);
    mark(this.abort, "aria-disabled", isAsked ? "true" : null);
    mark(this.goOn, "aria-disabled", sender.asked("resume") ? "true" : null);
  }

  /** @param {RunView} view @param {boolean} isLive */
  #showPaused(view, isLive) {
    const isPaused = isLive && view.status === "paused";
    this.paused.say(isPaused ? pausedWords(view) : "");
    this.stay.hidden = view.controls.pause?.enabled !== true;
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

/** @param {RunStore} live @param {VerbSender} sender */
function lostWords(live, sender) {
  const pending = sender.pending().map(capital);
  const still = pending.length ? ` ${listed(pending)} was asked for and is asked again until there is an answer.` : "";
  if (live.problem !== null) return `Not connected: ${live.problem.message} Trying again.${still}`;
  const seconds = (Date.now() - live.heardAt) / 1000;
  return `Connection lost ${goingOn(seconds)} ago. What the run does now is not known here; connecting again.${still}`;
}

/** The questions of a run, those that it waits for first. @param {RunView} view */
function questionsOf(view) {
  const approvals = view.approvals.map(({ call, name, headline, blocks }) => ({
    call, blocks, text: headline && headline !== name ? `May it use ${name}: ${headline}?` : `May it use ${name}?`,
  }));
  const doubts = view.doubts.map(({ call, name, blocks }) => ({ call, blocks, text: `Did ${name} happen?` }));
  return [...approvals, ...doubts].sort((one, other) => Number(one.blocks === false) - Number(other.blocks === false));
}

/** @param {RunView} view */
function firstAsked(view) {
  return isWaiting(view) ? questionsOf(view)[0]?.call ?? "" : "";
}

/** @param {RunView} view */
function isWaiting(view) {
  return (view.status === "running" || view.status === "paused") && view.waiting.length > 0;
}

/** @param {RunView} view */
function needsWords(view) {
  if (!isWaiting(view)) return "";
  const asked = questionsOf(view);
  const mends = view.waiting.filter(({ kind }) => kind !== "approval" && kind !== "in_doubt");
  const first = asked[0] ? [asked[0].text] : [];
  const others = asked.length - 1 + (view.more_approvals ?? 0);
  const more = others > 0 ? [`${counted(others, "more question")}.`] : [];
  const needs = mends.map(({ what, remedy }) => `Needs you: ${sentence(what)}${remedy ? ` ${sentence(capital(remedy))}` : ""}`);
  return [...needs, ...first, ...more].join(" ");
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
