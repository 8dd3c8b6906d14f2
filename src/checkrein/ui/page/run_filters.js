// @ts-check
/** Which runs are listed: by what their goal says, their agent, status and owner, and when they began. */

import { el } from "../lib/dom.js";
import { oneLine } from "../lib/escape.js";
import { wordFor } from "../lib/words.js";

/** @type {[label: string, statuses: string[]][]} */
const STATUSES = [
  ["Any status", []],
  ["At work", ["queued", "running", "pausing", "redirecting", "cancelling"]],
  ["Paused", ["paused"]],
  [wordFor("statuses", "completed"), ["completed"]],
  [wordFor("statuses", "failed"), ["failed"]],
  ["Stopped", ["cancelled", "killed"]],
];
/** Nobody types faster than this when they have finished a word. */
const TYPED_MS = 250;

export class RunFilters {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #typing;
  #search = el("input", { type: "search", id: "search", placeholder: "Search goals", "aria-label": "Search goals", oninput: () => this.#later() });
  #agent = el("select", { "aria-label": "Agent of the runs", onchange: () => this.#now() }, el("option", { value: "" }, "Any agent"));
  #status = el(
    "select", { "aria-label": "Status", onchange: () => this.#now() },
    ...STATUSES.map(([label], n) => el("option", { value: String(n) }, label)),
  );
  #owner = el("input", { type: "text", placeholder: "Anybody's", "aria-label": "Owner", oninput: () => this.#later() });
  #since = el("input", { type: "date", "aria-label": "Begun on or after", onchange: () => this.#now() });
  #until = el("input", { type: "date", "aria-label": "Begun on or before", onchange: () => this.#now() });
  #clear = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.#reset() }, "Show all runs");

  /** @param {() => void} changed */
  constructor(changed) {
    this.changed = changed;
    const dates = el("span", { class: "dates" }, el("label", null, "from ", this.#since), el("label", null, "to ", this.#until));
    const more = el("details", { class: "folded" }, el("summary", null, "Filter"), el("div", { class: "more-filters" }, this.#agent, this.#status, this.#owner, dates));
    this.element = el("form", { class: "filters", role: "search", "aria-label": "Runs" }, this.#search, more, this.#clear);
    this.element.addEventListener("submit", (event) => event.preventDefault());
  }

  /** @param {string[]} names of agents that there are */
  agents(names) {
    const [any] = this.#agent.options;
    if (any) this.#agent.replaceChildren(any, ...names.map((name) => el("option", { value: name }, oneLine(name, 80))));
  }

  /** What is asked for, as it is put into the address. @returns {[name: string, value: string][]} */
  query() {
    const statuses = STATUSES[Number(this.#status.value)]?.[1] ?? [];
    /** @type {[string, string][]} */
    const wanted = [
      ["search", this.#search.value.trim()],
      ["agent", this.#agent.value],
      ["owner", this.#owner.value.trim()],
      ["since", seconds(this.#since.value, 0)],
      ["until", seconds(this.#until.value, 1)],
      ...statuses.map((status) => /** @type {[string, string]} */ (["status", status])),
    ];
    return wanted.filter(([, value]) => value !== "");
  }

  get isUsed() {
    return this.query().length > 0;
  }

  #now() {
    clearTimeout(this.#typing);
    this.#clear.hidden = !this.isUsed;
    this.changed();
  }

  #later() {
    clearTimeout(this.#typing);
    this.#typing = setTimeout(() => this.#now(), TYPED_MS);
  }

  #reset() {
    this.element.reset();
    this.#now();
    this.#search.focus();
  }
}

/** The beginning of a day here, or of the day after it, in seconds since 1970. @param {string} day @param {number} after */
function seconds(day, after) {
  const [year, month, date] = day.split("-").map(Number);
  if (!year || !month || !date) return "";
  return String(new Date(year, month - 1, date + after).getTime() / 1000);
}
