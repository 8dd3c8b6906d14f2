// @ts-check
/**
 * The bar of one run: its parts, what they show, and what they do.
 *
 * It shows only what the server has said. A click shows that something was asked for; that it is so, only the server's
 * own view shows.
 */
import { Asking, continueFrom } from "./asking.js";
import { ControlButton, faceOf } from "./buttons.js";
import { Composer } from "./composer.js";
import { el, mark } from "./dom.js";
import { Drafts } from "./drafts.js";
import { Facts } from "./facts.js";
import { Fitting, NARROW } from "./fitting.js";
import { Lines, smallButton } from "./lines.js";
import { ReceiptCard } from "./receipt.js";
import { spoken } from "./spoken.js";
import { ENDED } from "./types.js";

/** @import { CheckreinBar } from "./bar.js" */
/** @import { Slot } from "./buttons.js" */
/** @import { Sent } from "./composer.js" */
/** @import { Purpose } from "./drafts.js" */
/** @import { LiveRun } from "./live.js" */
/** @import { Control, RunView } from "./types.js" */

/** @type {Slot[]} */
const SLOTS = ["hold", "redirect", "cancel"];
/** A second click on Cancel must not become a first one on what has taken its place. */
const CHANGED_MS = 600;

export class BarBody {
  #isFirst = true;
  /** When it was seen to have ended, in milliseconds of this clock; 0: not yet. */
  #endedAt = 0;

  /**
   * @param {CheckreinBar} host
   * @param {HTMLElement} bar where the parts go
   * @param {LiveRun} live
   * @param {(sentence: string) => void} speak
   */
  constructor(host, bar, live, speak) {
    this.host = host;
    this.bar = bar;
    this.live = live;
    this.speak = speak;
    this.drafts = new Drafts(live.runId);
    const asking = (this.asking = new Asking(live));
    asking.addEventListener("change", () => this.draw());
    this.lines = new Lines({
      abort: (calls) => calls.forEach(({ id }) => void asking.abort(id)),
      goOn: () => void asking.verb("resume"),
      stay: () => void asking.verb("pause"),
      instruct: () => this.#compose("resume"),
      dismiss: () => asking.forgetRefusal(),
    });
    this.composer = new Composer(this.drafts, {
      send: (sent) => this.#send(sent),
      pause: () => void asking.verb("pause"),
      closed: () => this.draw(),
    });
    this.facts = new Facts();
    this.buttons = SLOTS.map((slot) => new ControlButton(slot, (verb) => this.#use(verb)));
    this.keys = el("div", { class: "keys" }, ...this.buttons.map((button) => button.element));
    this.fitting = new Fitting(bar, this.keys);
    this.facts.element.append(this.fitting.button);
    this.receipt = new ReceiptCard(asking, () => this.drafts.stoppedHere);
    this.onward = smallButton("Continue from here", () => this.#compose("continue"));
    this.onward.className = "main";
    this.after = el("div", { class: "after" }, this.onward);
    this.standing = el("div", { class: "standing" }, this.facts.element, this.keys, this.after);
    const above = el("div", { class: "above" }, this.lines.element, this.receipt.element, this.composer.element);
    bar.replaceChildren(above, this.standing);
  }

  close() {
    this.asking.close();
  }

  // -- showing

  /** Whether whoever looks may also steer. The server decides; this only spares them a refusal. */
  get maySteer() {
    return this.host.may("steer") && !this.asking.isForbidden;
  }

  draw() {
    const { live, bar } = this;
    const view = live.view;
    bar.toggleAttribute("data-lost", live.state === "lost");
    this.standing.hidden = view === null;
    if (view === null) {
      this.receipt.element.hidden = true;
      this.lines.lost.say(live.state === "lost" ? firstWords(live) : "Connecting…");
      return;
    }
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
    this.speak(spoken(view, live, this.asking.refusal, this.drafts.stoppedHere));
  }

  /** Only time has passed. */
  tick() {
    if (this.live.view !== null) this.#showMoving(this.live.view);
    else this.draw();
  }

  /** @param {RunView} view */
  #showMoving(view) {
    const { live, asking, composer } = this;
    this.lines.show(view, live, asking, { maySteer: this.maySteer, isWriting: composer.isOpen });
    this.facts.show(view, live);
    composer.show(view, live, asking, this.maySteer);
    for (const button of this.buttons) {
      button.show(faceOf(button.slot, view, live, asking, this.maySteer));
      if (button.slot === "redirect") mark(button.element, "aria-expanded", String(composer.isOpen));
    }
    mark(this.onward, "aria-disabled", live.state === "live" ? null : "true");
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
    void this.asking.verb(verb).then((isTaken) => {
      if (verb === "cancel" && !isTaken) this.drafts.stoppedHere = false;
    });
  }

  /** @param {Purpose} purpose */
  #compose(purpose) {
    if (this.live.view === null || (purpose === "continue" && Date.now() - this.#endedAt < CHANGED_MS)) return;
    this.composer.open(purpose, this.live.view, this.live);
    this.draw();
  }

  /** @param {Sent} sent @returns {Promise<boolean>} whether it was taken */
  async #send({ purpose, text, when }) {
    if (purpose === "resume") return this.asking.verb("resume", { instruction: text });
    if (purpose === "redirect") return this.asking.verb("redirect", { instruction: text, when });
    const { live, host } = this;
    if (live.view === null) return false;
    if (!host.tell("checkrein-continue", { run: live.runId, goal: text })) return true; // the page around does it
    try {
      const run = await continueFrom(live.api, live.view, text);
      setTimeout(() => host.goTo(run)); // after the composer has let go of its draft
      return true;
    } catch (error) {
      this.asking.refuse(error);
      return false;
    }
  }
}

/** @param {LiveRun} live */
function firstWords(live) {
  if (live.problem === null) return "No connection to the server. Trying again.";
  return `Not connected: ${live.problem.message}`;
}
