// @ts-check
/**
 * Everything the run needs from a person, in one place above the rest: consents, doubts, and things to mend. What the
 * run waits for comes first.
 *
 * What a call would be given is the text that the server made of it, each argument with its name; a consent carries the
 * fingerprint of what was shown here. A card takes no answer before it has stood still for a moment.
 */

import { el, Keyed, look, say } from "../lib/dom.js";
import { plain } from "../lib/escape.js";
import { parse } from "../lib/json.js";
import { Steady } from "../lib/steady.js";
import { moment } from "../lib/time.js";
import { Given } from "../lib/value.js";
import { voiced } from "../lib/voice.js";
import { capital, counted, wordFor } from "../lib/words.js";
import { EditedArguments } from "./edited_arguments.js";
import { decisionButton, Panel } from "./panel.js";

/** @typedef {import("../lib/types.js").ApprovalView} ApprovalView */
/** @typedef {import("../lib/types.js").CheckView} CheckView */
/** @typedef {import("../lib/types.js").DoubtView} DoubtView */
/** @typedef {import("../lib/types.js").RunView} RunView */
/** @typedef {import("../connection/verbs.js").Answer} Answer */

/** What can be pressed by a key is named. @typedef {{element: HTMLElement, steady?: Steady, given?: Given, keys?: Record<string, HTMLElement>}} Card */
/** @typedef {{key: string, text: string, rank: number, make: () => Card}} Need */

const ONLY_LOOKING = "You may look at this run. To answer takes somebody who may steer it.";
const NOT_AS_SHOWN = "This is not the call that was shown when you answered, so your answer was not taken. Look again.";
/** So many questions are drawn; nobody reads more at once. */
const MOST = 20;
/** How long what is said about a refused answer stays. */
const SAID_MS = 20_000;

export class NeedsYouPanel extends Panel {
  static needs = ["waiting", "approvals", "more_approvals", "doubts"];

  /** @type {Map<HTMLElement, Card>} */
  #cards = new Map();
  /** @type {WeakMap<object, string>} */
  #texts = new WeakMap();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #forgetting;

  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    super(context, "Needs you", "needs");
    this.count = el("span", { class: "count" });
    this.head.append(this.count);
    this.list = el("ul", { class: "rows" });
    this.note = el("p", { class: "soft", hidden: true }, ONLY_LOOKING);
    this.said = el("p", { class: "trouble", role: "alert" });
    this.more = el("p", { class: "soft", hidden: true });
    this.body.append(this.note, this.said, this.list, this.more);
    this.show(false);
    // A card is made anew only if what it says is another: an answer half typed stays.
    const key = (/** @type {Need} */ need) => `${need.key} ${need.text}`;
    this.rows = new Keyed(this.list, key, (need) => this.#make(need), () => {});
  }

