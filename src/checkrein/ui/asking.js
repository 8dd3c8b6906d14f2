// @ts-check
/**
 * Asking verbs of a run: each under a name of its own, and again under the same name until there is an answer.
 *
 * Nothing here changes what is shown as the state of the run. What was asked counts as asked until the server's own
 * view has caught up with the answer, and not a moment longer.
 */
import { ApiError, newRequestId } from "./api.js";
import { ENDED } from "./types.js";

/** @import { Api } from "./api.js" */
/** @import { LiveRun } from "./live.js" */
/** @import { Control } from "./types.js" */

/** How long the server may take for a receipt before it answers with what it waits for. The view says the rest. */
const WAIT_SECONDS = 2;
const AGAIN_MS = 400;
const AGAIN_MS_MOST = 4_000;
const CATCH_UP_MS = 2_000;

/** @typedef {{ since: number, isRepeated: boolean }} Asked `since` is in milliseconds of this clock */

export class Asking extends EventTarget {
  /** @type {Map<string, Asked>} */
  #asked = new Map();
  #closed = false;

  /** @param {LiveRun} live */
  constructor(live) {
    super();
    this.live = live;
    /** What the server said to the last thing it refused; empty after the next one. */
    this.refusal = "";
    /** Whether the server has said that whoever asks may not. */
    this.isForbidden = false;
  }

  /** What was asked and is not answered, or not seen in the view yet. @param {string} verb */
  asked(verb) {
    return this.#asked.get(verb) ?? null;
  }

  /** @returns {Iterable<[string, Asked]>} */
  all() {
    return this.#asked;
  }

  close() {
    this.#closed = true;
  }

  /** Something else was refused. @param {unknown} error */
  refuse(error) {
    this.#refuse(error);
    this.#tell();
  }

  forgetRefusal() {
    if (this.refusal === "") return;
    this.refusal = "";
    this.#tell();
  }

  /**
   * @param {Control} verb
   * @param {{ instruction?: string, when?: string }} [body]
   * @returns {Promise<boolean>} whether it was taken
   */
  async verb(verb, body = {}) {
    const guarded = verb === "resume" || verb === "redirect";
    const seen = guarded && this.live.view ? { expected_seq: this.live.view.status_seq } : {};
    return this.#ask(verb, `/${verb}`, { ...body, ...seen, request_id: newRequestId(), wait: WAIT_SECONDS });
  }

  /**
   * Abort one call, instead of waiting for it.
   * @param {string} call
   */
  async abort(call) {
    return this.#ask(`abort ${call}`, `/calls/${encodeURIComponent(call)}/abort`, {});
  }

  /**
   * @param {string} effect
   */
  async retryUndo(effect) {
    return this.#ask(`retry ${effect}`, `/calls/${encodeURIComponent(effect)}/retry_undo`, {});
  }

  /**
   * @param {string} reason
   */
  async reason(reason) {
    return this.#ask("reason", "/reason", { reason });
  }

  /**
   * @param {string} what
   * @param {string} path
   * @param {object} body
   */
  async #ask(what, path, body) {
    if (this.#asked.has(what)) return false;
    const before = this.live.view?.seq ?? 0;
    this.refusal = "";
    this.#asked.set(what, { since: Date.now(), isRepeated: false });
    this.#tell();
    try {
      const answer = await this.#insist(what, `/api/runs/${encodeURIComponent(this.live.runId)}${path}`, body);
      await this.#seen(typeof answer?.seq === "number" ? answer.seq : before + 1);
      return true;
    } catch (error) {
      this.#refuse(error);
      return false;
    } finally {
      this.#asked.delete(what);
      this.#tell();
    }
  }

  /**
   * @param {string} what
   * @param {string} path
   * @param {object} body
   * @returns {Promise<any>}
   */
  async #insist(what, path, body) {
    for (let pause = AGAIN_MS; ; pause = Math.min(2 * pause, AGAIN_MS_MOST)) {
      try {
        return await this.live.api.post(path, body);
      } catch (error) {
        if (!(error instanceof ApiError) || !error.isUnanswered || this.#closed) throw error;
      }
      this.#asked.set(what, { since: this.#asked.get(what)?.since ?? Date.now(), isRepeated: true });
      this.#tell();
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  /**
   * Wait, but not for long, until the view is as new as the answer: otherwise a button would jump back for a moment.
   * @param {number} seq
   */
  async #seen(seq) {
    const isSeen = () => (this.live.view?.seq ?? 0) >= seq || ENDED.has(this.live.view?.status ?? "queued");
    if (isSeen()) return;
    await new Promise((resolve) => {
      const done = () => {
        clearTimeout(late);
        this.live.removeEventListener("change", look);
        resolve(undefined);
      };
      const look = () => isSeen() && done();
      const late = setTimeout(done, CATCH_UP_MS);
      this.live.addEventListener("change", look);
    });
  }

  /** @param {unknown} error */
  #refuse(error) {
    this.refusal = error instanceof ApiError ? error.message : String(error);
    if (error instanceof ApiError && error.status === 403 && error.code === "forbidden") this.isForbidden = true;
  }

  #tell() {
    this.dispatchEvent(new Event("change"));
  }
}

/**
 * Begin a new run that goes on where one has ended. Not repeated by itself: it would be begun twice.
 * @param {Api} api
 * @param {{ id: string, agent: string }} ended
 * @param {string} goal
 * @returns {Promise<string>} the id of the new run
 */
export async function continueFrom(api, ended, goal) {
  const made = await api.post("/api/runs", { agent: ended.agent, goal, continues: ended.id });
  return made.id;
}
