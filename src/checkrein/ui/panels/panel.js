// @ts-check
/**
 * What every panel of a run shares: where the run comes from, a frame with a heading, and buttons that decide
 * about a call and say what became of it.
 *
 * A panel names the fields of the view that it draws. `draw` is called at most once per animation frame, and only when
 * one of them has changed; `tick` a few times a second while time passes in the run.
 */

import { el, mark, say } from "../lib/dom.js";
import { span } from "../lib/time.js";
import { VerbSender } from "../connection/verbs.js";
import { voiced } from "../lib/voice.js";
import { pausesOf, without } from "./timeline/timeline_time.js";

/** @typedef {import("../connection/api.js").Api} Api */
/** @typedef {import("../connection/run_store.js").RunStore} RunStore */
/** @typedef {import("../lib/types.js").RunView} RunView */
/** @typedef {import("../connection/verbs.js").Answer} Answer */
/** @typedef {import("../connection/verbs.js").Asked} Asked */
/** @typedef {import("../connection/verbs.js").Decision} Decision */

const NO_ANSWER = "There is no answer; it is asked again.";

export class Context {
  /**
   * @param {Api} api
   * @param {RunStore} live
   * @param {string} id
   * @param {string} base where the server's pages begin, without a slash at the end
   */
  constructor(api, live, id, base) {
    this.api = api;
    this.live = live;
    this.sender = new VerbSender(live);
    this.id = id;
    this.base = base;
    /** What whoever looks may do, such as `see steer`; null: not known. @type {string | null} */
    this.may = null;
    /** Shows a call in the list of calls. @type {(call: string) => void} */
    this.open = () => {};
    /** Shows another run, unless the page around wants it otherwise. @type {(run: string) => void} */
    this.goTo = () => {};
  }

  /** Whether whoever looks may also steer. The server decides; this only spares them a refusal. */
  get maySteer() {
    return this.may === null || this.may.split(" ").includes("steer");
  }

  /** Whether whoever looks may also begin runs. */
  get mayStart() {
    return this.may === null || this.may.split(" ").includes("start");
  }

  /** The time of the server, in seconds. */
  now() {
    return this.live.now();
  }

  /**
   * How long something took, or takes already. What is frozen by a pause does not work meanwhile; questions and undos
   * are not stopped by one.
   * @param {{ started_at?: number | null, finished_at?: number | null, kind?: string }} thing
   */
  lasted({ started_at: from, finished_at: to, kind }) {
    if (from == null) return "";
    const pauses = kind === "ask" || kind === "undo" ? [] : pausesOf(this.live.view);
    const worked = without(from, Math.max(from, to ?? this.now()), pauses).reduce((sum, one) => sum + one.to - one.from, 0);
    return span(worked, to != null);
  }

  /** @param {string} rest */
  path(rest) {
    return `/api/runs/${encodeURIComponent(this.id)}${rest}`;
  }

  /** @param {string} call @param {string} [rest] */
  callPath(call, rest = "") {
    return this.path(`/calls/${encodeURIComponent(call)}${rest}`);
  }

  /** @param {string} run */
  runUrl(run) {
    return `${this.base}/runs/${encodeURIComponent(run)}`;
  }

  /** @param {string} thread */
  threadUrl(thread) {
    return `${this.base}/?thread=${encodeURIComponent(thread)}`;
  }
}

let made = 0;

/** An id that nothing else in the page has. @param {string} name */
export function fresh(name) {
  made += 1;
  return `${name}-${made}`;
}

export class Panel {
  /** The fields of the view that are drawn here. @type {readonly string[]} */
  static needs = [];

  /**
   * @param {Context} context
   * @param {string} title
   * @param {string} name a word for styles and tests
   */
  constructor(context, title, name) {
    this.context = context;
    const id = fresh("h");
    this.heading = el("h2", { id }, title);
    this.head = el("div", { class: "head" }, this.heading);
    this.body = el("div", { class: "body" });
    this.element = el("section", { class: `panel ${name}`, "aria-labelledby": id }, this.head, this.body);
  }

