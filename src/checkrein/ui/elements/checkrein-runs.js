// @ts-check
/**
 * `<checkrein-runs base-url thread?>`: every run, those that wait for a person first, and a way to start one, to find
 * some and to stop several.
 *
 * With a thread, only its runs, in the order they began. The list is looked up again every few seconds while the page
 * is in view, and now and then for those who want to be told when a run waits.
 */

import { Api } from "../connection/api.js";
import { el, Keyed, look, mark, parts, say } from "../lib/dom.js";
import { oneLine, plain } from "../lib/escape.js";
import { clock, moment } from "../lib/time.js";
import { ENDED } from "../lib/types.js";
import { isWanted } from "../lib/notify.js";
import { voice } from "../lib/voice.js";
import { amount, askWords, statusWord, WAITING } from "../lib/words.js";
import { fresh, message } from "../panels/panel.js";
import { RunFilters } from "../page/run_filters.js";
import { RunSelection } from "../page/run_selection.js";
import { StartForm } from "../page/start_form.js";
import { base, tokens } from "../styles/base.js";
import { panels } from "../styles/panels.js";
import { runsStyle } from "../styles/runs.js";

/** @typedef {import("../lib/types.js").RunRow} RunRow */

const EVERY_MS = 2_000;
const UNSEEN_MS = 10_000;
const PAGE = 50;
const WELCOME =
  "Choose an agent above, say what it should do, and press Enter. While it works you can pause it, redirect it or " +
  "cancel it at any moment, from the bar at the bottom of its page; nothing runs on after you stop it.";

