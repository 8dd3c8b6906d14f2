// @ts-check
/**
 * The one sender of verbs in a page: what somebody asks of a run, and again until there is an answer.
 *
 * Every request carries a `request_id`, the same each time it is repeated: by it the server knows a repeat, does nothing
 * twice and gives the first answer.
 *
 * Nothing here changes what is shown as the state of the run. What was asked counts as asked until the server's own
 * view has caught up with the answer, and not a moment longer.
 */
import { ApiError, newRequestId } from "./api.js";
import { ENDED } from "../lib/types.js";

/** @import { Api } from "./api.js" */
/** @import { RunStore } from "./run_store.js" */
/** @import { Control } from "../lib/types.js" */

/** How long the server may take for a receipt before it answers with what it waits for. The view says the rest. */
const WAIT_SECONDS = 2;
const AGAIN_MS = 400;
const AGAIN_MS_MOST = 4_000;
const CATCH_UP_MS = 2_000;

/** @typedef {"approve" | "deny" | "resolve" | "check" | "abort" | "retry_undo"} Decision about a single call */
/** @typedef {Control | "reason" | Decision} Verb */

/** @typedef {{ since: number, isRepeated: boolean, call: string }} Asked `since` is in milliseconds of this clock */
/**
 * `refusal` is a sentence and `code` its stable word; both are empty where it was taken.
 * @typedef {{ isTaken: boolean, refusal: string, code: string }} Answer
 */

/** @type {Answer} */
const UNDER_WAY = { isTaken: false, refusal: "", code: "" };

export class VerbSender extends EventTarget {
  /** By the verb, and the call that it is about. In the order in which they were asked. @type {Map<string, Asked>} */
  #asked = new Map();
  #closed = false;

  /** @param {RunStore} live */
  constructor(live) {
    super();
    this.live = live;
    /** What the server said to the last thing it refused; empty after the next one. */
    this.refusal = "";
    /** Whether the server has said that whoever asks may not. */
    this.isForbidden = false;
  }

  /**
   * What was asked and is not answered, or not seen in the view yet.
   * @param {Verb} verb
   * @param {string} [call] the call that it is about
   */
  asked(verb, call = "") {
    return this.#asked.get(keyOf(verb, call)) ?? null;
  }

  /** The verbs that were asked and are not answered. @returns {string[]} */
  pending() {
    return [...this.#asked.keys()].map((key) => key.replace(/ .*/, "").replace("_", " "));
  }

  /** What is not answered by now is not asked again. */
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
   * @param {{ instruction?: string, when?: string, question?: string, wait?: number }} [body]
   * @returns {Promise<Answer>}
   */
  async verb(verb, body = {}) {
    const guarded = verb === "resume" || verb === "redirect";
    const seen = guarded && this.live.view ? { expected_seq: this.live.view.status_seq } : {};
    return this.#ask(verb, "", `/${verb}`, { wait: WAIT_SECONDS, ...body, ...seen });
  }

  /**
   * Decide about a single call.
   * @param {Decision} decision
   * @param {string} call
   * @param {object} [body]
   * @returns {Promise<Answer>}
   */
  async decide(decision, call, body = {}) {
    return this.#ask(decision, call, `/calls/${encodeURIComponent(call)}/${decision}`, body);
  }

  /**
   * Say why it was stopped.
   * @param {string} reason
   * @returns {Promise<Answer>}
   */
  async reason(reason) {
    return this.#ask("reason", "", "/reason", { reason });
  }

  /**
   * @param {Verb} verb
   * @param {string} call
   * @param {string} path
   * @param {object} body
   * @returns {Promise<Answer>}
   */
  async #ask(verb, call, path, body) {
    const key = keyOf(verb, call);
    if (this.#asked.has(key)) return UNDER_WAY;
    const before = this.live.view?.seq ?? 0;
    this.refusal = "";
    this.#asked.set(key, { since: Date.now(), isRepeated: false, call });
    this.#tell();
    try {
      const url = `/api/runs/${encodeURIComponent(this.live.runId)}${path}`;
      const answer = await this.#insist(key, url, { ...body, request_id: newRequestId() });
      await this.#seen(typeof answer?.seq === "number" ? answer.seq : before + 1);
      return { isTaken: true, refusal: "", code: "" };
    } catch (error) {
      return { isTaken: false, refusal: this.#refuse(error), code: error instanceof ApiError ? error.code : "" };
    } finally {
      this.#asked.delete(key);
      this.#tell();
    }
  }

  /**
   * @param {string} key
   * @param {string} url
   * @param {object} body the same each time
   * @returns {Promise<any>}
   */
  async #insist(key, url, body) {
    for (let pause = AGAIN_MS; ; pause = Math.min(2 * pause, AGAIN_MS_MOST)) {
      /** @type {unknown} */
      let failure;
      try {
        return await this.live.api.post(url, body);
      } catch (error) {
        if (!(error instanceof ApiError) || !error.isUnanswered) throw error;
        failure = error;
      }
      const asked = this.#asked.get(key);
      if (asked) this.#asked.set(key, { ...asked, isRepeated: true });
      this.#tell();
      await new Promise((resolve) => setTimeout(resolve, pause));
      if (this.#closed || this.#isOverruled(key)) throw failure;
    }
  }

  /** Whether something else was decided about the same call since: the last word of a person counts. @param {string} key */
  #isOverruled(key) {
    const all = [...this.#asked];
    const at = all.findIndex(([other]) => other === key);
    const call = all[at]?.[1].call;
    return Boolean(call) && all.slice(at + 1).some(([, later]) => later.call === call);
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

  /** @param {unknown} error @returns {string} what to say about it */
  #refuse(error) {
    this.refusal = error instanceof ApiError ? error.message : String(error);
    if (error instanceof ApiError && error.status === 403 && error.code === "forbidden") this.isForbidden = true;
    return this.refusal;
  }

  #tell() {
    this.dispatchEvent(new Event("change"));
  }
}

/** @param {Verb} verb @param {string} call */
function keyOf(verb, call) {
  return call ? `${verb} ${call}` : verb;
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