  /** @param {Need} need */
  #make(need) {
    const card = need.make();
    this.#cards.set(card.element, card);
    return card.element;
  }

  /** @param {RunView} view */
  draw(view) {
    const needs = this.#needsOf(view);
    this.rows.show(needs.slice(0, MOST));
    this.show(needs.length > 0);
    const all = needs.length + (view.more_approvals ?? 0);
    const hidden = all - Math.min(needs.length, MOST);
    say(this.count, all > 1 ? counted(all, "question") : "");
    this.more.hidden = hidden <= 0;
    if (hidden > 0) say(this.more, `${counted(hidden, "more question")} when these are answered.`);
    this.note.hidden = this.context.maySteer;
    this.list.toggleAttribute("inert", !this.context.maySteer);
    for (const element of this.#cards.keys()) if (element.parentNode !== this.list) this.#cards.delete(element);
    this.tick();
  }

  tick() {
    for (const { steady, given } of this.#cards.values()) {
      steady?.look();
      given?.fit();
    }
  }

  /**
   * Show the question about a call, and have it ready to be answered by a key.
   * @param {string} call
   */
  look(call) {
    const element = [...this.#cards.keys()].find((one) => one.dataset.call === call) ?? this.element;
    element.scrollIntoView({ block: "center" });
    element.focus({ preventScroll: true });
  }

  /**
   * Answer by a key: the question that has the focus, or else the first one, if it is in view.
   * @param {string} key
   * @param {EventTarget[]} path where it was pressed
   * @returns {boolean} whether it means anything here
   */
  press(key, path) {
    if (this.element.hidden || !this.context.maySteer) return false;
    // As they are shown: what holds the run up comes before what was asked for earlier.
    const cards = [...this.list.children].map((element) => this.#cards.get(/** @type {HTMLElement} */ (element)));
    const answered = cards.filter((card) => card?.keys?.[key]);
    const button = (answered.find((card) => card && path.includes(card.element)) ?? answered[0])?.keys?.[key];
    if (!button || !isInView(button)) return false;
    button.click();
    return true;
  }

  /** What was shown is not what is asked any more: show what is. @param {Answer} answer */
  #onAnswer(answer) {
    if (answer.code !== "not_as_shown") return;
    say(this.said, NOT_AS_SHOWN);
    clearTimeout(this.#forgetting);
    this.#forgetting = setTimeout(() => say(this.said, ""), SAID_MS);
    this.context.live.reconnect();
  }

  /** What blocks the run first. @param {RunView} view @returns {Need[]} */
  #needsOf(view) {
    const asked = new Set(["approval", "in_doubt"]);
    const answered = (/** @type {Answer} */ answer) => this.#onAnswer(answer);
    const mends = view.waiting.filter(({ kind }) => !asked.has(kind));
    return [
      ...mends.map((one) => this.#need(one.kind, one, 0, () => mendCard(one))),
      ...view.approvals.map((one) => this.#need(one.call, one, rank(one), () => approvalCard(this.context, one, answered))),
      ...view.doubts.map((one) => this.#need(one.call, one, rank(one) + 1, () => doubtCard(this.context, one))),
    ].sort((one, other) => one.rank - other.rank);
  }

  /** @param {string} key @param {object} thing @param {number} rank @param {() => Card} make @returns {Need} */
  #need(key, thing, rank, make) {
    let text = this.#texts.get(thing);
    if (text === undefined) this.#texts.set(thing, (text = JSON.stringify(thing)));
    return { key, text, rank, make };
  }
}

/** @param {{ blocks?: boolean }} question */
function rank({ blocks }) {
  return blocks === false ? 10 : 1;
}

/** @param {HTMLElement} element */
function isInView(element) {
  const { top, bottom, height } = element.getBoundingClientRect();
  return height > 0 && top >= 0 && bottom <= innerHeight;
}

/** @param {string} name */
function glyphOf(name) {
  const glyph = el("span", { class: "glyph" });
  look(glyph, name);
  return glyph;
}

/** Something to mend, with its remedy. @param {import("../lib/types.js").WaitingView} waiting @returns {Card} */
function mendCard(waiting) {
  const heading = el("h3", null, glyphOf("needs_you"), " ", ...voiced(capital(waiting.what), 200));
  return { element: el("li", { class: "need mend" }, heading, waiting.remedy && el("p", null, plain(waiting.remedy))) };
}

// -- calls that wait for a person's consent: what exactly would be done, and two answers

/**
 * @param {import("./panel.js").Context} context
 * @param {ApprovalView} approval
 * @param {(answer: Answer) => void} answered
 * @returns {Card}
 */
function approvalCard(context, approval, answered) {
  const { sender } = context;
  const { call, name, fingerprint } = approval;
  const note = el("input", { type: "text", "aria-label": `A word about ${plain(name)}, if you like`, placeholder: "A word about it, if you like" });
  const noted = () => (note.value.trim() ? { note: note.value.trim() } : {});
  const agreed = () => ({ ...noted(), ...(fingerprint ? { fingerprint } : {}) });
  /** @type {Steady | null} */
  let steady = null;
  const takes = (/** @type {Event} */ event) => steady?.takes(event) ?? false;
  const decided = { takes, answered };
  const approve = decisionButton(sender, "approve", call, {
    ...decided, label: "Approve", consequence: "it is done now, exactly so", kind: "yes", body: agreed, hint: "y",
  });
  const deny = decisionButton(sender, "deny", call, {
    ...decided, label: "Deny", consequence: "it is not done, and the agent is told", body: noted, hint: "n",
  });
  const always = decisionButton(sender, "approve", call, {
    ...decided, label: "Approve always in this run", consequence: `this and every later ${plain(name)} is done without asking you`,
    body: () => ({ ...agreed(), always: true }),
  });
  const edited = new EditedArguments(context, call, decided, noted);
  const buttons = [approve, deny, always];
  steady = new Steady(buttons.map(({ button }) => button));
  const given = new Given(approval.shown, `What ${name} would be given`, () => argumentsOf(context, call));
  const more = el(
    "details", { class: "folded ways" }, el("summary", null, "Say a word, change it, or approve always"),
    note, edited.element, always.button,
  );
  const element = el(
    "li", { class: "need approval", "data-call": call, tabIndex: -1 },
    el("h3", null, glyphOf("needs_you"), ...heading(approval)),
    el("p", { class: "asked" }, ...circumstances(approval)),
    given.element,
    el("div", { class: "answers" }, approve.button, deny.button),
    more,
    ...buttons.map(({ trouble }) => trouble),
  );
  return { element, steady, given, keys: { y: approve.button, n: deny.button } };
}

/** @param {ApprovalView} approval */
function heading({ name, headline }) {
  if (headline && headline !== name) return [" ", ...voiced(capital(headline), 200), "?"];
  return [" May it use ", el("code", null, plain(name)), "?"];
}

/** @param {ApprovalView} approval */
function circumstances({ name, headline, can_undo: canUndo, blocks, requested_at: at }) {
  const waits = blocks === false ? "The agent works on meanwhile, but the run does not end without your answer." : "The agent waits for your answer.";
  return [
    canUndo !== true && el("strong", { class: "for-good" }, glyphOf("near"), " This cannot be undone. "),
    headline && headline !== name && el("span", null, "May it use ", el("code", null, plain(name)), " for this? "),
    el("span", { class: "soft" }, `${waits} Asked at ${moment(at)}.`),
  ].filter((node) => node instanceof Node);
}

/** All that a call is given. @param {import("./panel.js").Context} context @param {string} call */
async function argumentsOf(context, call) {
  return (await context.api.get(context.callPath(call))).given ?? [];
}

// -- calls of which nobody knows whether they happened: what was asked for, what a check said, and three answers

/**
 * @param {import("./panel.js").Context} context
 * @param {DoubtView} doubt
 * @returns {Card}
 */
function doubtCard(context, doubt) {
  /** @type {Steady | null} */
  let steady = null;
  const takes = (/** @type {Event} */ event) => steady?.takes(event) ?? false;
  const result = el("input", {
    type: "text", "aria-label": `What came of ${plain(doubt.name)}, if you know it`, placeholder: "Its result, as text or JSON",
  });
  const answers = doubt.answers.map(({ answer, enabled, consequence }) => {
    const body = () => ({ outcome: answer, ...(answer === "happened" ? resultOf(result.value.trim()) : {}) });
    const label = wordFor("answers", answer);
    const made = decisionButton(context.sender, "resolve", doubt.call, { label, consequence, body, takes });
    if (!enabled) made.button.disabled = true;
    return made;
  });
  steady = new Steady(answers.map(({ button }) => button));
  const given = new Given(doubt.shown, `What ${doubt.name} was given`, () => argumentsOf(context, doubt.call));
  const element = el(
    "li",
    { class: "need doubt", "data-call": doubt.call, tabIndex: -1 },
    el("h3", null, glyphOf("needs_you"), " Did ", el("code", null, plain(doubt.name)), " happen?"),
    el("p", null, story(doubt)),
    ...(doubt.checked ? checkNodes(context, doubt, doubt.checked) : []),
    given.element,
    el("div", { class: "answers" }, ...answers.map((answer) => answer.button)),
    doubt.blocks !== false && el("details", { class: "folded ways" }, el("summary", null, "It happened, and I know what came of it"), result),
    ...answers.map((answer) => answer.trouble),
  );
  return { element, steady, given };
}

/** What a person says that came of a call: JSON where it is some, else a text. @param {string} said */
function resultOf(said) {
  if (!said) return {};
  try {
    return { result: parse(said) };
  } catch {
    return { result: said };
  }
}

/** @param {DoubtView} doubt */
function story(doubt) {
  const began = doubt.started_at ? `It had begun at ${moment(doubt.started_at)} and` : "It had begun and";
  const open = doubt.may_still_happen
    ? " Whoever began it has not been heard of since, so it may still happen."
    : "";
  return `${began} was cut off before it could say how it ended. Nobody knows whether it was done.${open}`;
}

/**
 * What the tool's own check said, and a way to have it look once more.
 * @param {import("./panel.js").Context} context
 * @param {DoubtView} doubt
 * @param {CheckView} checked
 */
function checkNodes(context, doubt, checked) {
  const words = el("p", null, checkWords(checked, doubt.name), el("span", { class: "soft" }, ` ${moment(checked.at)}`));
  if (!doubt.blocks && doubt.blocks !== undefined) return [el("div", { class: "checked" }, words)];
  const again = decisionButton(context.sender, "check", doubt.call, { label: "Check again", kind: "small" });
  return [el("div", { class: "checked" }, words, again.button, again.trouble)];
}

/** @param {CheckView} checked @param {string} name */
function checkWords(checked, name) {
  const said = checked.answer ? `it ${wordFor("answered", checked.answer)}` : "it could not tell";
  const note = checked.note ? ` (${plain(checked.note)})` : "";
  return `The check that comes with ${plain(name)} says: ${said}${note}. You decide.`;
}
