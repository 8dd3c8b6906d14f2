// @ts-check
/**
 * The bar of one run: its parts, what they show, and what they do.
 *
 * It shows only what the server has said. A click shows that something was asked for; that it is so, only the server's
 * own view shows.
 */
import { el, mark } from "../lib/dom.js";
import { SETTLE_MS } from "../lib/steady.js";
import { ENDED, emptyView } from "../lib/types.js";
import { VerbSender, continueFrom } from "../connection/verbs.js";
import { announcement } from "./announcements.js";
import { ControlButton, faceOf } from "./buttons.js";
import { Composer } from "./composer.js";
import { Drafts } from "./drafts.js";
import { Fitting, NARROW } from "./layout.js";
import { Notices, smallButton } from "./notices.js";
import { ReceiptCard } from "./receipt.js";
import { StatusLine } from "./status_line.js";

/** @import { CheckreinBar } from "../elements/checkrein-bar.js" */
/** @import { Slot } from "./buttons.js" */
/** @import { Sent } from "./composer.js" */
/** @import { Purpose } from "./drafts.js" */
/** @import { RunStore } from "../connection/run_store.js" */
/** @import { Control, RunView } from "../lib/types.js" */

/** @type {Slot[]} */
const SLOTS = ["hold", "redirect", "cancel"];

export class BarBody {
  #isFirst = true;
  /** When it was seen to have ended, in milliseconds of this clock; 0: not yet. */
  #endedAt = 0;

  /**
   * @param {CheckreinBar} host
   * @param {HTMLElement} bar where the parts go
   * @param {RunStore} live
   * @param {(sentence: string) => void} speak
   */
  constructor(host, bar, live, speak) {
    this.host = host;
    this.bar = bar;
    this.live = live;
    this.speak = speak;
    this.drafts = new Drafts(live.runId);
    const sender = (this.sender = new VerbSender(live));
    sender.addEventListener("change", () => this.draw());
    this.notices = new Notices({
      abort: (calls) => calls.forEach(({ id }) => void sender.decide("abort", id)),
      goOn: () => void sender.verb("resume"),
      stay: () => void sender.verb("pause"),
      look: (call) => this.#look(call),
      dismiss: () => sender.forgetRefusal(),
    });
    this.composer = new Composer(this.drafts, {
      send: (sent) => this.#send(sent),
      pause: () => void sender.verb("pause"),
      closed: () => this.draw(),
    });
    this.statusLine = new StatusLine();
    this.buttons = SLOTS.map((slot) => new ControlButton(slot, (verb) => this.#use(verb)));
    this.instruct = smallButton("Resume with an instruction", () => this.#compose("resume"));
    const [hold, ...others] = this.buttons.map((button) => button.element);
    this.keys = el("div", { class: "keys" }, el("div", { class: "hold" }, hold, this.instruct), ...others);
    this.fitting = new Fitting(bar, this.keys);
    this.statusLine.element.append(this.fitting.button);
    this.receipt = new ReceiptCard(sender, () => this.drafts.stoppedHere);
    this.onward = smallButton("Continue from here", () => this.#compose("continue"));
    this.onward.className = "main";
    this.after = el("div", { class: "after" }, this.onward);
    this.standing = el("div", { class: "standing" }, this.statusLine.element, this.keys, this.after);
    const above = el("div", { class: "above" }, this.notices.element, this.receipt.element, this.composer.element);
    bar.replaceChildren(above, this.standing);
  }

  close() {
    this.sender.close();
  }

  // -- showing

  /** Whether whoever looks may also steer. The server decides; this only spares them a refusal. */
  get maySteer() {
    return this.host.may("steer") && !this.sender.isForbidden;
  }

  draw() {
    const { live, bar } = this;
    const view = live.view;
    bar.toggleAttribute("data-lost", live.state === "lost");
    if (view === null) {
      this.#showUnseen();
      return;
    }
    this.standing.hidden = this.statusLine.element.hidden = false;
    const focused = this.host.shadowRoot?.activeElement;
    const hasEnded = ENDED.has(view.status);
    if (hasEnded && this.#endedAt === 0) this.#endedAt = this.#isFirst ? 1 : Date.now();
    this.keys.hidden = hasEnded;
    this.receipt.element.hidden = !hasEnded || this.host.hasAttribute("without-receipt");
    if (hasEnded) this.receipt.show(view, live.state === "live", this.maySteer);
    if (this.#isFirst) this.#takeUp(view);
    const mayContinue = view.parent == null && this.host.canContinue && this.maySteer;
    this.after.hidden = !hasEnded || !mayContinue || this.composer.isOpen;
    this.#showMoving(view);
    if (focused instanceof HTMLElement && !focused.checkVisibility()) this.#giveFocus(hasEnded);
    this.speak(announcement(view, live, this.sender.refusal, this.drafts.stoppedHere));
  }

  /** Nothing was ever heard of the run. What can be asked for all the same is there. */
  #showUnseen() {
    const { live, sender } = this;
    this.standing.hidden = !live.answers;
    this.statusLine.element.hidden = this.instruct.hidden = this.after.hidden = this.receipt.element.hidden = true;
    this.notices.lost.say(live.state === "lost" ? firstWords(live) : "Connecting…");
    this.notices.refused.say(sender.refusal);
    const unseen = { ...emptyView(), id: live.runId, status: /** @type {const} */ ("running") };
    for (const button of this.buttons) button.show(faceOf(button.slot, unseen, live, sender, this.maySteer));
  }

  /** Only time has passed. */
  tick() {
    if (this.live.view !== null) this.#showMoving(this.live.view);
    else this.draw();
  }

  /** @param {RunView} view */
  #showMoving(view) {
    const { live, sender, composer } = this;
    this.notices.show(view, live, sender, this.maySteer);
    this.statusLine.show(view, live);
    composer.show(view, live, sender, this.maySteer);
    for (const button of this.buttons) {
      button.show(faceOf(button.slot, view, live, sender, this.maySteer));
      if (button.slot === "redirect") mark(button.element, "aria-expanded", String(composer.isOpen));
    }
    mark(this.onward, "aria-disabled", live.state === "live" && !composer.isSending ? null : "true");
    mark(this.onward, "aria-busy", composer.isSending ? "true" : null);
    this.instruct.hidden = view.status !== "paused" || !this.maySteer || composer.isOpen || live.state !== "live";
    const canInstruct = view.controls.resume?.enabled === true && sender.asked("resume") === null;
    mark(this.instruct, "aria-disabled", canInstruct ? null : "true");
    // While somebody writes on a small screen, what they write and the run itself need the room.
    this.bar.toggleAttribute("data-narrow", composer.isOpen && innerWidth <= NARROW);
    this.fitting.show();
  }

  /** What was open when the page was left is open again. @param {RunView} view */
  #takeUp(view) {
    this.#isFirst = false;
    const open = this.drafts.open;
    if (open !== null) this.composer.open(open, view, this.live, { takeFocus: false });
  }

  /** What had the focus is gone: what has taken its place gets it. @param {boolean} hasEnded */
  #giveFocus(hasEnded) {
    if (!hasEnded) this.buttons[0]?.element.focus();
    else if (!this.receipt.element.hidden) this.receipt.title.focus();
    else if (!this.after.hidden) this.onward.focus();
    else this.bar.focus();
  }

  // -- doing

  /** Press a control by its key. @param {number} n */
  press(n) {
    const button = this.buttons[n]?.element;
    if (button?.checkVisibility()) button.click();
  }

  /** @returns {boolean} whether there was one to close */
  closeComposer() {
    if (!this.composer.isOpen) return false;
    this.composer.close();
    const redirect = this.buttons[1]?.element;
    (redirect?.checkVisibility() ? redirect : this.onward).focus();
    return true;
  }

  /** @param {Control} verb */
  #use(verb) {
    if (verb === "redirect") {
      if (this.composer.isOpen) this.composer.close();
      else this.#compose("redirect");
      return;
    }
    if (verb === "cancel") this.drafts.stoppedHere = true;
    void this.sender.verb(verb).then(({ isTaken }) => {
      if (verb === "cancel" && !isTaken) this.drafts.stoppedHere = false;
    });
  }

  /**
   * Show the question about a call: here, where the page around does that, or else where it can be read.
   * @param {string} call
   */
  #look(call) {
    const { host, live } = this;
    if (!host.tell("checkrein-look", { run: live.runId, call })) return;
    open(`${live.api.baseUrl}/runs/${encodeURIComponent(live.runId)}`, "_blank", "noopener");
  }

