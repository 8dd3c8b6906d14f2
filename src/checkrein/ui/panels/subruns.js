// @ts-check
/** Runs that this run has started, as a tree. Each has a bar of its own. */

import "../elements/checkrein-bar.js";
import { el, Keyed, look, mark, say } from "../lib/dom.js";
import { oneLine } from "../lib/escape.js";
import { RunStore } from "../connection/run_store.js";
import { polling } from "../connection/transports.js";
import { counted, standing } from "../lib/words.js";
import { Panel } from "./panel.js";

/** @typedef {import("../lib/types.js").RunView} RunView */
/** @typedef {import("../lib/types.js").CallBrief} CallBrief */

/** So many are looked at by themselves; the rest when they are opened. */
const LOOKED_AT = 6;

export class SubrunsPanel extends Panel {
  static needs = ["calls"];

  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    super(context, "Runs it started", "subruns");
    this.count = el("span", { class: "count" });
    this.head.append(this.count);
    this.tree = new Tree(context);
    this.body.append(this.tree.element);
  }

  /** @param {RunView} view */
  draw(view) {
    const calls = subruns(view);
    this.show(calls.length > 0);
    say(this.count, calls.length ? counted(calls.length, "run") : "");
    this.tree.show(calls);
  }

  /** What whoever looks may do. @param {string | null} may */
  may(may) {
    for (const bar of this.body.querySelectorAll("checkrein-bar")) mark(bar, "may", may);
  }

  close() {
    this.tree.close();
  }
}

/** @param {RunView} view */
function subruns(view) {
  return [...view.calls.values()].filter((call) => call.kind === "run" && call.run);
}

/** The runs below one run. */
class Tree {
  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    this.context = context;
    this.element = el("ul", { class: "tree" });
    /** @type {Map<string, Branch>} */
    this.branches = new Map();
    this.rows = new Keyed(
      this.element,
      (/** @type {CallBrief} */ call) => call.id,
      (call) => this.#branch(call).element,
      (_, call) => this.#branch(call).draw(call),
    );
  }

  /** @param {CallBrief[]} calls */
  show(calls) {
    this.rows.show(calls);
  }

  /** @param {CallBrief} call */
  #branch(call) {
    let branch = this.branches.get(call.id);
    if (!branch) {
      branch = new Branch(this.context, call.run ?? "", this.branches.size < LOOKED_AT);
      this.branches.set(call.id, branch);
    }
    return branch;
  }

  close() {
    for (const branch of this.branches.values()) branch.close();
  }
}

/** One run in the tree: what it is about, how it stands, its bar, and what is below it. */
class Branch {
  /**
   * @param {import("./panel.js").Context} context
   * @param {string} run
   * @param {boolean} isOpen
   */
  constructor(context, run, isOpen) {
    this.context = context;
    this.run = run;
    this.glyph = el("span", { class: "glyph" });
    this.goal = el("span", { class: "goal" });
    this.word = el("span", { class: "word" });
    this.place = el("div", { class: "branch-bar" });
    this.link = el("a", { href: context.runUrl(run), class: "small" }, "Open as a page");
    const summary = el("summary", null, this.glyph, this.goal, this.word);
    this.details = el("details", { class: "branch" }, summary, this.place, this.link);
    this.element = el("li", { "data-run": run }, this.details);
    /** @type {RunStore | null} */
    this.live = null;
    /** @type {Tree | null} */
    this.below = null;
    this.details.addEventListener("toggle", () => (this.details.open ? this.#open() : this.close()));
    this.details.open = isOpen;
  }

  /** @param {CallBrief} call */
  draw(call) {
    if (this.live?.view) return;
    mark(this.details, "data-shown", call.shown);
    mark(this.word, "class", `word is-${call.shown}`);
    look(this.glyph, call.shown);
    mark(this.glyph, "class", `glyph is-${call.shown}`);
    say(this.goal, call.summary || call.name);
  }

  #open() {
    if (this.live) return;
    const live = new RunStore(this.context.api, this.run, polling);
    this.live = live;
    live.addEventListener("change", () => this.#changed());
    const bar = /** @type {any} */ (document.createElement("checkrein-bar"));
    bar.setAttribute("inline", "");
    bar.setAttribute("without-receipt", "");
    mark(bar, "may", this.context.may);
    bar.live = live;
    this.place.replaceChildren(bar);
    live.open();
  }

  close() {
    this.live?.close();
    this.live = null;
    this.place.replaceChildren();
    this.below?.close();
  }

  #changed() {
    const view = this.live?.view;
    if (!view) return;
    const { word, shape } = standing(view);
    look(this.glyph, shape);
    mark(this.glyph, "class", `glyph is-${shape}`);
    mark(this.word, "class", `word is-${shape}`);
    say(this.goal, oneLine(`${view.agent}: ${view.goal}`, 160));
    say(this.word, word);
    const calls = subruns(view);
    if (calls.length && !this.below) {
      this.below = new Tree(this.context);
      this.element.append(this.below.element);
    }
    this.below?.show(calls);
  }
}
