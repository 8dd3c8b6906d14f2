// @ts-check
/**
 * One run as it happens: its view, kept whole from patches, and the text of its calls as it streams. How it hears of
 * the run is the transport's business.
 *
 * It connects again by itself for as long as it is open. Whoever looks at `view` while `state` is not `live` looks at
 * something old, and should say so.
 */
import { ApiError } from "./api.js";
import { streamingOrPolling } from "./transports.js";
import { emptyView } from "../lib/types.js";

/** @import { Api } from "./api.js" */
/** @import { Told, Transport } from "./transports.js" */
/** @import { RunView } from "../lib/types.js" */

/** @typedef {"connecting" | "live" | "lost"} LiveState */
/** @typedef {{ attempt: number, text: string }} LiveText */

const FIRST_WAIT_MS = 150;
const LONGEST_WAIT_MS = 5_000;

/** The view has changed. */
class ChangeEvent extends Event {
  /**
   * @param {Set<string>} fields the top-level fields of the view that changed
   * @param {Set<string>} calls the ids of the calls that changed
   * @param {boolean} whole everything was told anew
   */
  constructor(fields, calls, whole) {
    super("change");
    this.detail = fields;
    this.calls = calls;
    this.whole = whole;
  }
}

export class RunStore extends EventTarget {
  #open = false;
  /** @type {AbortController | null} */
  #connection = null;
  #waitMs = FIRST_WAIT_MS;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #retry;
  /** @type {Map<string, { attempt: number, text: string, points: number }>} */
  #texts = new Map();
  #wake = () => this.#reconnectNow();

  /**
   * @param {Api} api
   * @param {string} runId
   * @param {Transport} transport
   */
  constructor(api, runId, transport = streamingOrPolling) {
    super();
    this.api = api;
    this.runId = runId;
    this.transport = transport;
    /** @type {RunView | null} null until the first view has come */
    this.view = null;
    /** @type {LiveState} */
    this.state = "connecting";
    /** @type {ApiError | null} why there is no connection, where the server said why */
    this.problem = null;
    /** How far the server's clock is ahead of this one, in seconds. */
    this.skew = 0;
    /** When it was heard from last, in milliseconds of this clock. */
    this.heardAt = Date.now();
  }

  /** @returns {ReadonlyMap<string, LiveText>} what has streamed of each call */
  get texts() {
    return this.#texts;
  }

  /** The time by the server's clock, in seconds. */
  now() {
    return Date.now() / 1000 + this.skew;
  }

  /**
   * Whether a verb that is never stale, such as cancel, can be sent although nothing is heard: the server answers, if
   * only that it has no room, and not that whoever asks may not.
   */
  get answers() {
    if (this.state === "live") return true;
    const status = this.problem?.status ?? 0;
    return status === 429 || status >= 500;
  }

  /** How long the run has been at work. */
  elapsed() {
    if (this.view === null) return 0;
    return this.state === "live" ? elapsedAt(this.view, this.now()) : this.view.elapsed_seconds;
  }

