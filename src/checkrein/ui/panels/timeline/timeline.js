// @ts-check
/**
 * A picture of the calls over time: one lane for the model, one for tools and so on; where each was stopped, and the
 * moments at which somebody asked for it.
 */

import { el, mark } from "../../lib/dom.js";
import { plain } from "../../lib/escape.js";
import { goingOn } from "../../lib/time.js";
import { ENDED } from "../../lib/types.js";
import { capital, counted, wordFor } from "../../lib/words.js";
import { Panel } from "../panel.js";
import { pausesOf, TimeMap, without } from "./timeline_time.js";

/** @typedef {import("../../lib/types.js").CallBrief} CallBrief */
/** @typedef {import("../../lib/types.js").RunView} RunView */
/** @typedef {{call: CallBrief, from: number, to: number, lane: number, worked: import("./timeline_time.js").Interval[]}} Stroke */

const SVG = "http://www.w3.org/2000/svg";
const TOP = 26;
const LANE = 26;
const BAR = 14;
const LABELS = 74;
const PLACES = 3;

/** From so many calls on, they are drawn as one path per lane instead of each for itself. */
const MANY = 300;

/** @type {[kind: string, label: string][]} */
const LANES = [["model", "model"], ["tool", "tools"], ["run", "sub-runs"], ["process", "program"], ["ask", "questions"], ["undo", "undo"]];

/** Verbs whose moment is marked. */
const MARKED = new Set(["pause", "resume", "redirect", "cancel", "halt", "abort"]);

export class TimelinePanel extends Panel {
  static needs = ["calls", "status", "verbs"];

  /** @param {import("../panel.js").Context} context */
  constructor(context) {
    super(context, "Timeline", "timeline");
    this.svg = make("svg", { role: "img", class: "lanes", height: "80" });
    this.empty = el("p", { class: "soft" }, "Nothing has been called yet.");
    this.legend = el(
      "p",
      { class: "legend soft" },
      el("span", { class: "key model" }), "model ",
      el("span", { class: "key tool" }), "tool ",
      el("span", { class: "key stopped" }), "stopped there",
    );
    this.body.append(this.svg, this.empty, this.legend);
    this.foldOnPhones();
    this.width = 0;
    this.isLive = false;
    new ResizeObserver(([entry]) => {
      const width = Math.floor(entry?.contentRect.width ?? 0);
      if (width === this.width) return;
      this.width = width;
      this.#paint();
    }).observe(this.body);
  }

  /** @param {RunView} view */
  draw(view) {
    this.isLive = !ENDED.has(view.status);
    this.#paint();
  }

  tick() {
    const view = this.context.live.view;
    if (this.isLive && view?.status !== "queued" && view?.status !== "paused") this.#paint();
  }

  #paint() {
    const view = this.context.live.view;
    if (!view || this.width < 40) return;
    const now = this.context.now();
    const begun = [...view.calls.values()].filter((call) => call.started_at && !call.reused_from);
    const isEmpty = begun.length === 0;
    this.empty.hidden = !isEmpty;
    this.svg.toggleAttribute("hidden", isEmpty);
    this.legend.hidden = isEmpty;
    if (isEmpty) return;
    const { strokes, lanes } = lay(begun, now, pausesOf(view));
    const end = view.finished_at ?? (view.status === "paused" ? Math.max(...strokes.map((one) => one.to)) + 0.3 : now);
    const last = Math.max(end, ...latest(strokes));
    const map = new TimeMap(strokes.flatMap(({ worked }) => worked), strokes[0]?.from ?? last, last);
    const drawing = new Drawing(map, this.width, lanes);
    const open = (/** @type {string} */ call) => this.context.open(call);
    const each = () => strokes.map((stroke) => drawing.stroke(stroke, this.context.lasted(stroke.call), open));
    const parts = [
      ...drawing.lanes(),
      ...drawing.folds(),
      ...drawing.axis(),
      ...(strokes.length > MANY ? drawing.merged(strokes) : each()),
      ...drawing.moments(view),
      ...(view.status === "running" ? [drawing.line(last, "now")] : []),
    ];
    mark(this.svg, "height", String(drawing.height));
    mark(this.svg, "viewBox", `0 0 ${this.width} ${drawing.height}`);
    mark(this.svg, "aria-label", sentence(begun, map));
    this.svg.replaceChildren(...parts);
  }
}

