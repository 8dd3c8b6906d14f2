// @ts-check
/**
 * A small place to write in, above the controls and never over the run: what to do next, or how to go on.
 *
 * It says what sending would do now, and what goes on until then. What was written stays, whatever happens to the run,
 * until it was sent and taken.
 */
import { el, mark, say } from "./dom.js";
import { smallButton } from "./lines.js";
import { oneLine } from "./plain.js";
import { ENDED } from "./types.js";
import { STATUS_WORDS, nextStep } from "./words.js";

/** @import { Asking } from "./asking.js" */
/** @import { Drafts, Purpose } from "./drafts.js" */
/** @import { LiveRun } from "./live.js" */
/** @import { RunView } from "./types.js" */

/** @typedef {{ purpose: Purpose, text: string, when: "now" | "next_step" }} Sent */

export class Composer {
  /** @type {Purpose | null} */
  #purpose = null;
  /** What the field was filled with: as long as it is still that, it is no draft. */
  #given = "";
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
   * Take up the draft, or begin with what the run offers.
   * @param {Purpose} purpose
   * @param {RunView} view
   * @param {LiveRun} live
   * @param {{ takeFocus?: boolean }} [options]
   */
  open(purpose, view, live, { takeFocus = true } = {}) {
    this.#purpose = purpose;
    this.drafts.open = purpose;
    this.#given = givenText(purpose, view);
    this.field.value = this.drafts.get(purpose) ?? this.#given;
    this.element.hidden = false;
    this.#showDiff();
    this.show(view, live);
    if (takeFocus) {
      this.field.focus();
      this.field.setSelectionRange(this.field.value.length, this.field.value.length);
    }
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
   * @param {LiveRun} live
   * @param {Asking | null} asking
   * @param {boolean} maySteer
   */
  show(view, live, asking = null, maySteer = true) {
    if (this.#purpose === null) return;
    this.#follow(view);
    const given = givenText(this.#purpose, view);
    if (given !== this.#given && !this.#isSending) {
      if (this.field.value === this.#given) this.field.value = given; // nothing of one's own was written yet
      this.#given = given;
      this.#showDiff();
    }
    const { title, about, note } = wordsOf(this.#purpose, view);
    say(this.#title, title);
    say(this.#about, about);
    say(this.#note, live.state === "live" ? note : "Not connected. What you write is kept.");
    const said = this.#purpose === "redirect" && given === "" ? lastSaid(view, live) : "";
    say(this.#said, said && `It last said: “${said}”`);
    this.#said.hidden = said === "";
    const canPause = this.#purpose === "redirect" && view.status === "running" && view.controls.pause?.enabled === true;
    this.pause.hidden = !canPause || live.state !== "live";
    mark(this.pause, "aria-busy", asking?.asked("pause") ? "true" : null);
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
    this.#given = givenText(next, view);
    this.field.value = written ?? this.drafts.get(next) ?? this.#given;
    if (written !== null) this.drafts.keep(next, written);
    this.#showDiff();
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
    const before = oneLine(this.#given, 160);
    const after = oneLine(this.field.value, 160);
    this.#diff.hidden = this.#purpose !== "redirect" || before === "" || after === "" || before === after;
    say(this.#del, `− ${before}`);
    say(this.#ins, `+ ${after}`);
  }

  #showButtons() {
    if (this.#purpose === null) return;
    const label = {
      redirect: this.#later.checked && !this.whens.hidden ? "Redirect at the next step" : "Redirect now",
      resume: "Resume with this",
      continue: "Continue from here",
    }[this.#purpose];
    say(this.submit, this.#isSending ? "Sending…" : label);
    const isUsable = this.canSend && !this.#isSending && this.field.value.trim() !== "";
    mark(this.submit, "aria-disabled", isUsable ? null : "true");
    mark(this.submit, "aria-busy", this.#isSending ? "true" : null);
  }

  async #send() {
    const purpose = this.#purpose;
    const text = this.field.value.trim();
    if (purpose === null || this.submit.ariaDisabled === "true" || text === "") return;
    const written = this.field.value;
    this.drafts.keep(purpose, written);
    this.#isSending = true;
    this.#showButtons();
    try {
      const isLater = this.#later.checked && !this.whens.hidden;
      if (!(await this.actions.send({ purpose, text, when: isLater ? "next_step" : "now" }))) return;
      if (this.drafts.get(purpose) === written) this.drafts.drop(purpose);
      this.#isSending = false;
      if (this.#purpose === purpose && this.field.value === written) this.close();
    } finally {
      this.#isSending = false;
      this.#showButtons();
    }
  }
}

/** @param {Purpose} purpose @param {RunView} view */
function givenText(purpose, view) {
  if (purpose === "redirect") return nextStep(view)?.title ?? "";
  return purpose === "continue" ? view.goal : "";
}

/**
 * @param {Purpose} purpose
 * @param {RunView} view
 * @returns {{ title: string, about: string, note: string }}
 */
function wordsOf(purpose, view) {
  if (purpose === "continue") {
    const ended = `It has ended (${STATUS_WORDS[view.status].toLowerCase()}).`;
    const note = `${ended} A new run goes on in the same thread: finished work is not repeated, undone work is named.`;
    return { title: "Continue from here", about: "what should it do now?", note };
  }
  if (purpose === "resume") {
    return { title: "Resume with an instruction", about: "", note: "It stays paused until you send." };
  }
  const step = nextStep(view);
  const about = step ? `rewrites step ${step.number}, “${oneLine(step.title, 80)}”` : "say what to do next";
  return { title: "Redirect", about, note: `${UNTIL[view.status] ?? ""} Finished work is kept.`.trim() };
}

/** @type {Record<string, string>} */
const UNTIL = {
  queued: "It has not begun; it gets this first.",
  running: "The agent works on until you send.",
  pausing: "It is about to hold; it stays so until you send.",
  paused: "It stays paused until you send.",
  redirecting: "It is being redirected; this takes the place of what was sent before.",
  cancelling: "It is being cancelled.",
};

/**
 * The end of what the agent said last: where there is no plan, that is where it says what it is about to do.
 * @param {RunView} view
 * @param {LiveRun} live
 */
function lastSaid(view, live) {
  const spoken = [...view.calls.values()].filter(({ kind }) => kind === "model").map(({ id }) => live.texts.get(id)?.text);
  const text = spoken.findLast((one) => one?.trim())?.trim() ?? "";
  const line = oneLine(text.slice(-400), 400);
  if (line.length <= 160) return line;
  return `…${line.slice(-160).replace(/^\S*\s/, "")}`;
}
