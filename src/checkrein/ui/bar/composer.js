// @ts-check
/**
 * A small place to write in, above the controls and never over the run: what to do next, or how to go on.
 *
 * It says what sending would do now, and what goes on until then. What was written stays, whatever happens to the run,
 * until it was sent and taken. Nothing but a person writes into it: the words of a model stand beside, as a quote.
 */
import { el, mark, say } from "../lib/dom.js";
import { oneLine } from "../lib/escape.js";
import { ENDED } from "../lib/types.js";
import { voice } from "../lib/voice.js";
import { nextStep, wordFor } from "../lib/words.js";
import { smallButton } from "./notices.js";

/** @import { VerbSender } from "../connection/verbs.js" */
/** @import { Drafts, Purpose } from "./drafts.js" */
/** @import { RunStore } from "../connection/run_store.js" */
/** @import { RunView } from "../lib/types.js" */

/** @typedef {{ purpose: Purpose, text: string, when: "now" | "next_step" }} Sent */

export class Composer {
  /** @type {Purpose | null} */
  #purpose = null;
  /** What the field was filled with, the person's own goal: as long as it is still that, it is no draft. */
  #given = "";
  /** The step that a redirect would rewrite: as it is now, and as it was when somebody began to write. */
  #step = "";
  #firstStep = "";
  /** @type {{ view: RunView, live: RunStore } | null} */
  #seen = null;
  #isSending = false;
  #title = el("b", null);
  #about = el("span", { class: "soft" });
  #note = el("p", { class: "soft small note" });
  #said = el("p", { class: "soft small said" });
  #del = el("del", null);
  #ins = el("ins", null);
  #diff = el("p", { class: "diff mono" }, this.#del, this.#ins);
  #now = el("input", { type: "radio", name: "when", value: "now", checked: true });
  #later = el("input", { type: "radio", name: "when", value: "next_step" });
  #nowWords = el("span", null);
  #laterWords = el("span", null);

