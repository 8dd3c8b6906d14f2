// @ts-check
/**
 * What every panel of a run shares: where the run comes from, a frame with a heading, and buttons that ask the server
 * for something and say what became of it.
 *
 * A panel names the fields of the view that it draws. `draw` is called at most once per animation frame, and only when
 * one of them has changed; `tick` a few times a second while time passes in the run.
 */

import { el, say } from "./dom.js";
import { pausesOf, without } from "./pauses.js";
import { plain } from "./plain.js";
import { span } from "./times.js";

/** @typedef {import("./api.js").Api} Api */
/** @typedef {import("./live.js").LiveRun} LiveRun */
/** @typedef {import("./types.js").RunView} RunView */

export class Context {
  /**
   * @param {Api} api
   * @param {LiveRun} live
   * @param {string} id
   * @param {string} base where the server's pages begin, without a slash at the end
   */
  constructor(api, live, id, base) {
    this.api = api;
    this.live = live;
    this.id = id;
    this.base = base;
    /** What whoever looks may do, such as `see steer`; null: not known. @type {string | null} */
    this.may = null;
    /** Shows a call in the list of calls. @type {(call: string) => void} */
    this.open = () => {};
  }

  /** Whether whoever looks may also steer. The server decides; this only spares them a refusal. */
  get maySteer() {
    return this.may === null || this.may.split(" ").includes("steer");
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
 * A button that asks for something. While that is under way it cannot be pressed again; what went wrong is said beside.
 * @param {string} label
 * @param {string} consequence
 * @param {() => Promise<unknown>} ask
 * @param {string} [kind]
 */
export function asking(label, consequence, ask, kind = "") {
  const trouble = el("span", { class: "trouble", role: "alert" });
  const button = el(
    "button",
    { type: "button", class: `asking ${kind}`.trim(), onclick: press },
    el("b", null, label),
    consequence ? el("span", null, plain(consequence)) : null,
  );
  let isUnderWay = false;
  async function press() {
    if (isUnderWay) return;
    isUnderWay = true;
    button.setAttribute("aria-busy", "true");
    trouble.textContent = "";
    try {
      await ask();
    } catch (error) {
      say(trouble, message(error));
    } finally {
      isUnderWay = false;
      button.removeAttribute("aria-busy");
    }
  }
  return { button, trouble, press };
}

/** What went wrong, in words. @param {unknown} error */
export function message(error) {
  return error instanceof Error && error.message ? error.message : "That did not work. Try it again.";
}