  open() {
    if (this.#open) return;
    this.#open = true;
    globalThis.addEventListener("online", this.#wake);
    document.addEventListener("visibilitychange", this.#wake);
    void this.#connect();
  }

  close() {
    this.#open = false;
    globalThis.removeEventListener("online", this.#wake);
    document.removeEventListener("visibilitychange", this.#wake);
    clearTimeout(this.#retry);
    this.#connection?.abort();
    this.#connection = null;
  }

  /** Connect anew, for example with another token. */
  reconnect() {
    if (!this.#open) return;
    this.#waitMs = FIRST_WAIT_MS;
    clearTimeout(this.#retry);
    this.#connection?.abort();
    void this.#connect();
  }

  #reconnectNow() {
    if (this.state === "lost" && this.#connection === null && document.visibilityState === "visible") this.reconnect();
  }

  // -- the connection

  async #connect() {
    const connection = new AbortController();
    this.#connection = connection;
    try {
      for await (const told of this.transport(this.api, this.runId, connection.signal)) {
        if (this.#connection !== connection) return;
        this.heardAt = Date.now();
        this.#take(told);
      }
      this.#lost(connection, null);
    } catch (error) {
      this.#lost(connection, error instanceof ApiError && error.status !== 0 ? error : null);
    }
  }

  /**
   * @param {AbortController} connection
   * @param {ApiError | null} problem
   */
  #lost(connection, problem) {
    if (this.#connection !== connection) return;
    this.#connection = null;
    if (!this.#open) return;
    // Jitter, so that not every page of a server that comes back asks in the same moment.
    const wait = this.#waitMs * (0.5 + Math.random());
    this.#waitMs = Math.min(2 * this.#waitMs, LONGEST_WAIT_MS);
    this.#retry = setTimeout(() => void this.#connect(), wait);
    this.#setState("lost", problem);
  }

  /**
   * @param {LiveState} state
   * @param {ApiError | null} problem
   */
  #setState(state, problem = null) {
    const changed = state !== this.state || problem?.code !== this.problem?.code;
    this.state = state;
    this.problem = problem;
    if (changed) this.dispatchEvent(new Event("state"));
  }

  // -- what it says

  /** @param {Told[]} told */
  #take(told) {
    /** @type {Set<string>} */
    const fields = new Set();
    /** @type {Set<string>} */
    const calls = new Set();
    let whole = false;
    const tell = () => {
      if (fields.size) this.dispatchEvent(new ChangeEvent(new Set(fields), new Set(calls), whole));
      fields.clear();
      calls.clear();
      whole = false;
    };
    for (const { type, data } of told) {
      if (type === "view") {
        whole = this.#takeView(data, fields, calls) || whole;
      } else if (type === "call.chunk") {
        tell();
        this.#takeChunk(data);
      }
    }
    tell();
  }

  /**
   * @param {any} frame
   * @param {Set<string>} fields
   * @param {Set<string>} calls
   * @returns {boolean} whether it was the whole view
   */
  #takeView(frame, fields, calls) {
    const whole = frame.whole === true || this.view === null;
    const before = this.view;
    const view = whole || before === null ? emptyView() : { ...before };
    const { whole: _, calls: briefs = [], from: kept = {}, ...changes } = frame;
    // Of a long list only its changed end is sent, and how many items before it stay.
    const known = /** @type {any} */ (before ?? {});
    for (const name of Object.keys(kept)) changes[name] = known[name].slice(0, kept[name]).concat(changes[name]);
    Object.assign(view, changes);
    if (!whole && !("elapsed_seconds" in changes) && before !== null) {
      view.elapsed_seconds = elapsedAt(before, view.at);
    }
    for (const call of briefs) {
      view.calls.set(call.id, call);
      calls.add(call.id);
    }
    this.view = view;
    this.#meetClock(view.at, whole);
    for (const name of whole ? Object.keys(view) : Object.keys(changes)) fields.add(name);
    if (calls.size) fields.add("calls");
    if (this.state !== "live") {
      this.#waitMs = FIRST_WAIT_MS;
      this.#setState("live");
    }
    return whole;
  }

  /**
   * The quickest message says most about the other clock.
   * @param {number} at
   * @param {boolean} anew
   */
  #meetClock(at, anew) {
    const ahead = at - Date.now() / 1000;
    this.skew = anew ? ahead : Math.max(this.skew, ahead);
  }

  /** @param {{ call: string, attempt?: number, offset: number, text: string }} chunk */
  #takeChunk({ call, attempt = 1, offset, text }) {
    let known = this.#texts.get(call);
    if (known !== undefined && attempt < known.attempt) return;
    if (known === undefined || attempt > known.attempt) {
      known = { attempt, text: "", points: 0 };
      this.#texts.set(call, known);
    }
    // The server counts characters, a string here counts halves of some of them.
    const points = Array.from(text);
    const more = points.slice(Math.max(0, known.points - offset));
    if (more.length === 0) return;
    const added = more.join("");
    known.text += added;
    known.points += more.length;
    this.dispatchEvent(new CustomEvent("text", { detail: { call, attempt, text: added } }));
  }
}

/**
 * @param {RunView} view
 * @param {number} at
 */
function elapsedAt(view, at) {
  return view.elapsed_seconds + (view.ticking ? Math.max(0, at - view.at) : 0);
}
