// @ts-check
/**
 * `<checkrein-run run-id base-url token?>`: everything about one run, with its bar at the bottom.
 *
 * One connection feeds the panels and the bar. What changes is drawn once per animation frame, and only where it
 * changed.
 */

import { isTyping } from "../bar/shortcuts.js";
import { Api } from "../connection/api.js";
import { el, mark, say } from "../lib/dom.js";
import { oneLine, plain } from "../lib/escape.js";
import { keysHelp } from "../lib/keys_help.js";
import { RunStore } from "../connection/run_store.js";
import { moment } from "../lib/time.js";
import { ENDED } from "../lib/types.js";
import { askWords, standing } from "../lib/words.js";
import { CallsPanel } from "../panels/calls.js";
import { EffectsPanel } from "../panels/effects.js";
import { EndedPanel } from "../panels/ended.js";
import { FlagsPanel } from "../panels/flags.js";
import { OriginPanel } from "../panels/fork.js";
import { InstructionsPanel } from "../panels/instructions.js";
import { NeedsYouPanel } from "../panels/needs_you.js";
import { NowLine } from "../panels/now.js";
import { Context } from "../panels/panel.js";
import { SideQuestionPanel } from "../panels/side_question.js";
import { StepsPanel } from "../panels/steps.js";
import { SubrunsPanel } from "../panels/subruns.js";
import { TextPanel } from "../panels/text.js";
import { TimelinePanel } from "../panels/timeline/timeline.js";
import { base, tokens } from "../styles/base.js";
import { panels as panelStyles } from "../styles/panels.js";
import "./checkrein-bar.js";

/** @typedef {import("../lib/types.js").RunView} RunView */

const TICK_MS = 250;
const REST = 5;
const LONG_GOAL = 140;

export class CheckreinRun extends HTMLElement {
  static observedAttributes = ["run-id", "base-url", "token", "may"];

  /** @type {RunStore | null} */
  live = null;
  /** @type {(() => void)[]} */
  #ends = [];
  /** @type {Sheet | null} */
  #sheet = null;
  /** @type {HTMLElement | null} */
  #bar = null;

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [tokens, base, panelStyles];
  }

  connectedCallback() {
    this.#begin();
  }

  disconnectedCallback() {
    this.#end();
  }

  /** @param {string} name */
  attributeChangedCallback(name) {
    if (!this.isConnected) return;
    if (name === "may") {
      this.#sheet?.may(this.getAttribute("may"));
      if (this.#bar) mark(this.#bar, "may", this.getAttribute("may"));
      return;
    }
    this.#end();
    this.#begin();
  }

  #begin() {
    const id = this.getAttribute("run-id");
    const root = this.shadowRoot;
    if (!id || !root) return;
    const baseUrl = (this.getAttribute("base-url") ?? "").replace(/\/+$/, "");
    const api = new Api(baseUrl, this.getAttribute("token"));
    const live = new RunStore(api, id);
    this.live = live;
    const sheet = new Sheet(new Context(api, live, id, baseUrl), (name, detail) => {
      if (name === "checkrein-unknown" && this.#bar) this.#bar.hidden = true; // there is nothing to control
      this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
    });
    this.#sheet = sheet;
    sheet.may(this.getAttribute("may"));
    const bar = /** @type {any} */ (document.createElement("checkrein-bar"));
    bar.setAttribute("run-id", id);
    bar.setAttribute("without-receipt", "");
    for (const name of ["base-url", "token", "page-keys", "theme", "may"]) {
      const value = this.getAttribute(name);
      if (value !== null) bar.setAttribute(name, value);
    }
    bar.live = live;
    this.#bar = bar;
    const help = keysHelp();
    root.replaceChildren(el("div", { class: "sheet" }, sheet.element), bar, help);
    sheet.help = () => help.showModal();
    bar.addEventListener("checkrein-look", (/** @type {CustomEvent} */ event) => {
      event.preventDefault();
      sheet.needs.look(event.detail.call);
    });
    const onKey = (/** @type {KeyboardEvent} */ event) => this.#onKey(event, sheet, bar);
    document.addEventListener("keydown", onKey);
    this.#ends = [sheet.begin(), () => live.close(), () => document.removeEventListener("keydown", onKey)];
    live.open();
  }

  /**
   * `?` shows the keys; y and n answer the question in view, while it or the bar has the focus.
   * @param {KeyboardEvent} event
   * @param {Sheet} sheet
   * @param {HTMLElement} bar
   */
  #onKey(event, sheet, bar) {
    const path = event.composedPath();
    const isChord = event.ctrlKey || event.metaKey || event.altKey;
    if (event.defaultPrevented || event.isComposing || event.repeat || isChord || isTyping(path[0])) return;
    if (event.key === "?") {
      event.preventDefault();
      sheet.help();
      return;
    }
    const isHere = this.hasAttribute("page-keys") || path.includes(sheet.needs.element) || path.includes(bar);
    if (isHere && sheet.needs.press(event.key.toLowerCase(), path)) event.preventDefault();
  }

  #end() {
    for (const end of this.#ends) end();
    this.#ends = [];
    this.live = null;
  }
}