  /** @param {Purpose} purpose */
  #compose(purpose) {
    if (this.live.view === null || (purpose === "continue" && Date.now() - this.#endedAt < SETTLE_MS)) return;
    this.composer.open(purpose, this.live.view, this.live);
    this.draw();
  }

  /** @param {Sent} sent @returns {Promise<boolean>} whether it was taken */
  async #send({ purpose, text, when }) {
    if (purpose === "resume") return (await this.sender.verb("resume", { instruction: text })).isTaken;
    if (purpose === "redirect") return (await this.sender.verb("redirect", { instruction: text, when })).isTaken;
    const { live, host } = this;
    if (live.view === null) return false;
    if (!host.tell("checkrein-continue", { run: live.runId, goal: text })) return true; // the page around does it
    try {
      const run = await continueFrom(live.api, live.view, text);
      setTimeout(() => host.goTo(run)); // after the composer has let go of its draft
      return true;
    } catch (error) {
      this.sender.refuse(error);
      return false;
    }
  }
}

/** @param {RunStore} live */
function firstWords(live) {
  if (live.problem === null) {
    const { origin } = new URL(live.api.baseUrl || "/", location.href);
    if (origin !== location.origin && !live.api.token) return noToken(origin);
    return "No connection to the server. Trying again.";
  }
  return live.problem.status === 404 ? live.problem.message : `Not connected: ${live.problem.message}`;
}

/** A page of another origin has no session there: without a token nothing can come. @param {string} origin */
function noToken(origin) {
  return `No answer from ${origin}. It is another origin than this page, and this bar has no token: give it one (attribute token).`;
}