  /** Where there is little room it shows its heading alone, until somebody wants to see it. */
  foldOnPhones() {
    this.fold = el("button", { type: "button", class: "quiet fold", onclick: () => this.unfold(!this.#isUnfolded) }, "Show");
    this.fold.append(el("span", { class: "unseen" }, ` ${this.heading.textContent}`));
    this.head.append(this.fold);
    this.unfold(false);
  }

  #isUnfolded = true;

  unfold(isUnfolded = true) {
    this.#isUnfolded = isUnfolded;
    this.element.toggleAttribute("data-folded", !isUnfolded);
    if (!this.fold) return;
    mark(this.fold, "aria-expanded", String(isUnfolded));
    /** @type {Text} */ (this.fold.firstChild).data = isUnfolded ? "Hide" : "Show";
  }

  get needs() {
    return /** @type {typeof Panel} */ (this.constructor).needs;
  }

  /** @param {RunView} _view @param {ReadonlySet<string>} _changed */
  draw(_view, _changed) {}

  /** @param {number} _now the server's time in seconds */
  tick(_now) {}

  /** @param {boolean} isShown */
  show(isShown) {
    if (this.element.hidden === isShown) this.element.hidden = !isShown;
  }
}

/**
 * `takes` says whether a click counts, `answered` is told what became of it, `hint` is the key that does the same.
 * @typedef {{ label: string, consequence?: string, kind?: string, body?: () => object, hint?: string,
 *   takes?: (event: Event) => boolean, answered?: (answer: Answer) => void }} Made
 */

/**
 * A button that decides about a call. While that is under way it cannot be pressed again; that it is asked again, or
 * what was refused, is said beside. The second click of a double click is not taken.
 * @param {VerbSender} sender
 * @param {Decision} decision
 * @param {string} call
 * @param {Made} made
 */
export function decisionButton(sender, decision, call, made) {
  const { label, consequence = "", kind = "", body = () => ({}), hint = "", takes = isSingle, answered } = made;
  const trouble = el("span", { class: "trouble", role: "alert" });
  const button = el(
    "button",
    {
      type: "button",
      class: `decision ${kind}`.trim(),
      "aria-keyshortcuts": hint || null,
      onclick: (/** @type {Event} */ event) => void (takes(event) && press()),
    },
    el("b", null, label, hint && " ", hint && el("kbd", { "aria-hidden": "true" }, hint)),
    consequence ? el("span", null, ...voiced(consequence)) : null,
  );
  const press = () =>
    showAsked(sender, () => sender.asked(decision, call), button, trouble, async () => {
      const answer = await sender.decide(decision, call, body());
      answered?.(answer);
      return answer;
    });
  return { button, trouble };
}

/** @param {Event} event */
function isSingle(event) {
  return !(event instanceof UIEvent && event.detail > 1);
}

/**
 * Ask something, unless it is asked already, and show how that goes.
 * @param {VerbSender} sender
 * @param {() => Asked | null} asked
 * @param {HTMLElement} busy what cannot be used meanwhile
 * @param {HTMLElement} trouble where it is said that it is asked again, or what was refused
 * @param {() => Promise<Answer>} send
 * @returns {Promise<boolean>} whether it was taken
 */
export async function showAsked(sender, asked, busy, trouble, send) {
  if (asked() !== null) return false;
  const show = () => {
    mark(busy, "aria-busy", asked() ? "true" : null);
    say(trouble, asked()?.isRepeated ? NO_ANSWER : "");
  };
  sender.addEventListener("change", show);
  const { isTaken, refusal } = await send();
  sender.removeEventListener("change", show);
  say(trouble, refusal);
  return isTaken;
}

/** What went wrong, in words. @param {unknown} error */
export function message(error) {
  return error instanceof Error && error.message ? error.message : "That did not work. Try it again.";
}