/** Enough of the last ones to know the end: thousands of arguments are too many. @param {Stroke[]} strokes */
function latest(strokes) {
  return strokes.slice(-64).map((one) => one.to);
}

/**
 * Each call in a lane of its kind; those that overlap lie below each other.
 * @param {CallBrief[]} calls
 * @param {number} now
 * @param {readonly import("./timeline_time.js").Interval[]} pauses
 */
function lay(calls, now, pauses) {
  /** @type {Stroke[]} */
  const strokes = [];
  /** @type {{label: string, kind: string}[]} */
  const lanes = [];
  for (const [kind, label] of LANES) {
    /** @type {number[]} */
    const ends = [];
    const first = lanes.length;
    for (const call of calls) {
      if (call.kind !== kind) continue;
      const from = call.started_at ?? now;
      const worked = without(from, Math.max(from, call.finished_at ?? now), kind === "ask" || kind === "undo" ? [] : pauses);
      const to = call.finished_at ?? worked.at(-1)?.to ?? from;
      let place = ends.findIndex((end) => end <= from + 0.001);
      if (place === -1) place = Math.min(ends.length, PLACES - 1);
      ends[place] = Math.max(ends[place] ?? 0, to);
      strokes.push({ call, from, to, lane: first + place, worked });
    }
    ends.forEach((_, n) => lanes.push({ kind, label: n === 0 ? label : "" }));
  }
  strokes.sort((one, other) => one.from - other.from);
  return { strokes, lanes };
}

/** @param {CallBrief[]} calls @param {TimeMap} map */
function sentence(calls, map) {
  const of = (/** @type {string} */ kind) => calls.filter((call) => call.kind === kind).length;
  const stopped = calls.filter((call) => call.stopped_by).length;
  const parts = [counted(of("model"), "model call"), counted(of("tool"), "tool call")];
  const rest = stopped ? `, ${stopped} stopped on the way` : "";
  return `${parts.join(" and ")} over ${goingOn(map.seconds)}${rest}. The list of calls has each of them.`;
}

/** Paths are kept by kind and lane. @param {string} key */
function kindOf(key) {
  return key.split(" ")[0] ?? "";
}

class Drawing {
  /**
   * @param {TimeMap} map
   * @param {number} width
   * @param {{label: string, kind: string}[]} lanes
   */
  constructor(map, width, lanes) {
    this.map = map;
    this.left = width < 480 ? 58 : LABELS;
    this.right = 10;
    this.width = width;
    this.rows = lanes;
    this.bottom = TOP + lanes.length * LANE;
    this.height = this.bottom + 22;
  }

  /** @param {number} at */
  x(at) {
    return this.left + this.map.x(at) * (this.width - this.left - this.right);
  }

  lanes() {
    return this.rows.flatMap(({ label }, n) => {
      const y = TOP + n * LANE + LANE - 2;
      return [
        make("line", { class: "lane", x1: this.left, x2: this.width, y1: y, y2: y }),
        ...(label ? [text(label, 0, y - 8, "label")] : []),
      ];
    });
  }

  axis() {
    const { seconds } = this.map;
    const room = this.width - this.left - this.right;
    const step = STEPS.find((one) => (one / Math.max(seconds, 1e-9)) * room >= 64) ?? seconds;
    const marks = [];
    let spent = 0;
    for (const stretch of this.map.stretches) {
      if (stretch.isFolded) continue;
      const length = stretch.to - stretch.from;
      for (let at = Math.ceil(spent / step) * step; at < spent + length; at += step) {
        const x = this.x(stretch.from + at - spent);
        if (x < this.width - 30) marks.push(text(axisWord(at), x, this.bottom + 16, "axis"));
      }
      spent += length;
    }
    return marks;
  }

  folds() {
    return this.map.folded.flatMap((fold) => {
      const x = this.left + fold.x * (this.width - this.left - this.right);
      const width = fold.width * (this.width - this.left - this.right);
      const box = make("rect", { class: "fold", x, y: TOP - 4, width, height: this.bottom - TOP + 2 });
      box.append(make("title", {}, `${goingOn(fold.to - fold.from)} in which nothing ran`));
      return [box];
    });
  }