export class CheckreinRuns extends HTMLElement {
  static observedAttributes = ["thread", "base-url", "token", "may"];

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #next;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #ticking;
  /** @type {RunRow[]} */
  #older = [];
  /** @type {RunRow[]} */
  #newest = [];
  /** @type {RunRow[]} */
  #waiting = [];
  /** Those that waited when it was looked at last; null: it was not. @type {Set<string> | null} */
  #known = null;
  #hasMore = false;
  #skew = 0;
  #round = 0;
  #wake = () => document.visibilityState === "visible" && this.refresh();

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [tokens, base, panels, runsStyle];
  }

  connectedCallback() {
    this.#begin();
    document.addEventListener("visibilitychange", this.#wake);
    this.#ticking = setInterval(() => this.#tick(), 1_000);
  }

  disconnectedCallback() {
    this.#round += 1;
    clearTimeout(this.#next);
    clearInterval(this.#ticking);
    document.removeEventListener("visibilitychange", this.#wake);
  }

  /** @param {string} name */
  attributeChangedCallback(name) {
    if (!this.isConnected) return;
    if (name === "may") this.#mayStart();
    else this.#begin();
  }

  /** Whoever may not start a run is not offered it. */
  #mayStart() {
    const may = this.getAttribute("may");
    const includes = (/** @type {string} */ word) => may === null || may.split(" ").includes(word);
    if (this.form) this.form.element.hidden = !includes("start");
    this.shadowRoot?.querySelector(".lists")?.toggleAttribute("data-only-look", !includes("steer"));
  }

  /** Look the list up now. */
  refresh() {
    clearTimeout(this.#next);
    void this.#look();
  }

  #begin() {
    const thread = this.getAttribute("thread");
    this.base = (this.getAttribute("base-url") ?? "").replace(/\/+$/, "");
    this.api = new Api(this.base, this.getAttribute("token"));
    this.#older = [];
    const title = el("h1", { tabIndex: -1 }, thread ? plain(`Thread ${oneLine(thread, 120)}`) : "Runs");
    this.filters = new RunFilters(() => this.#refind());
    this.form = new StartForm(this.api, thread, (run) => this.#started(run), (names) => this.filters?.agents(names));
    this.selection = new RunSelection(this.api, () => this.refresh());
    this.#known = null;
    this.trouble = el("p", { class: "strip", hidden: true, role: "status" });
    this.groups = GROUPS.map(([name, heading]) => new Group(this, name, thread ? "Its runs, in order" : heading));
    this.welcome = el(
      "div",
      { class: "panel welcome", hidden: true },
      el("h2", null, thread ? "Nothing has run in this thread." : "No run yet."),
      el("p", null, WELCOME),
    );
    this.more = el("button", { type: "button", hidden: true, onclick: () => void this.#showMore() }, "Show older runs");
    this.none = el("p", { class: "soft", hidden: true }, "No run fits.");
    const [waiting, ...others] = this.groups.map((group) => group.element);
    this.content = el("div", { class: "lists" }, this.selection.element, ...others, this.none, this.welcome, this.more);
    const all = el("a", { href: `${this.base}/` }, "Runs");
    const crumbs = el("ol", { class: "crumbs" }, el("li", null, all), el("li", null, "thread"));
    const main = el(
      "main",
      { class: "frame" },
      thread && el("nav", { "aria-label": "Where this thread belongs" }, crumbs),
      el("div", { class: "headline" }, title),
      this.trouble,
      el("div", { class: "lists first" }, waiting),
      this.form.element,
      !thread && this.filters.element,
      this.content,
    );
    this.shadowRoot?.replaceChildren(el("div", { class: "sheet" }, main));
    this.#mayStart();
    this.refresh();
  }

  /** @param {string} run */
  #started(run) {
    if (this.#tell("checkrein-started", { run })) location.assign(this.runUrl(run));
  }

  /** @param {string} name @param {object} [detail] @returns {boolean} whether nobody has taken it up */
  #tell(name, detail = {}) {
    return this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true, cancelable: true }));
  }

  /** @param {string} run */
  runUrl(run) {
    return `${this.base}/runs/${encodeURIComponent(run)}`;
  }

  /** @param {string} thread */
  threadUrl(thread) {
    return `${this.base}/?thread=${encodeURIComponent(thread)}`;
  }

  // -- looking

  /** @param {string} [before] */
  #path(before) {
    const query = new URLSearchParams({ limit: String(PAGE) });
    const thread = this.getAttribute("thread");
    if (thread) query.set("thread", thread);
    if (before) query.set("before", before);
    for (const [name, value] of this.filters?.query() ?? []) query.append(name, value);
    return `/api/runs?${query}`;
  }

  /** Other runs are asked for. */
  #refind() {
    this.#older = [];
    this.#newest = [];
    this.refresh();
  }

  async #look() {
    const round = ++this.#round;
    try {
      const paths = [this.#path(), "/api/runs?waiting=true&limit=100"];
      const [page, waiting] = await Promise.all(paths.map((path) => this.api?.get(path)));
      if (round !== this.#round) return;
      this.#skew = (page.at ?? Date.now() / 1000) - Date.now() / 1000;
      this.#newest = page.runs;
      if (!this.#older.length) this.#hasMore = page.more;
      this.#waiting = waiting.runs;
      this.#tellWaiting();
      this.#say("");
      this.#draw();
    } catch (error) {
      if (round !== this.#round) return;
      const { status } = /** @type {{status?: number}} */ (error);
      if (status === 401) this.#tell("checkrein-unauthorised");
      this.#say(`The list is not up to date. ${message(error)} The page tries again by itself.`);
    }
    const isSeen = document.visibilityState === "visible";
    if (isSeen || isWanted()) this.#next = setTimeout(() => void this.#look(), isSeen ? EVERY_MS : UNSEEN_MS);
  }

  /** Those that have begun to wait since it was looked at last. */
  #tellWaiting() {
    const known = this.#known;
    this.#known = new Set(this.#waiting.map(({ id }) => id));
    for (const row of known === null ? [] : this.#waiting.filter(({ id }) => !known.has(id))) {
      const what = (row.waiting_for ?? []).map(askWords).join("; ");
      this.#tell("checkrein-waits", { run: row.id, goal: row.goal, what });
    }
  }

  /** @param {string} trouble */
  #say(trouble) {
    if (!this.trouble) return;
    this.trouble.hidden = !trouble;
    say(this.trouble, trouble);
  }

  async #showMore() {
    const last = this.#rows().at(-1);
    if (!last || !this.api) return;
    try {
      const page = await this.api.get(this.#path(last.id));
      this.#older.push(...page.runs);
      this.#hasMore = page.more;
      this.#draw();
    } catch (error) {
      this.#say(message(error));
    }
  }

  /** @returns {RunRow[]} */
  #rows() {
    const seen = new Set();
    return [...this.#newest, ...this.#older].filter((row) => !seen.has(row.id) && seen.add(row.id));
  }

  // -- showing

  #draw() {
    const thread = this.getAttribute("thread");
    const rows = this.#rows();
    const waiting = this.#waiting.filter((row) => !thread || row.thread === thread);
    const known = new Set(waiting.map((row) => row.id));
    const rest = rows.filter((row) => !row.parent && !known.has(row.id));
    const hasEnded = (/** @type {RunRow} */ row) => ENDED.has(row.status);
    /** @type {Record<string, RunRow[]>} */
    const sorted = thread
      ? { waiting: [], work: rows.filter((row) => !row.parent).reverse(), ended: [] }
      : { waiting, work: rest.filter((row) => !hasEnded(row)), ended: rest.filter(hasEnded) };
    for (const group of this.groups ?? []) group.show(sorted[group.name] ?? []);
    const isFiltered = this.filters?.isUsed ?? false;
    if (this.welcome) this.welcome.hidden = isFiltered || rows.length + waiting.length > 0;
    if (this.none) this.none.hidden = !isFiltered || rest.length > 0;
    if (this.filters) this.filters.element.hidden = !isFiltered && rows.length + waiting.length === 0;
    this.form?.fold(rows.length + waiting.length > 0);
    this.selection?.meet([...rows, ...waiting]);
    if (this.more) this.more.hidden = !this.#hasMore;
    this.#tell("checkrein-waiting", { count: waiting.length });
  }

  #tick() {
    for (const group of this.groups ?? []) group.tick();
  }

  /** How long a run has been at work. @param {RunRow} row @param {number} lookedAt */
  elapsed(row, lookedAt) {
    return row.elapsed_seconds + (row.ticking ? Date.now() / 1000 - lookedAt : 0);
  }

  now() {
    return Date.now() / 1000 + this.#skew;
  }
}

