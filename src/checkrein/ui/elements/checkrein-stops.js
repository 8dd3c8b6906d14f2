// @ts-check
/**
 * `<checkrein-stops base-url>`: every stop, the newest first, with who, why and how long it took, what was on show, and
 * what a watcher had noticed: so that a confession and its stop stand side by side.
 */

import { Api } from "../connection/api.js";
import { el } from "../lib/dom.js";
import { oneLine, plain } from "../lib/escape.js";
import { milliseconds, moment } from "../lib/time.js";
import { voice } from "../lib/voice.js";
import { message } from "../panels/panel.js";
import { base, tokens } from "../styles/base.js";
import { panels } from "../styles/panels.js";
import { runsStyle } from "../styles/runs.js";
import { stopsStyle } from "../styles/stops.js";

/** @typedef {import("../lib/types.js").StopRow} StopRow */

const TYPED_MS = 250;
const TAIL = 160;
const VERBS = ["pause", "redirect", "cancel", "halt"];

export class CheckreinStops extends HTMLElement {
  static observedAttributes = ["base-url", "token", "may"];

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #typing;
  #round = 0;

  constructor() {
    super();
    this.attachShadow({ mode: "open" }).adoptedStyleSheets = [tokens, base, panels, runsStyle, stopsStyle];
  }

  connectedCallback() {
    this.#begin();
  }

  disconnectedCallback() {
    clearTimeout(this.#typing);
    this.#round += 1;
  }

  attributeChangedCallback() {
    if (this.isConnected) this.#begin();
  }

  #begin() {
    document.title = "Stops · Checkrein";
    this.base = (this.getAttribute("base-url") ?? "").replace(/\/+$/, "");
    this.api = new Api(this.base, this.getAttribute("token"));
    const later = () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => void this.#look(), TYPED_MS);
    };
    const now = () => void this.#look();
    this.reason = el("input", { type: "search", placeholder: "Search reasons", "aria-label": "Search reasons", oninput: later });
    this.verb = el(
      "select", { "aria-label": "Kind of stop", onchange: now },
      el("option", { value: "" }, "Any stop"), ...VERBS.map((verb) => el("option", { value: verb }, verb)),
    );
    this.flagged = el("input", { type: "checkbox", onchange: now });
    this.csv = el("a", { class: "export", download: "stops.csv" }, "Save as CSV");
    this.json = el("a", { class: "export", download: "stops.json" }, "Save as JSON");
    const filters = el(
      "form", { class: "filters", role: "search", "aria-label": "Stops" },
      this.reason, this.verb, el("label", { class: "flagged" }, this.flagged, " flagged by a watcher"),
      el("span", { class: "exports" }, this.csv, this.json),
    );
    filters.addEventListener("submit", (event) => event.preventDefault());
    this.trouble = el("p", { class: "strip", hidden: true, role: "status" });
    this.list = el("ul", { class: "rows stops" });
    this.none = el("p", { class: "soft", hidden: true }, "No stop fits.");
    const main = el(
      "main", { class: "frame" },
      el("div", { class: "headline" }, el("h1", { tabIndex: -1 }, "Stops")),
      this.trouble, filters, el("section", { class: "panel", "aria-label": "Stops" }, this.list, this.none),
    );
    this.shadowRoot?.replaceChildren(el("div", { class: "sheet" }, main));
    void this.#look();
  }

  /** @param {string} [format] */
  #path(format) {
    const query = new URLSearchParams();
    if (this.reason?.value.trim()) query.set("reason", this.reason.value.trim());
    if (this.verb?.value) query.set("verb", this.verb.value);
    if (this.flagged?.checked) query.set("flagged", "true");
    if (format) query.set("format", format);
    return `/api/stops?${query}`;
  }

  async #look() {
    const round = ++this.#round;
    try {
      const found = await this.api?.get(this.#path());
      if (round !== this.#round) return;
      this.#draw(found.stops, found.damaged);
    } catch (error) {
      if (round !== this.#round) return;
      if (/** @type {{status?: number}} */ (error).status === 401) {
        this.dispatchEvent(new CustomEvent("checkrein-unauthorised", { bubbles: true, composed: true }));
      }
      this.#say(message(error));
    }
  }

  /** @param {string} trouble */
  #say(trouble) {
    if (!this.trouble) return;
    this.trouble.hidden = !trouble;
    this.trouble.textContent = plain(trouble);
  }

  /** @param {StopRow[]} stops @param {Record<string, string>} damaged */
  #draw(stops, damaged) {
    const broken = Object.keys(damaged);
    this.#say(broken.length ? `The record of ${broken.join(", ")} was changed or is damaged: nothing said of it is sure.` : "");
    if (this.csv) this.csv.href = `${this.base}${this.#path("csv")}`;
    if (this.json) this.json.href = `${this.base}${this.#path("json")}`;
    if (this.none) this.none.hidden = stops.length > 0;
    this.list?.replaceChildren(...stops.map((stop) => this.#row(stop)));
  }

  /** @param {StopRow} stop */
  #row(stop) {
    const run = encodeURIComponent(stop.run);
    const may = this.getAttribute("may");
    const maySteer = may === null || may.split(" ").includes("steer");
    const why = el("p", { class: "why" });
    voice(why, stop.reasons.join("; ") || "no reason given", 240);
    const shown = el("p", { class: "shown" });
    if (stop.last_text) voice(shown, `…${stop.last_text.slice(-TAIL)}`, TAIL + 1);
    return el(
      "li", { class: "stop", "data-run": stop.run },
      el("p", { class: "head-line" },
        el("strong", null, stop.verb), ` by ${oneLine(stop.by, 60)} `, el("time", { dateTime: new Date(stop.at * 1000).toISOString() }, moment(stop.at)),
        stop.damage && el("span", { class: "unsure" }, " not sure: its record was changed"),
      ),
      why,
      el("p", { class: "facts" },
        el("a", { href: `${this.base}/runs/${run}` }, plain(oneLine(stop.goal || stop.run, 120))),
        el("span", null, plain(oneLine(stop.agent, 40))),
        el("span", null, stop.stopped_ms === null ? "nothing was in flight" : `stopped in ${milliseconds(stop.stopped_ms)}`),
        stop.shown_by_then !== null && el("span", null, `${stop.shown_by_then} characters shown by then`),
      ),
      stop.last_text && shown,
      stop.flag && el("p", { class: "noticed" },
        el("strong", null, plain(stop.flag.watcher)), plain(` ${stop.flag.what}, ${beside(stop.flag.seconds_before)} the stop`),
        stop.flag.withheld_chars > 0 && `; ${stop.flag.withheld_chars} characters withheld`,
      ),
      maySteer && el("p", { class: "proof" },
        el("a", { href: `${this.base}/api/runs/${run}/story`, target: "_blank", rel: "noopener" }, "The story of this stop"),
        el("a", { href: `${this.base}/api/runs/${run}/evidence`, download: "" }, "Evidence (zip)"),
      ),
    );
  }
}

/** @param {number} seconds */
function beside(seconds) {
  return `${Math.abs(seconds).toFixed(1)} s ${seconds >= 0 ? "before" : "after"}`;
}

customElements.define("checkrein-stops", CheckreinStops);
