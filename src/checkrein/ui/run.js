// @ts-check
/**
 * `<checkrein-run run-id base-url token?>`: everything about one run, with its bar at the bottom.
 *
 * One connection feeds the panels and the bar. What changes is drawn once per animation frame, and only where it
 * changed.
 */

import { Api } from "./api.js";
import { AskPanel } from "./ask.js";
import "./bar.js";
import { CallsPanel } from "./calls.js";
import { el, mark, say } from "./dom.js";
import { EffectsPanel } from "./effects.js";
import { EndedPanel } from "./ended.js";
import { FlagsPanel } from "./flags.js";
import { InstructionsPanel } from "./instructions.js";
import { LiveRun } from "./live.js";
import { NeedsPanel } from "./needs.js";
import { Context } from "./panel.js";
import { oneLine, plain } from "./plain.js";
import { panels as panelStyles } from "./sheets.js";
import { StepsPanel } from "./steps.js";
import { base, tokens } from "./style.js";
import { SubrunsPanel } from "./subruns.js";
import { TextPanel } from "./text.js";
import { TimelinePanel } from "./timeline.js";
import { moment } from "./times.js";
import { ENDED } from "./types.js";
import { standing } from "./words.js";

/** @typedef {import("./types.js").RunView} RunView */

const TICK_MS = 250;
const REST = 5;
const LONG_GOAL = 140;

export class CheckreinRun extends HTMLElement {
  static observedAttributes = ["run-id", "base-url", "token", "may"];

  /** @type {LiveRun | null} */
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
    const live = new LiveRun(api, id);
    this.live = live;
    const sheet = new Sheet(new Context(api, live, id, baseUrl), (name, detail) =>
      this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true })),
    );
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
    root.replaceChildren(el("div", { class: "sheet" }, sheet.element), bar);
    this.#ends = [sheet.begin(), () => live.close()];
    live.open();
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
    const steps = new StepsPanel(context);
    this.text = new TextPanel(context);
    this.ask = new AskPanel(context);
    this.ended = new EndedPanel(context);
    this.subruns = new SubrunsPanel(context);
    this.needs = new NeedsPanel(context);
    const effects = new EffectsPanel(context);
    const instructions = new InstructionsPanel(context);
    const flags = new FlagsPanel(context);
    const timeline = new TimelinePanel(context);
    const calls = new CallsPanel(context);
    const told = [this.ended, this.text, this.ask, this.subruns];
    this.panels = [this.needs, steps, ...told, effects, instructions, flags, timeline, calls];
    this.content = el(
      "div",
      { hidden: true },
      this.needs.element,
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
      this.ended.close();
    };
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
    else if (!ENDED.has(view.status)) for (const panel of this.panels) panel.tick(this.context.now());
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
      el("li", null, isOwn ? "" : "thread ", link(context.threadUrl(view.thread), isOwn ? "its thread" : view.thread)),
      ...(view.parent ? [el("li", null, link(context.runUrl(view.parent), "the run that started it"))] : []),
      el("li", null, el("span", { class: "mono" }, plain(view.id))),
    );
    const owner = view.owner ? `, for ${oneLine(view.owner, 60)}` : "";
    this.origin.replaceChildren(plain(`${view.agent}, begun ${moment(view.created_at)}${owner}`));
    if (view.continues) this.origin.append(" · continues ", link(context.runUrl(view.continues), "an earlier run"));
  }

  #connection() {
    const { live } = this.context;
    const isLost = live.state === "lost";
    this.strip.hidden = !isLost;
    this.content.classList.toggle("is-lost", isLost);
    if (live.view) this.ask.draw(live.view);
    if (!isLost) return;
    if (live.problem?.status === 401) this.tell("checkrein-unauthorised", {});
    if (live.problem?.status === 404 && !live.view) {
      say(this.title, "There is no such run");
      say(this.strip, "Perhaps its address is not whole, or it belongs to somebody else.");
      return;
    }
    const when = live.view ? ` What you see is from ${moment(live.heardAt / 1000)}.` : "";
    const why = live.problem ? ` ${live.problem.message}` : "";
    say(this.strip, `No connection.${why}${when} The page connects again by itself; the run goes on without it.`);
  }
}

/** @param {string} href @param {string} words */
function link(href, words) {
  return el("a", { href }, oneLine(words, 60));
}

customElements.define("checkrein-run", CheckreinRun);
