// @ts-check
/** Every call, in the order they began. Each opens to what it was given, what came of it, and how long it took. */

import { copyButton, el, Keyed, look, mark, parts, say } from "./dom.js";
import { markdown } from "./markdown.js";
import { asking, message, Panel } from "./panel.js";
import { filesOf } from "./files.js";
import { plain } from "./plain.js";
import { counted, moment } from "./times.js";
import { block, fields, textOf } from "./value.js";

/** @typedef {import("./types.js").CallBrief} CallBrief */
/** @typedef {import("./types.js").CallWhole} CallWhole */

const FIRST = 30;
const WINDOW = 200;
const AGAIN_MS = 1_000;

/** How a call ended, or where it stands, in plain words. @type {Record<string, string>} */
const NOW = {
  completed: "Done",
  failed: "Failed",
  aborted: "Stopped",
  killed: "Stopped by force",
  detached: "Could not be stopped; what it brings is dropped",
  in_doubt: "Nobody knows whether it happened",
  running: "Running",
  stopping: "Stopping",
  held: "Frozen where it is",
  "aborted, undone": "Stopped and undone",
  "killed, undone": "Stopped and undone",
};

/** @param {string} now */
export function nowWord(now) {
  return NOW[now] ?? now.charAt(0).toUpperCase() + now.slice(1);
}

/** @type {Record<string, string>} */
const KINDS = { model: "Model", tool: "Tool", ask: "Question", undo: "Undo", run: "Sub-run" };

export class CallsPanel extends Panel {
  static needs = ["calls"];

  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    super(context, "Every call", "calls");
    this.limit = FIRST;
    /** @type {Map<string, OpenCall>} */
    this.opened = new Map();
    this.count = el("span", { class: "count" });
    this.head.append(this.count);
    this.more = el("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.#showMore() });
    this.list = el("ol", { class: "rows" });
    this.empty = el("p", { class: "soft" }, "None yet.");
    this.body.append(this.more, this.list, this.empty);
    /** @type {CallBrief[]} */
    this.live = [];
    this.rows = new Keyed(
      this.list,
      (/** @type {CallBrief} */ call) => call.id,
      (call) => this.#make(call),
      (row, call) => this.#draw(row, call),
    );
    context.open = (call) => this.openCall(call);
  }

  /** @param {import("./types.js").RunView} view */
  draw(view) {
    const count = view.calls.size;
    say(this.count, count ? counted(count, "call") : "");
    this.empty.hidden = count > 0;
    const from = Math.max(0, count - this.limit);
    this.more.hidden = from === 0;
    const next = counted(Math.min(WINDOW, from), "earlier call");
    if (from) say(this.more, `Show ${next} (${from.toLocaleString("en")} more)`);
    const shown = from === 0 ? [...view.calls.values()] : [...view.calls.values()].slice(from);
    this.rows.show(shown);
    this.live = shown.filter((call) => call.started_at && !call.finished_at);
  }

  tick() {
    for (const call of this.live) this.rows.again(call.id);
  }

  /** Show a call, opened and in view. @param {string} call */
  openCall(call) {
    const view = this.context.live.view;
    if (!view?.calls.has(call)) return;
    const place = [...view.calls.keys()].indexOf(call);
    this.limit = Math.max(this.limit, view.calls.size - place);
    this.draw(view);
    const row = this.rows.element(call);
    const details = row?.querySelector("details");
    if (!row || !details) return;
    details.open = true;
    row.scrollIntoView({ block: "center" });
    row.querySelector("summary")?.focus({ preventScroll: true });
  }

  #showMore() {
    this.limit += WINDOW;
    if (this.context.live.view) this.draw(this.context.live.view);
  }

  /** @param {CallBrief} call */
  #make(call) {
    const summary = el(
      "summary",
      null,
      el("span", { class: "glyph" }),
      el("span", { class: "kind" }, KINDS[call.kind] ?? call.kind),
      el("span", { class: "name" }),
      el("span", { class: "given" }),
      el("span", { class: "now" }),
      el("span", { class: "time" }),
    );
    const inside = el("div", { class: "opened" });
    const details = el("details", { class: "call" }, summary, inside);
    details.addEventListener("toggle", () => this.#toggle(call.id, details, inside));
    return el("li", { "data-call": call.id }, details);
  }

  /** @param {HTMLElement} row @param {CallBrief} call */
  #draw(row, call) {
    const summary = /** @type {HTMLElement} */ (row.querySelector("summary"));
    const { glyph, name, given, now, time } = parts(summary);
    mark(summary, "class", `is-${call.shown}`);
    look(glyph, call.shown);
    say(name, call.kind === "undo" ? `undo of ${call.name}` : call.name);
    say(given, call.summary ?? "");
    say(now, nowWord(call.now));
    say(time, this.context.lasted(call));
    this.opened.get(call.id)?.changed(call);
  }

  /** @param {string} id @param {HTMLDetailsElement} details @param {HTMLElement} inside */
  #toggle(id, details, inside) {
    if (details.open && !this.opened.has(id)) this.opened.set(id, new OpenCall(this.context, id, inside));
    if (!details.open) this.opened.delete(id);
  }
}