/** @type {[name: string, heading: string][]} */
const GROUPS = [
  ["waiting", "Waiting for you"],
  ["work", "At work"],
  ["ended", "Ended"],
];

/** Runs under one heading. */
class Group {
  /**
   * @param {CheckreinRuns} page
   * @param {string} name
   * @param {string} heading
   */
  constructor(page, name, heading) {
    this.page = page;
    this.name = name;
    const id = fresh("runs");
    this.list = el("ul", { class: "rows runs" });
    const shell = { class: `panel group ${name}`, "aria-labelledby": id, hidden: true };
    this.element = el("section", shell, el("h2", { id }, heading), this.list);
    /** @type {{row: RunRow, at: number}[]} */
    this.shown = [];
    this.rows = new Keyed(
      this.list,
      (/** @type {{row: RunRow, at: number}} */ one) => one.row.id,
      (one) => this.#make(one.row),
      (line, one) => this.#draw(line, one),
    );
  }

  /** @param {RunRow[]} rows */
  show(rows) {
    const at = Date.now() / 1000;
    this.shown = rows.map((row) => ({ row, at }));
    this.element.hidden = rows.length === 0;
    this.rows.show(this.shown);
  }

  tick() {
    for (const one of this.shown) if (one.row.ticking) this.rows.again(one.row.id);
  }

  /** @param {RunRow} row */
  #make(row) {
    const facts = [el("span", { class: "agent" }), el("a", { class: "thread" }), el("span", { class: "begun" })];
    const tick = el("input", { type: "checkbox", "aria-label": plain(`Choose ${oneLine(row.goal || row.id, 80)}`) });
    tick.addEventListener("change", () => this.page.selection?.choose(row, tick.checked));
    return el(
      "li",
      { class: "run", "data-run": row.id },
      el("span", { class: "choose" }, tick),
      el("span", { class: "glyph" }),
      el("a", { class: "goal", href: this.page.runUrl(row.id) }),
      el("span", { class: "status" }),
      el("span", { class: "facts" }, ...facts),
      el("span", { class: "elapsed" }),
      el("span", { class: "cost" }),
      el("span", { class: "wants" }),
    );
  }

  /** @param {HTMLElement} line @param {{row: RunRow, at: number}} one */
  #draw(line, { row, at }) {
    const found = parts(line);
    const isLeft = row.status === "running" && row.driven === false;
    const name = row.waiting ? "needs_you" : isLeft ? "undriven" : row.status;
    mark(line, "class", `run is-${name}`);
    look(found.glyph, name);
    say(found.goal, oneLine(row.goal || "(no goal)", 240));
    const tick = /** @type {HTMLInputElement} */ (found.choose.firstElementChild);
    tick.hidden = ENDED.has(row.status);
    tick.checked = this.page.selection?.isChosen(row) ?? false;
    say(found.status, statusOf(row));
    const facts = parts(found.facts);
    say(facts.agent, row.agent);
    facts.thread.hidden = this.page.hasAttribute("thread") || row.thread === row.id;
    mark(facts.thread, "href", this.page.threadUrl(row.thread));
    say(facts.thread, `thread ${oneLine(row.thread, 40)}`);
    say(facts.begun, moment(row.created_at));
    say(found.elapsed, clock(this.page.elapsed(row, at)));
    say(found.cost, spent(row));
    voice(found.wants, (row.waiting_for ?? []).map(askWords).join("; "), 40);
    found.wants.hidden = !row.waiting;
  }
}

/** @param {RunRow} row */
function statusOf(row) {
  const isLeft = row.driven === false;
  const status = statusWord(row);
  if (!row.waiting) return status;
  return row.status === "running" && !isLeft && !row.ticking ? WAITING : `${status}, needs you`;
}

/** What it has cost, or what it has used where no price is known. @param {RunRow} row */
function spent({ usage }) {
  if (!usage) return "";
  const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
  const cost = usage.cost_usd === undefined ? 0 : usage.cost_usd;
  return cost === null || cost === 0 ? `${amount(tokens)} tokens` : `$${cost.toFixed(2)}`;
}

customElements.define("checkrein-runs", CheckreinRuns);
