// @ts-check
/**
 * A run that is looked at now and then, with the face of a `LiveRun`.
 *
 * For sub-runs: a browser opens only a handful of connections to a server, and a page that held one for each sub-run
 * would leave none for the stop button.
 */

import { ApiError } from "./api.js";
import { ChangeEvent } from "./live.js";
import { emptyView, ENDED } from "./types.js";

const EVERY_MS = 1_000;
const PATIENCE = 3;

export class PolledRun extends EventTarget {
  #isOpen = false;
  #failures = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #next;

  /**
   * @param {import("./api.js").Api} api
   * @param {string} runId
   */
  constructor(api, runId) {
    super();
    this.api = api;
    this.runId = runId;
    /** @type {import("./types.js").RunView | null} */
    this.view = null;
    /** @type {import("./live.js").LiveState} */
    this.state = "connecting";
    /** @type {ApiError | null} */
    this.problem = null;
    this.skew = 0;
    this.heardAt = Date.now();
    /** @type {Map<string, import("./live.js").LiveText>} */
    this.texts = new Map();
  }

  now() {
    return Date.now() / 1000 + this.skew;
  }

  elapsed() {
    if (this.view === null) return 0;
    const since = this.view.ticking && this.state === "live" ? Math.max(0, this.now() - this.view.at) : 0;
    return this.view.elapsed_seconds + since;
  }

  open() {
    if (this.#isOpen) return;
    this.#isOpen = true;
    void this.#look();
  }

  close() {
    this.#isOpen = false;
    clearTimeout(this.#next);
  }

  reconnect() {
    if (!this.#isOpen) return;
    clearTimeout(this.#next);
    void this.#look();
  }

  async #look() {
    try {
      const told = await this.api.get(`/api/runs/${encodeURIComponent(this.runId)}`);
      if (this.#isOpen) this.#take(told);
      this.#failures = 0;
    } catch (error) {
      this.#failures += 1;
      this.problem = error instanceof ApiError && error.status !== 0 ? error : null;
      if (this.#isOpen && (this.#failures >= PATIENCE || this.problem)) this.#become("lost");
    }
    if (this.#isOpen) this.#next = setTimeout(() => void this.#look(), this.#wait());
  }

  /** What has ended is looked at less often: a reason or an undo may still come. */
  #wait() {
    const isOver = this.view !== null && ENDED.has(this.view.status);
    return EVERY_MS * (isOver || document.visibilityState === "hidden" ? 10 : 1);
  }

  /** @param {any} told */
  #take(told) {
    const { calls = [], ...rest } = told;
    const isSame = this.view !== null && this.view.seq === rest.seq && this.view.ticking === rest.ticking;
    const view = Object.assign(emptyView(), rest);
    for (const call of calls) view.calls.set(call.id, call);
    this.view = view;
    this.heardAt = Date.now();
    this.skew = view.at - Date.now() / 1000;
    this.problem = null;
    const wasLive = this.state === "live";
    this.#become("live");
    if (isSame && wasLive) return;
    this.dispatchEvent(new ChangeEvent(new Set(Object.keys(view)), new Set(view.calls.keys()), true));
  }

  /** @param {import("./live.js").LiveState} state */
  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }
}