  /**
   * @param {Drafts} drafts
   * @param {object} actions
   * @param {(sent: Sent) => Promise<boolean>} actions.send resolves to whether it was taken
   * @param {() => void} actions.pause
   * @param {() => void} actions.closed
   */
  constructor(drafts, actions) {
    this.drafts = drafts;
    this.actions = actions;
    this.field = el("textarea", { id: "next", rows: 2, oninput: () => this.#keep() });
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) void this.#send();
    });
    this.pause = smallButton("Pause while I write", () => {
      this.actions.pause();
      this.field.focus(); // the button goes away, and they are writing
    });
    this.submit = smallButton("Redirect now", () => void this.#send());
    this.submit.className = "main";
    this.whens = el(
      "fieldset", { class: "whens" }, el("legend", { class: "unseen" }, "When"),
      el("label", null, this.#now, this.#nowWords), el("label", null, this.#later, this.#laterWords),
    );
    this.whens.addEventListener("change", () => this.#showButtons());
    const head = el("label", { for: "next", class: "title" }, this.#title, " ", this.#about);
    const close = smallButton("Close", () => this.close());
    this.element = el(
      "div", { class: "composer", hidden: true, role: "group", "aria-label": "Write to the agent" },
      el("div", { class: "row top" }, head, close), this.#note, this.#said, this.field, this.#diff,
      el("div", { class: "row bottom" }, this.whens, el("div", { class: "row send" }, this.pause, this.submit)),
    );
  }

  get isOpen() {
    return this.#purpose !== null;
  }

  /**
   * Take up the draft; without one, a continuation begins with the goal, and everything else with nothing.
   * @param {Purpose} purpose
   * @param {RunView} view
   * @param {RunStore} live
   * @param {{ takeFocus?: boolean }} [options]
   */
  open(purpose, view, live, { takeFocus = true } = {}) {
    if (this.#isSending) return;
    this.#purpose = purpose;
    this.drafts.open = purpose;
    this.#given = purpose === "continue" ? view.goal : "";
    const draft = this.drafts.get(purpose);
    this.field.value = draft ?? this.#given;
    this.#firstStep = this.#step = stepOf(purpose, view);
    this.element.hidden = false;
    this.show(view, live);
    if (!takeFocus) return;
    this.field.focus();
    // What was there before is replaced by what is typed; a draft is gone on with.
    const end = this.field.value.length;
    this.field.setSelectionRange(draft === null ? 0 : end, end);
  }

  /** What was written is kept. */
  close() {
    if (this.#purpose === null) return;
    this.#purpose = null;
    this.drafts.open = null;
    this.element.hidden = true;
    this.actions.closed();
  }

  /**
   * The run has changed; what was written stays.
   * @param {RunView} view
   * @param {RunStore} live
   * @param {VerbSender | null} sender
   * @param {boolean} maySteer
   */
  show(view, live, sender = null, maySteer = true) {
    this.#seen = { view, live };
    if (this.#purpose === null) return;
    this.#follow(view);
    this.#step = stepOf(this.#purpose, view);
    this.#showDiff();
    const { title, about, note } = wordsOf(this.#purpose, view);
    say(this.#title, title);
    voice(this.#about, about, 80);
    const meanwhile = this.#step === this.#firstStep ? note : `The plan has changed since you began to write. ${note}`;
    say(this.#note, live.state === "live" ? meanwhile : "Not connected. What you write is kept.");
    const said = this.#purpose === "redirect" && this.#step === "" ? lastSaid(view, live) : "";
    voice(this.#said, said && `It last said: ${quoted(said)}`, 200);
    this.#said.hidden = said === "";
    const canPause = this.#purpose === "redirect" && view.status === "running" && view.controls.pause?.enabled === true;
    this.pause.hidden = !canPause || live.state !== "live";
    mark(this.pause, "aria-busy", sender?.asked("pause") ? "true" : null);
    this.whens.hidden = this.#purpose !== "redirect" || !["running", "pausing", "redirecting"].includes(view.status);
    const working = [...view.calls.values()].filter((call) => call.shown === "running" && call.kind !== "ask");
    const names = working.length ? working.map((call) => (call.kind === "model" ? "the model" : call.name)).join(", ") : "nothing";
    say(this.#nowWords, `Now: stops ${oneLine(names, 60)}`);
    say(this.#laterWords, `At the next step: lets ${working.length ? "it" : "everything"} finish first`);
    const isPossible = this.#purpose === "continue" || view.controls[this.#purpose]?.enabled === true;
    this.canSend = live.state === "live" && isPossible && maySteer;
    this.#showButtons();
  }

  canSend = false;

  /** Where the run has gone on meanwhile, what is written goes to where it can go. @param {RunView} view */
  #follow(view) {
    if (this.#isSending) return;
    const fits =
      this.#purpose === "continue" ||
      (ENDED.has(view.status) ? this.#purpose === null : this.#purpose !== "resume" || view.status === "paused");
    if (fits || this.#purpose === null) return;
    const next = ENDED.has(view.status) ? "continue" : "redirect";
    const written = this.field.value !== this.#given && this.field.value.trim() ? this.field.value : null;
    this.drafts.drop(this.#purpose);
    this.#purpose = next;
    this.drafts.open = next;
    this.#given = "";
    this.#firstStep = stepOf(next, view);
    this.field.value = written ?? this.drafts.get(next) ?? "";
    if (written !== null) this.drafts.keep(next, written);
  }

  #keep() {
    if (this.#purpose === null) return;
    const isDraft = this.field.value.trim() !== "" && this.field.value !== this.#given;
    if (isDraft) this.drafts.keep(this.#purpose, this.field.value);
    else this.drafts.drop(this.#purpose);
    this.#showDiff();
    this.#showButtons();
  }

  #showDiff() {
    const before = oneLine(this.#step, 160);
    const after = oneLine(this.field.value, 160);
    this.#diff.hidden = this.#purpose !== "redirect" || before === "" || after === "" || before === after;
    say(this.#del, `− ${before}`);
    say(this.#ins, `+ ${after}`);
  }

  #showButtons() {
    if (this.#purpose === null) return;
    const isLater = this.#later.checked && !this.whens.hidden;
    say(this.submit, submitWords(this.#purpose, isLater));
    const isUsable = this.canSend && !this.#isSending && this.field.value.trim() !== "";
    mark(this.submit, "aria-disabled", isUsable ? null : "true");
  }

  async #send() {
    const purpose = this.#purpose;
    const text = this.field.value.trim();
    if (purpose === null || this.submit.ariaDisabled === "true" || text === "") return;
    const written = this.field.value;
    this.drafts.keep(purpose, written);
    this.#isSending = true;
    const isLater = this.#later.checked && !this.whens.hidden;
    this.close(); // that it was asked for is said by its button
    const isTaken = await this.actions.send({ purpose, text, when: isLater ? "next_step" : "now" });
    this.#isSending = false;
    if (isTaken && this.drafts.get(purpose) === written) this.drafts.drop(purpose);
    if (!isTaken && this.#seen !== null) this.open(purpose, this.#seen.view, this.#seen.live);
    this.actions.closed();
  }

  /** Something was sent, and it is not known yet whether it was taken. */
  get isSending() {
    return this.#isSending;
  }
}

/** @param {Purpose} purpose @param {boolean} isLater */
function submitWords(purpose, isLater) {
  if (purpose === "continue") return "Continue from here";
  if (purpose === "resume") return "Resume with this";
  return isLater ? "Redirect at the next step" : "Redirect now";
}

/** The step that would be rewritten. @param {Purpose} purpose @param {RunView} view */
function stepOf(purpose, view) {
  return purpose === "redirect" ? nextStep(view)?.title ?? "" : "";
}

/** Words of a model, which cannot end their own quote. @param {string} text */
function quoted(text) {
  return `“${text.replace(/[“”]/g, '"')}”`;
}

/**
 * @param {Purpose} purpose
 * @param {RunView} view
 * @returns {{ title: string, about: string, note: string }}
 */
function wordsOf(purpose, view) {
  if (purpose === "continue") {
    const ended = `It has ended (${wordFor("statuses", view.status).toLowerCase()}).`;
    const note = `${ended} A new run goes on in the same thread: finished work is not repeated, undone work is named.`;
    return { title: "Continue from here", about: "what should it do now?", note };
  }
  if (purpose === "resume") {
    return { title: "Resume with an instruction", about: "", note: wordFor("until_sent", "paused") };
  }
  const step = nextStep(view);
  const about = step ? `rewrites step ${step.number}, ${quoted(oneLine(step.title, 80))}` : "say what to do next";
  return { title: "Redirect", about, note: `${wordFor("until_sent", view.status)} Finished work is kept.` };
}

/**
 * The end of what the agent said last: where there is no plan, that is where it says what it is about to do.
 * @param {RunView} view
 * @param {RunStore} live
 */
function lastSaid(view, live) {
  const spoken = [...view.calls.values()].filter(({ kind }) => kind === "model").map(({ id }) => live.texts.get(id)?.text);
  const text = spoken.findLast((one) => one?.trim())?.trim() ?? "";
  const line = oneLine(text.slice(-400), 400);
  if (line.length <= 160) return line;
  return `…${line.slice(-160).replace(/^\S*\s/, "")}`;
}
