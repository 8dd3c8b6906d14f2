// @ts-check
/**
 * What the agent says: the text of its latest model calls, and between them a line for each thing it did. A text that
 * streams is plain; once it is finished it is shown as the Markdown that the server rendered of it. A text that was cut
 * off stays where it is.
 */

import { copyButton, el, Keyed, look, mark, say } from "../lib/dom.js";
import { plain } from "../lib/escape.js";
import { markdown } from "../lib/markdown.js";
import { ENDED } from "../lib/types.js";
import { capital, wordFor } from "../lib/words.js";
import { nowWord, whyRefused } from "./calls.js";
import { Panel } from "./panel.js";

/** @typedef {import("../lib/types.js").CallBrief} CallBrief */
/** @typedef {import("../lib/types.js").CallWhole} CallWhole */

const FIRST = 24;
const MORE = 40;

/** From so many lines on, the first ones make room. All of the text stays readable by opening its call. */
const LINES = 1_500;

/** How far from the end still counts as being there, in pixels. */
const NEAR = 40;

export class TextPanel extends Panel {
  static needs = ["calls", "status"];

  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    super(context, "What it says and does", "text");
    this.limit = FIRST;
    /** @type {Map<string, Block>} */
    this.blocks = new Map();
    /** @type {CallBrief[]} */
    this.live = [];
    /** @type {Set<string>} */
    this.dirty = new Set();
    /** @type {string[]} */
    this.toLoad = [];
    this.isLoading = false;
    this.more = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.#showMore() });
    this.list = el("div", { class: "said" });
    this.empty = el("p", { class: "soft" });
    this.scroller = el(
      "div",
      { class: "scroller", tabIndex: 0, role: "region", "aria-label": "What the agent says and does" },
      this.more,
      this.list,
      this.empty,
    );
    const onclick = () => this.#toEnd();
    this.end = el("button", { type: "button", class: "to-end", hidden: true, onclick }, "↓ To the end");
    this.body.append(this.scroller, this.end);
    this.copy = copyButton(() => this.#all(), "what it says");
    this.head.append(this.copy);
    this.isAtEnd = true;
    this.hasGrown = false;
    this.scroller.addEventListener("scroll", () => this.#onScroll(), { passive: true });
    this.rows = new Keyed(
      this.list,
      (/** @type {CallBrief} */ call) => call.id,
      (call) => (call.kind === "model" ? this.#block(call.id).element : this.#deed(call.id)),
      (row, call) => (call.kind === "model" ? this.#block(call.id).draw(call) : this.#drawDeed(row, call)),
    );
  }

  /** A text has grown. Shown with the next frame. @param {string} call */
  grew(call) {
    this.dirty.add(call);
  }

  /** @param {import("../lib/types.js").RunView} view */
  draw(view) {
    const calls = [...view.calls.values()].filter((call) => this.#isTold(call));
    const from = Math.max(0, calls.length - this.limit);
    const shown = calls.slice(from);
    this.more.hidden = from === 0;
    if (from) say(this.more, "Show what was earlier");
    const kept = new Set(shown.map((call) => call.id));
    this.live = shown.filter((call) => call.kind !== "model" && call.started_at && !call.finished_at);
    for (const id of this.blocks.keys()) if (!kept.has(id)) this.blocks.delete(id);
    this.rows.show(shown);
    this.empty.hidden = shown.length > 0;
    this.copy.hidden = this.blocks.size === 0;
    say(this.empty, emptyWords(view.status));
    for (const call of shown) this.dirty.add(call.id);
    this.flush();
    this.#wantWhole(shown);
  }

  /** Show what has streamed since the last frame. */
  flush() {
    for (const id of this.dirty) {
      const told = this.context.live.texts.get(id);
      const block = this.blocks.get(id);
      if (told && block) block.stream(told);
    }
    this.dirty.clear();
    this.hasGrown = true;
  }

  /** Stay at the end, for those who are there. It makes the page be laid out, so everything else is drawn before. */
  follow() {
    if (!this.hasGrown) return;
    this.hasGrown = false;
    if (this.isAtEnd) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  tick() {
    for (const call of this.live) this.rows.again(call.id);
  }

  /** @param {CallBrief} call */
  #isTold(call) {
    if (call.kind === "tool" || call.kind === "run") return true;
    return call.kind === "model" && ((call.partial_chars ?? 0) > 0 || this.context.live.texts.has(call.id));
  }

  // -- what it did in between

  /** @param {string} id */
  #deed(id) {
    const onclick = () => this.context.open(id);
    const name = el("button", { type: "button", class: "link name", title: "Open this call", onclick });
    const [glyph, word, time] = ["glyph", "word", "time"].map((part) => el("span", { class: part }));
    return el("p", { class: "deed" }, glyph, name, word, time);
  }

  /** @param {HTMLElement} row @param {CallBrief} call */
  #drawDeed(row, call) {
    const [glyph, name, word, time] = /** @type {HTMLElement[]} */ ([...row.children]);
    if (!glyph || !name || !word || !time) return;
    mark(row, "class", `deed is-${call.shown}`);
    look(glyph, call.shown);
    say(name, call.name);
    const why = whyRefused(call);
    say(word, call.shown === "done" ? "" : `${nowWord(call.now)}${why ? `: ${why}` : ""}`);
    say(time, this.context.lasted(call));
  }

  /** @param {string} id */
  #block(id) {
    let block = this.blocks.get(id);
    if (!block) {
      block = new Block();
      this.blocks.set(id, block);
    }
    return block;
  }

  // -- whole texts, one request at a time and the latest first

  /** @param {CallBrief[]} shown */
  #wantWhole(shown) {
    const { texts } = this.context.live;
    const wanted = shown.filter((call) => this.blocks.get(call.id)?.wants(call, texts.has(call.id)));
    this.toLoad = wanted.map((call) => call.id);
    if (this.toLoad.length && !this.isLoading) void this.#load();
  }

