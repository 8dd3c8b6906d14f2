// @ts-check
/** Every call, in the order they began. Each opens to what it was given, what came of it, and how long it took. */

import { copyButton, el, Keyed, look, mark, parts, say } from "../lib/dom.js";
import { oneLine, plain } from "../lib/escape.js";
import { markdown } from "../lib/markdown.js";
import { moment } from "../lib/time.js";
import { block, fields } from "../lib/value.js";
import { capital, counted, wordFor } from "../lib/words.js";
import { decisionButton, message, Panel } from "./panel.js";

/** @typedef {import("../lib/types.js").CallBrief} CallBrief */
/** @typedef {import("../lib/types.js").CallWhole} CallWhole */

const FIRST = 30;
const WINDOW = 200;
const AGAIN_MS = 1_000;

/**
 * How a call ended, or where it stands: `Done`, `Running`, `Killed, undone`.
 * @param {string} now
 */
export function nowWord(now) {
  const words = now.split(", ").map((one) => wordFor(one === "completed" ? "outcomes" : "stopped_calls", one));
  return capital(words.join(", "));
}

/**
 * Why no tool fits what the model asked for; empty where one did.
 * @param {CallBrief} call
 */
export function whyRefused(call) {
  return call.now === "refused" ? oneLine(call.error ?? "", 120) : "";
}

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
    this.foldOnPhones();
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

  /** @param {import("../lib/types.js").RunView} view */
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
    this.unfold();
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
      el("span", { class: "kind" }, wordFor("kinds", call.kind)),
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
    say(given, whyRefused(call) || this.#about(call));
    say(now, call.reused_from ? "Taken over" : nowWord(call.now));
    say(time, call.reused_from ? "" : this.context.lasted(call));
    this.opened.get(call.id)?.changed(call);
  }

  /** What it was given, in a line; of a model, what it said. @param {CallBrief} call */
  #about(call) {
    if (call.kind !== "model") return call.summary ?? "";
    return oneLine(this.context.live.texts.get(call.id)?.text ?? "", 120);
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
    ...(isModel ? [] : [el("h3", null, "What it was given"), fields(call.given, `What ${call.name} was given`)]),
    ...consent(call),
    ...(isModel ? said(call) : brought(call)),
    ...filesOf(call, context),
    ...(call.error ? [el("h3", null, "What went wrong"), block(call.error, "What went wrong")] : []),
    call.traceback && folded("Where in its code", [block(call.traceback, "Where in its code")]),
    ...unstopped(call),
    isModel && call.given?.length && folded("What it was given", [fields(call.given, "What the model was given")]),
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
  if (call.now === "refused") return [el("p", { class: "soft" }, "Nothing was begun.")];
  if (call.brought && call.brought.type !== "null") {
    return [el("h3", null, "What came of it"), block(call.brought.text, `What came of ${call.name}`)];
  }
  if (call.text) return [el("h3", null, "What it had said by then"), block(call.text, "What it had said by then")];
  return !call.finished_at ? [] : [el("p", { class: "soft" }, "It brought no result.")];
}

/** Who agreed to it, and what it had asked for where they wanted something else. @param {CallWhole} call */
function consent(call) {
  const { approved_by: by, edited_by: editor, resolved_by: resolver } = call;
  const words = editor
    ? `${editor} approved it with other values than it had asked for.`
    : [by && `Approved by ${by}.`, resolver && `What became of it was said by ${resolver}.`].filter(Boolean).join(" ");
  if (!words) return [];
  const asked = editor ? [folded("What it had asked for", [fields(call.asked_for, `What ${call.name} had asked for`)])] : [];
  return [el("p", { class: "soft" }, plain(words)), ...asked];
}

/** What a stop waits for, and what it could not stop. @param {CallWhole} call */
function unstopped(call) {
  const left = call.left ?? [];
  return [
    ...(call.waits_for ? [el("p", null, `Its stop waits for ${plain(call.waits_for)}.`)] : []),
    ...(left.length ? [el("h3", null, "What could not be stopped"), block(left.join("\n"), "What could not be stopped")] : []),
  ];
}

/** @param {CallWhole} call @param {import("./panel.js").Context} context */
function times(call, context) {
  if (!call.started_at) return el("p", { class: "soft" }, `${nowWord(call.now)}. It has not begun.`);
  const lasted = context.lasted(call);
  const by = call.stopped_by ? `, stopped by ${wordFor("stopped_by", call.stopped_by)}` : "";
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
  const consequence = "the agent is told, and goes on without it";
  const made = decisionButton(context.sender, "abort", call.id, { label: "Stop this call", consequence, kind: "small" });
  return [el("p", null, made.button, made.trouble)];
}

// -- files that a call has published: where they are, and, when somebody wants to see it, what is in them

/**
 * @param {import("../lib/types.js").CallWhole} call
 * @param {import("./panel.js").Context} context
 * @returns {Node[]}
 */
function filesOf(call, context) {
  const files = call.files ?? [];
  if (!files.length) return [];
  const shown = files.map((path, number) => {
    const inside = el("div", null);
    const details = el("details", { class: "file" }, el("summary", null, el("code", null, plain(path))), inside);
    details.addEventListener("toggle", () => {
      if (details.open) void read(context, context.callPath(call.id, `/files/${number}`), path, inside);
    });
    return el("li", null, details);
  });
  return [el("h3", null, files.length === 1 ? "The file it wrote" : "The files it wrote"), el("ul", null, ...shown)];
}

/**
 * @param {import("./panel.js").Context} context
 * @param {string} address
 * @param {string} path
 * @param {HTMLElement} place
 */
async function read(context, address, path, place) {
  try {
    place.replaceChildren(block(await context.api.text(address), `What is in ${path}`));
  } catch (error) {
    place.replaceChildren(el("p", { class: "trouble", role: "alert" }, plain(message(error))));
  }
}