/** The panels of one run, and when each is drawn. */
class Sheet {
  /** @type {Set<string>} */
  #changed = new Set();
  #frame = 0;
  #waiting = 0;
  #restUntil = 0;
  #hasText = false;
  /** Whether it waited for a person when it was looked at last; undefined: it was not looked at. @type {boolean | undefined} */
  #isWaiting;
  /** Shows the keys. */
  help = () => {};

  /**
   * @param {Context} context
   * @param {(name: string, detail: object) => void} tell
   */
  constructor(context, tell) {
    this.context = context;
    this.tell = tell;
    this.crumbs = el("ol");
    this.title = el("h1", { tabIndex: -1 });
    this.origin = el("p", { class: "origin" });
    this.strip = el("p", { class: "strip", hidden: true });
    this.now = new NowLine(context);
    const steps = new StepsPanel(context);
    this.text = new TextPanel(context);
    this.ask = new SideQuestionPanel(context);
    this.ended = new EndedPanel(context);
    this.subruns = new SubrunsPanel(context);
    this.needs = new NeedsYouPanel(context);
    this.fork = new OriginPanel(context);
    context.goTo = (run) => this.tell("checkrein-started", { run });
    const effects = new EffectsPanel(context);
    const instructions = new InstructionsPanel(context);
    const flags = new FlagsPanel(context);
    const timeline = new TimelinePanel(context);
    const calls = new CallsPanel(context);
    const told = [this.ended, this.text, this.ask, this.subruns];
    this.panels = [this.needs, this.fork, steps, ...told, effects, instructions, flags, timeline, calls];
    this.content = el(
      "div",
      { hidden: true },
      el(
        "div",
        { class: "grid" },
        el("div", { class: "column plan" }, steps.element, flags.element),
        el("div", { class: "column middle" }, this.ended.element, this.text.element, this.subruns.element),
        el("div", { class: "column side" }, effects.element, instructions.element, this.ask.element),
        el("div", { class: "column picture" }, timeline.element),
      ),
      el("div", { class: "below" }, calls.element),
    );
    this.element = el(
      "main",
      { class: "frame" },
      el("nav", { "aria-label": "Where this run belongs" }, this.crumbs),
      this.title,
      this.origin,
      this.strip,
      this.needs.element,
      this.now.element,
      this.fork.element,
      this.content,
    );
    this.crumbs.className = "crumbs";
    say(this.title, "…");
  }

  /** What whoever looks may do, in words such as `see steer`; null: unknown. @param {string | null} may */
  may(may) {
    this.context.may = may;
    for (const panel of this.panels) for (const field of panel.needs) this.#changed.add(field);
    this.subruns.may(may);
    this.#schedule();
  }

  begin() {
    const { live } = this.context;
    const onChange = (/** @type {any} */ event) => {
      for (const field of event.detail) this.#changed.add(field);
      this.#schedule();
      this.#tellWaiting();
    };
    const onText = (/** @type {any} */ event) => {
      this.text.grew(event.detail.call);
      this.#hasText = true;
      this.#schedule();
    };
    const onState = () => this.#connection();
    live.addEventListener("change", onChange);
    live.addEventListener("text", onText);
    live.addEventListener("state", onState);
    const ticking = setInterval(() => this.#tick(), TICK_MS);
    return () => {
      clearInterval(ticking);
      cancelAnimationFrame(this.#frame);
      clearTimeout(this.#waiting);
      live.removeEventListener("change", onChange);
      live.removeEventListener("text", onText);
      live.removeEventListener("state", onState);
      this.subruns.close();
      this.fork.close();
      this.context.sender.close();
    };
  }

  /** It has begun to wait for a person. Not with the next frame: in a page that nobody sees there is none. */
  #tellWaiting() {
    const { view } = this.context.live;
    if (view === null) return;
    const isWaiting = view.waiting.length > 0 && !ENDED.has(view.status);
    const what = view.waiting.map(askWords).join("; ");
    if (isWaiting && this.#isWaiting === false) this.tell("checkrein-waits", { run: view.id, goal: view.goal, what });
    this.#isWaiting = isWaiting;
  }

  #schedule() {
    if (this.#frame !== 0 || this.#waiting !== 0) return;
    const wait = this.#restUntil - performance.now();
    if (wait <= 0) this.#frame = requestAnimationFrame(() => this.#draw());
    else {
      this.#waiting = setTimeout(() => {
        this.#waiting = 0;
        this.#schedule();
      }, wait);
    }
  }

  #draw() {
    this.#frame = 0;
    const began = performance.now();
    this.#drawChanges();
    this.text.follow();
    // What takes long to draw is drawn less often, so that the page stays free for whoever wants to press a button.
    this.#restUntil = began + REST * (performance.now() - began);
  }