  /** @param {Stroke} stroke @param {string} lasted @param {(call: string) => void} open */
  stroke({ call, from, to, lane, worked }, lasted, open) {
    const x = this.x(from);
    const width = Math.max(2.5, this.x(to) - x);
    const y = TOP + lane * LANE + 4;
    const isLive = !call.finished_at;
    const looks = `stroke ${call.kind} is-${call.shown}${isLive ? " live" : ""}`;
    const group = make("g", { class: looks, "data-call": call.id });
    group.append(make("rect", { x, y, width, height: BAR, rx: Math.min(3, width / 2) }));
    for (const [n, { to: frozen }] of worked.slice(0, -1).entries()) {
      const [start, end] = [this.x(frozen), this.x(worked[n + 1]?.from ?? to)];
      group.append(make("rect", { class: "frozen", x: start, y: y + 3, width: Math.max(0, end - start), height: BAR - 6 }));
    }
    if (call.stopped_by) {
      const end = { x: x + width - 1.5, y: y - 4, width: 3.5, height: BAR + 8, rx: 1 };
      group.append(make("rect", { class: `end ${call.stopped_by}`, ...end }));
    }
    const stopped = call.stopped_by ? `, stopped by ${wordFor("stopped_by", call.stopped_by)}` : "";
    group.append(make("title", {}, plain(`${call.name}: ${lasted}${stopped}`)));
    group.addEventListener("click", () => open(call.id));
    return group;
  }

  /** All calls of a lane as one path, where there are too many to draw each. @param {Stroke[]} strokes */
  merged(strokes) {
    /** @type {Map<string, {parts: string[], end: number, from: number}>} */
    const paths = new Map();
    /** @type {string[]} */
    const ends = [];
    const put = (/** @type {string} */ key, /** @type {{parts: string[], end: number, from: number}} */ path) => {
      const lane = Number(key.split(" ")[1]);
      const [from, width] = [path.from, Math.max(1, path.end - path.from)].map((n) => n.toFixed(1));
      path.parts.push(`M${from} ${TOP + lane * LANE + 4}h${width}v${BAR}H${from}z`);
    };
    for (const { call, from, to, lane } of strokes) {
      const key = `${call.kind} ${lane}`;
      const x = this.x(from);
      const end = this.x(to);
      const path = paths.get(key);
      if (call.stopped_by) ends.push(`M${end.toFixed(1)} ${TOP + lane * LANE}v${BAR + 8}`);
      if (!path) paths.set(key, { parts: [], from: x, end });
      else if (x - path.end < 0.8) path.end = Math.max(path.end, end);
      else {
        put(key, path);
        path.from = x;
        path.end = end;
      }
    }
    for (const [key, path] of paths) put(key, path);
    return [
      ...[...paths].map(([key, { parts }]) => make("path", { class: `merged ${kindOf(key)}`, d: parts.join("") })),
      make("path", { class: "ends", d: ends.join("") }),
    ];
  }

  /** The moments somebody asked for something. @param {RunView} view */
  moments(view) {
    let free = 0;
    return view.verbs.slice(-40).flatMap(({ verb, at }) => {
      if (!MARKED.has(verb)) return [];
      const word = capital(verb);
      const x = this.x(at);
      const line = make("line", { class: `moment ${verb}`, x1: x, x2: x, y1: TOP - 6, y2: this.bottom });
      const width = word.length * 7 + 8;
      const isRight = x + width > this.width;
      const from = isRight ? x - width : x;
      if (from < free) return [line];
      free = from + width;
      return [line, text(word, x, TOP - 11, `word ${verb}${isRight ? " right" : ""}`)];
    });
  }

  /** @param {number} at @param {string} name */
  line(at, name) {
    const x = this.x(at);
    return make("line", { class: name, x1: x, x2: x, y1: TOP - 6, y2: this.bottom });
  }
}

const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600, 7200, 14400, 43200, 86400];

/** @param {number} seconds */
function axisWord(seconds) {
  if (seconds < 60) return `${Number(seconds.toFixed(1))} s`;
  return seconds < 3600 ? `${Number((seconds / 60).toFixed(1))} min` : `${Number((seconds / 3600).toFixed(1))} h`;
}

/**
 * @param {string} name
 * @param {Record<string, string | number>} attributes
 * @param {string} [content]
 */
function make(name, attributes, content = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    element.setAttribute(key, typeof value === "number" ? String(Math.round(value * 10) / 10) : value);
  }
  if (content) element.textContent = content;
  return element;
}

/** @param {string} content @param {number} x @param {number} y @param {string} name */
function text(content, x, y, name) {
  return make("text", { class: name, x, y }, content);
}