/** A call that is open: everything about it, asked for when it opens and whenever it has changed. */
class OpenCall {
  /** @type {CallBrief | undefined} */
  #seen;
  #isWaiting = false;

  /**
   * @param {import("./panel.js").Context} context
   * @param {string} id
   * @param {HTMLElement} place
   */
  constructor(context, id, place) {
    this.context = context;
    this.id = id;
    this.place = place;
    this.#seen = context.live.view?.calls.get(id);
    void this.#load();
  }

  /** @param {CallBrief} call */
  changed(call) {
    if (call === this.#seen) return;
    this.#seen = call;
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    setTimeout(() => {
      this.#isWaiting = false;
      void this.#load();
    }, AGAIN_MS);
  }

  async #load() {
    if (!this.place.firstChild) this.place.append(el("p", { class: "soft" }, "Looking it up…"));
    try {
      const whole = /** @type {CallWhole} */ (await this.context.api.get(this.context.callPath(this.id)));
      this.place.replaceChildren(...detail(whole, this.context));
    } catch (error) {
      this.place.replaceChildren(el("p", { class: "trouble", role: "alert" }, plain(message(error))));
    }
  }
}

/**
 * @param {CallWhole} call
 * @param {import("./panel.js").Context} context
 * @returns {Node[]}
 */
function detail(call, context) {
  const isModel = call.kind === "model" || call.kind === "ask";
  return [
    times(call, context),
    call.kind === "run" && call.run && el("p", null, el("a", { href: context.runUrl(call.run) }, "Open this sub-run")),
    ...(isModel ? [] : [el("h3", null, "What it was given"), fields(call.arguments, `What ${call.name} was given`)]),
    ...(isModel ? said(call) : brought(call)),
    ...filesOf(call, context),
    ...(call.error ? [el("h3", null, "What went wrong"), block(call.error, "What went wrong")] : []),
    isModel && call.arguments && folded("What it was given", [fields(call.arguments, "What the model was given")]),
    folded("For the record", [record(call)]),
    ...stop(call, context),
  ].filter((node) => node instanceof Node);
}

/** @param {CallWhole} call */
function said(call) {
  const text = call.text ?? "";
  const thought = call.thinking ? [folded("What it thought", [block(call.thinking, "What it thought")])] : [];
  if (!text) return [el("p", { class: "soft" }, "It said nothing in words."), ...thought];
  const isWhole = call.now === "completed" && typeof call.html === "string";
  const shown = isWhole
    ? el("div", { class: "block" }, rendered(call.html ?? ""), copyButton(() => text, "what it said"))
    : block(text, "What it said");
  return [el("h3", null, isWhole ? "What it said" : "What it had said by then"), shown, ...thought];
}

/** @param {string} html */
function rendered(html) {
  return el("div", { class: "markdown" }, markdown(html));
}

/** @param {CallWhole} call */
function brought(call) {
  if (call.result !== undefined && call.result !== null) {
    return [el("h3", null, "What came of it"), block(textOf(call.result), `What came of ${call.name}`)];
  }
  if (call.text) return [el("h3", null, "What it had said by then"), block(call.text, "What it had said by then")];
  return !call.finished_at ? [] : [el("p", { class: "soft" }, "It brought no result.")];
}

/** @param {CallWhole} call @param {import("./panel.js").Context} context */
function times(call, context) {
  if (!call.started_at) return el("p", { class: "soft" }, `${nowWord(call.now)}. It has not begun.`);
  const lasted = context.lasted(call);
  const by = call.stopped_by ? `, stopped by ${call.stopped_by}` : "";
  const ended = !call.finished_at ? `for ${lasted} already` : `took ${lasted}${by}`;
  return el("p", { class: "soft" }, `${nowWord(call.now)}. Began at ${moment(call.started_at)}, ${ended}.`);
}

/** Words of the runtime, for those who want them. @param {CallWhole} call */
function record(call) {
  const { id, kind, now, attempt = 1, step } = call;
  const list = el("dl", { class: "fields" });
  for (const [name, value] of Object.entries({ call: id, kind, outcome: now, attempt, step })) {
    if (value) list.append(el("dt", null, name), el("dd", null, plain(String(value))));
  }
  return list;
}

/** @param {string} title @param {Node[]} inside */
function folded(title, inside) {
  return el("details", { class: "folded" }, el("summary", null, title), ...inside);
}

/** @param {CallWhole} call @param {import("./panel.js").Context} context */
function stop(call, context) {
  if (call.kind !== "tool" || call.now !== "running" || !context.maySteer) return [];
  const abort = () => context.api.post(context.callPath(call.id, "/abort"));
  const made = asking("Stop this call", "the agent is told, and goes on without it", abort, "small");
  return [el("p", null, made.button, made.trouble)];
}