  #drawChanges() {
    const view = this.context.live.view;
    if (!view) return;
    const changed = this.#changed;
    this.#changed = new Set();
    if (changed.size) {
      this.#headline(view, changed);
      this.content.hidden = false;
      this.content.classList.toggle("is-over", ENDED.has(view.status));
      for (const panel of this.panels) {
        if (panel.needs.some((field) => changed.has(field))) panel.draw(view, changed);
      }
    }
    this.now.draw(view);
    if (this.#hasText) {
      this.#hasText = false;
      this.text.flush();
      this.ask.grew();
    }
  }

  #tick() {
    const view = this.context.live.view;
    if (!view || document.visibilityState === "hidden") return;
    if (this.context.live.state === "lost") this.#connection();
    else if (!ENDED.has(view.status)) {
      for (const panel of this.panels) panel.tick(this.context.now());
      this.now.draw(view);
    }
  }

  /** @param {RunView} view @param {ReadonlySet<string>} changed */
  #headline(view, changed) {
    const { word, shape } = standing(view);
    if (changed.has("status") || changed.has("waiting")) {
      this.tell("checkrein-standing", { word, shape, goal: oneLine(view.goal, 80), status: view.status });
    }
    if (!changed.has("goal")) return;
    say(this.title, view.goal);
    this.title.classList.toggle("long", view.goal.length > LONG_GOAL);
    const { context } = this;
    const isOwn = view.thread === view.id;
    this.crumbs.replaceChildren(
      el("li", null, link(`${context.base}/`, "Runs")),
      ...(isOwn ? [] : [el("li", null, "thread ", link(context.threadUrl(view.thread), view.thread))]),
      ...(view.parent ? [el("li", null, link(context.runUrl(view.parent), "the run that started it"))] : []),
      el("li", null, el("span", { class: "mono" }, plain(view.id))),
    );
    const owner = view.owner ? `, for ${oneLine(view.owner, 60)}` : "";
    this.origin.replaceChildren(plain(`${view.agent}, begun ${moment(view.created_at)}${owner}`));
    if (view.continues) this.origin.append(" · continues ", link(context.runUrl(view.continues), "an earlier run"));
    if (view.forked_from) this.origin.append(" · forked from ", link(context.runUrl(view.forked_from.run), view.forked_from.run));
    this.origin.append(el("span", { class: "keys-help-dot" }, " · "), el("button", { type: "button", class: "quiet keys-help", onclick: () => this.help() }, "Keys"));
  }

  #connection() {
    const { live } = this.context;
    const isLost = live.state === "lost";
    this.strip.hidden = !isLost;
    for (const part of [this.content, this.needs.element, this.now.element]) part.classList.toggle("is-lost", isLost);
    if (live.view) this.ask.draw(live.view);
    if (!isLost) return;
    if (live.problem?.status === 401) this.tell("checkrein-unauthorised", {});
    if (live.problem?.status === 404 && !live.view) {
      say(this.title, "There is no such run");
      this.crumbs.replaceChildren(el("li", null, link(`${this.context.base}/`, "Runs")));
      const back = el("a", { href: `${this.context.base}/` }, "All runs");
      this.strip.replaceChildren(el("span", null, "Perhaps its address is not whole, or it belongs to somebody else. ", back));
      this.tell("checkrein-unknown", { run: this.context.id });
      return;
    }
    const when = live.view ? ` What you see is from ${moment(live.heardAt / 1000)}.` : "";
    const why = live.problem ? ` ${live.problem.message}` : "";
    const now = "What the run does now is not known here; the page connects again by itself.";
    say(this.strip, `No connection.${why}${when} ${now}`);
  }
}

/** @param {string} href @param {string} words */
function link(href, words) {
  return el("a", { href }, oneLine(words, 60));
}

customElements.define("checkrein-run", CheckreinRun);