  async #load() {
    this.isLoading = true;
    for (let id = this.toLoad.pop(); id !== undefined; id = this.toLoad.pop()) {
      const block = this.blocks.get(id);
      try {
        const whole = /** @type {CallWhole} */ (await this.context.api.get(this.context.callPath(id)));
        block?.render(whole);
      } catch {
        block?.giveUp();
      }
      this.hasGrown = true;
      this.follow();
    }
    this.isLoading = false;
  }

  #all() {
    return [...this.blocks.values()].map((block) => block.text()).join("\n\n");
  }

  // -- scrolling

  #onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.isAtEnd = scrollHeight - scrollTop - clientHeight < NEAR;
    this.end.hidden = this.isAtEnd;
  }

  #toEnd() {
    this.isAtEnd = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.scroller.focus({ preventScroll: true });
  }

  #showMore() {
    this.limit += MORE;
    this.isAtEnd = false;
    if (this.context.live.view) this.draw(this.context.live.view);
  }
}

/** @param {import("../lib/types.js").Status} status */
function emptyWords(status) {
  if (status === "queued") return `${capital(wordFor("why_not", status))}.`;
  return ENDED.has(status) ? "It has not said anything." : "It has not said anything yet.";
}

/** What is said of a text that did not come to its end. @param {CallBrief} call */
function cutWords({ now, stopped_by: verb }) {
  if (!verb) return now === "failed" ? "It broke off here." : "It was cut off here.";
  const rest = verb === "pause" ? "Resume goes on from here, or asks it again." : "This text is kept.";
  return `Stopped here by ${wordFor("stopped_by", verb)}. ${rest}`;
}

/** The text of one model call. */
class Block {
  constructor() {
    this.streamed = new Streamed();
    this.note = el("p", { class: "cut", hidden: true });
    this.element = el("div", { class: "saying" }, this.streamed.element, this.note);
    this.attempt = 0;
    this.isRendered = false;
    this.hasFailed = false;
    this.raw = "";
  }

  /** @param {CallBrief} call */
  draw(call) {
    const isLive = !call.finished_at;
    if ((call.attempt ?? 1) !== this.attempt) {
      this.attempt = call.attempt ?? 1;
      this.isRendered = this.hasFailed = false;
    }
    this.streamed.goesOn(isLive && call.shown === "running");
    mark(this.element, "data-now", call.now);
    const isCut = !isLive && call.now !== "completed";
    this.note.hidden = !isCut;
    if (isCut) say(this.note, cutWords(call));
  }

  /** @param {{attempt: number, text: string}} told */
  stream(told) {
    if (this.isRendered) {
      if (told.attempt === this.attempt) return;
      this.isRendered = false;
      this.element.replaceChildren(this.streamed.element, this.note);
    }
    this.raw = told.text;
    this.streamed.show(told);
  }

  /**
   * Whether the whole text must be asked for: it is finished, or none of it has come by the stream.
   * @param {CallBrief} call
   * @param {boolean} isStreamed
   */
  wants(call, isStreamed) {
    if (this.isRendered || this.hasFailed) return false;
    return call.now === "completed" || (!isStreamed && Boolean(call.finished_at));
  }

  /** @param {CallWhole} whole */
  render(whole) {
    this.raw = whole.text ?? "";
    if (whole.now === "completed" && typeof whole.html === "string") {
      this.isRendered = true;
      this.element.replaceChildren(el("div", { class: "markdown" }, markdown(whole.html)), this.note);
    } else {
      this.hasFailed = true;
      this.streamed.show({ attempt: whole.attempt ?? 1, text: this.raw });
    }
  }

  giveUp() {
    this.hasFailed = true;
  }

  text() {
    return this.raw;
  }
}

/**
 * Text that streams, as lines of text nodes. Only the last line ever changes, so a long text costs no more to
 * continue than a short one.
 */
class Streamed {
  constructor() {
    this.caret = el("span", { class: "caret", "aria-hidden": "true", hidden: true });
    this.element = el("div", { class: "streamed" });
    this.length = 0;
    this.attempt = 0;
    this.last = "";
    this.text = document.createTextNode("");
    this.clear();
  }

  clear() {
    this.length = 0;
    this.attempt = 0;
    this.last = "";
    this.element.replaceChildren();
    this.#newLine();
  }

  /**
   * Show this text, which begins with what is shown already unless it is of another attempt.
   * @param {{attempt: number, text: string}} told
   */
  show(told) {
    if (told.attempt !== this.attempt || told.text.length < this.length) this.clear();
    this.attempt = told.attempt;
    if (told.text.length > this.length) this.#append(told.text.slice(this.length));
    this.length = told.text.length;
  }

  /** @param {boolean} isLive */
  goesOn(isLive) {
    this.caret.hidden = !isLive;
  }

  /** @param {string} text */
  #append(text) {
    const shown = plain(text, this.last);
    this.last = text.slice(-2);
    shown.split("\n").forEach((piece, n) => {
      if (n > 0) this.#newLine();
      if (piece) this.text.appendData(piece);
    });
  }

  #newLine() {
    this.text = document.createTextNode("");
    this.element.append(el("p", null, this.text, this.caret));
    if (this.element.childElementCount > LINES) this.element.firstElementChild?.remove();
  }
}
