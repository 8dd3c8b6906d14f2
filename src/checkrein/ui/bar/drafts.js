// @ts-check
/**
 * What a person has begun to write, kept for this tab: over every change of the run, and over a reload.
 *
 * Only `drop` loses a draft, and that is called when it was sent and taken.
 */

/** @typedef {"redirect" | "resume" | "continue"} Purpose */

export class Drafts {
  /** @type {Map<string, string>} what is kept where the browser keeps nothing */
  #here = new Map();

  /** @param {string} runId */
  constructor(runId) {
    this.runId = runId;
  }

  /** @param {Purpose} purpose @returns {string | null} */
  get(purpose) {
    return this.#read(`draft.${purpose}`);
  }

  /** @param {Purpose} purpose @param {string} text */
  keep(purpose, text) {
    this.#write(`draft.${purpose}`, text);
  }

  /** @param {Purpose} purpose */
  drop(purpose) {
    this.#write(`draft.${purpose}`, null);
  }

  /** Which composer was open when the page was left. @returns {Purpose | null} */
  get open() {
    return /** @type {Purpose | null} */ (this.#read("open"));
  }

  set open(purpose) {
    this.#write("open", purpose);
  }

  /** Whether the stop of this run was asked for here. */
  get stoppedHere() {
    return this.#read("stopped") !== null;
  }

  set stoppedHere(yes) {
    this.#write("stopped", yes ? "here" : null);
  }

  /** @param {string} name */
  #read(name) {
    const key = `checkrein.${this.runId}.${name}`;
    try {
      return sessionStorage.getItem(key);
    } catch {
      return this.#here.get(key) ?? null; // a page may be forbidden to keep anything
    }
  }

  /** @param {string} name @param {string | null} text */
  #write(name, text) {
    const key = `checkrein.${this.runId}.${name}`;
    try {
      if (text === null) sessionStorage.removeItem(key);
      else sessionStorage.setItem(key, text);
    } catch {
      if (text === null) this.#here.delete(key);
      else this.#here.set(key, text);
    }
  }
}
