// @ts-check
/** Runs that somebody has ticked in the list, and the one thing to do with all of them: stop them, each by its own cancel. */

import { newRequestId } from "../connection/api.js";
import { el, mark, say } from "../lib/dom.js";
import { oneLine } from "../lib/escape.js";
import { milliseconds } from "../lib/time.js";
import { ENDED } from "../lib/types.js";
import { counted, wordFor } from "../lib/words.js";
import { message } from "../panels/panel.js";

/** @typedef {import("../lib/types.js").RunRow} RunRow */

const WAIT_SECONDS = 5;

export class RunSelection {
  /** @type {Map<string, RunRow>} */
  #chosen = new Map();
  #count = el("span", { class: "chosen" });
  #results = el("ul", { class: "rows results", role: "status", hidden: true });
  #stop = el("button", { type: "button", class: "stop-all" });
  #none = el("button", { type: "button", class: "quiet", onclick: () => this.#clear() }, "Choose none");

  /**
   * @param {import("../connection/api.js").Api} api
   * @param {() => void} changed
   */
  constructor(api, changed) {
    this.api = api;
    this.changed = changed;
    this.#stop.addEventListener("click", (event) => {
      if (event.detail <= 1 && this.#stop.ariaBusy !== "true") void this.#cancelAll();
    });
    this.bar = el("div", { class: "chosen-bar" }, this.#count, this.#stop, this.#none);
    this.element = el("div", { class: "panel selection", hidden: true, role: "group", "aria-label": "Chosen runs" }, this.bar, this.#results);
  }

  /** @param {RunRow} row */
  isChosen(row) {
    return this.#chosen.has(row.id);
  }

  /** @param {RunRow} row @param {boolean} isChosen */
  choose(row, isChosen) {
    if (isChosen) this.#chosen.set(row.id, row);
    else this.#chosen.delete(row.id);
    this.show();
  }

  /** What has ended meanwhile needs no stop. @param {RunRow[]} rows */
  meet(rows) {
    for (const row of rows) if (ENDED.has(row.status)) this.#chosen.delete(row.id);
    this.show();
  }

  show() {
    const { size } = this.#chosen;
    this.bar.hidden = size === 0;
    this.element.hidden = size === 0 && this.#results.hidden;
    say(this.#count, `${counted(size, "run")} chosen`);
    say(this.#stop, size === 1 ? "Cancel it: stops now, undoes what it can" : `Cancel all ${size}: each stops now and undoes what it can`);
  }

  #clear() {
    this.#chosen.clear();
    this.#results.hidden = true;
    this.show();
    this.changed();
  }

  async #cancelAll() {
    const rows = [...this.#chosen.values()];
    mark(this.#stop, "aria-busy", "true");
    const lines = rows.map((row) => ({ row, words: el("span", null, "asked") }));
    const drop = el("button", { type: "button", class: "quiet", onclick: () => this.#clear() }, "Close");
    this.#results.replaceChildren(
      ...lines.map(({ row, words }) => el("li", { "data-cancelled": row.id }, el("b", null, oneLine(row.goal || row.id, 80)), ": ", words)),
      el("li", null, drop),
    );
    this.#results.hidden = false;
    await Promise.all(lines.map(({ row, words }) => this.#cancel(row, words)));
    mark(this.#stop, "aria-busy", null);
    for (const row of rows) this.#chosen.delete(row.id);
    this.show();
    this.changed();
  }

  /** @param {RunRow} row @param {HTMLElement} words */
  async #cancel(row, words) {
    try {
      const receipt = await this.api.post(`/api/runs/${encodeURIComponent(row.id)}/cancel`, { wait: WAIT_SECONDS, request_id: newRequestId() });
      const took = receipt.timing_ms?.calls_stopped;
      if (receipt.waiting_for) say(words, `${wordFor("settling", "cancel")} waits for ${receipt.waiting_for}`);
      else say(words, took == null ? wordFor("receipt_heads", "cancel") : `stopped in ${milliseconds(took)}`);
    } catch (error) {
      say(words, message(error));
      words.className = "trouble";
    }
  }
}
