// @ts-check
/** How a run stands, in one line: its status, its time, its steps, and what it has used of what it may use. */
import { el, Keyed, mark, say } from "../lib/dom.js";
import { shape } from "../lib/shapes.js";
import { clock } from "../lib/time.js";
import { amount, capKind, capWords, isNear, plural, share, standing, stepWords } from "../lib/words.js";

/** @import { RunStore } from "../connection/run_store.js" */
/** @import { CapView, RunView } from "../lib/types.js" */

/** @typedef {{ key: string, words: string, share: number | null, isNear: boolean }} Fact */

export class StatusLine {
  #shown = "";
  #status = el("span", { class: "status" });
  #word = el("span", null);
  #besides = el("span", { class: "besides" });
  #clock = el("span", { class: "clock", role: "timer" });
  #most = el("span", { class: "mono soft most" });
  #step = el("span", { class: "mono" });
  #list = el("span", { class: "caps" });
  /** @type {Keyed<Fact, HTMLSpanElement>} */
  #caps = new Keyed(this.#list, (fact) => fact.key, () => makeFact(), drawFact);

  constructor() {
    const label = el("span", { class: "unseen" }, "Time at work ");
    const time = el("span", { class: "time" }, label, this.#clock, this.#most);
    this.element = el("div", { class: "facts" }, this.#status, time, this.#step, this.#list);
  }

  /**
   * @param {RunView} view
   * @param {RunStore} live
   */
  show(view, live) {
    const lost = live.state !== "live";
    const { word, shape: name } = standing(view);
    this.#showStatus(lost ? "lost" : name, lost ? `${word.replace("…", "")} when last seen` : word);
    say(this.#step, stepWords(view));
    this.#step.hidden = view.steps.length === 0;
    this.#caps.show([...facts(view)]);
    this.tick(view, live);
  }

  /**
   * Only time has passed.
   * @param {RunView} view
   * @param {RunStore} live
   */
  tick(view, live) {
    const seconds = live.elapsed();
    say(this.#clock, clock(seconds));
    const cap = view.caps.find((one) => capKind(one) === "Elapsed");
    say(this.#most, cap ? ` of ${clock(cap.allowed)}` : "");
    const near = cap !== undefined && isNear({ ...cap, used: seconds });
    mark(this.#clock, "data-near", near ? "" : null);
    mark(this.#most, "data-near", near ? "" : null);
  }

  /**
   * @param {string} name
   * @param {string} word
   */
  #showStatus(name, word) {
    if (this.#shown !== name) {
      this.#shown = name;
      this.#status.className = `status is-${name}`;
      this.#status.replaceChildren(shape(name), el("span", null, this.#word, this.#besides));
    }
    const [status = "", ...besides] = word.split(",");
    say(this.#word, status);
    say(this.#besides, besides.length ? `,${besides.join(",")}` : "");
  }
}

/**
 * Turns, tokens and cost, each against its cap, and every other cap; what has no cap is said too.
 * @param {RunView} view
 * @returns {Generator<Fact>}
 */
function* facts(view) {
  const kinds = new Set(view.caps.map(capKind));
  for (const cap of view.caps) {
    if (capKind(cap) !== "Elapsed" && !isIdle(cap)) {
      yield { key: cap.label, words: capWords(cap), share: share(cap), isNear: isNear(cap) };
    }
  }
  const { turns = 0, input_tokens = 0, output_tokens = 0, cost_usd = 0, estimated = false } = view.usage;
  const tokens = input_tokens + output_tokens;
  if (!kinds.has("Turns") && turns) yield free("turns", plural(turns, "turn"));
  if (!kinds.has("Tokens") && tokens) yield free("tokens", `${estimated ? "about " : ""}${amount(tokens)} tokens`);
  if (!kinds.has("Cost") && cost_usd) yield free("cost", `$${cost_usd.toFixed(2)}`);
}

/** Whether there is nothing to tell about a cap: repeats, as long as there are none. @param {CapView} cap */
function isIdle(cap) {
  return capKind(cap) === "Repeats" && !isNear(cap);
}

/** @param {string} key @param {string} words @returns {Fact} */
function free(key, words) {
  return { key, words, share: null, isNear: false };
}

function makeFact() {
  return el("span", { class: "cap mono" }, el("span", { class: "words" }), el("span", { class: "meter" }, el("i")));
}

/** @param {HTMLElement} element @param {Fact} fact */
function drawFact(element, fact) {
  const [words, meter] = /** @type {HTMLElement[]} */ ([...element.children]);
  if (!words || !meter) return;
  mark(element, "data-near", fact.isNear ? "" : null);
  const text = fact.isNear ? `${fact.words}, near its cap` : fact.words;
  if (words.dataset.text !== text) {
    words.dataset.text = text;
    words.replaceChildren(...(fact.isNear ? [shape("near"), ` ${text}`] : [text]));
  }
  meter.hidden = fact.share === null;
  /** @type {HTMLElement} */ (meter.firstElementChild).style.inlineSize = `${Math.round((fact.share ?? 0) * 100)}%`;
}
