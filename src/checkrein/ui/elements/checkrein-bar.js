// @ts-check
/**
 * `<checkrein-bar run-id="r-…" base-url="https://…">`: pause, redirect and cancel, in view for as long as the run lives.
 *
 * Attributes: `run-id`, `base-url` (empty: the server of this page), `token` (also a property), `theme` (`light` or
 * `dark`), `page-keys` (p, r and c work on the whole page), `inline` (stands where it is put, not at the bottom),
 * `without-receipt` (the page around shows how the run ended), `can-continue` (the page around continues a run), `may`
 * (what whoever looks may do, such as `see start steer`; asked of the server where it is not said).
 *
 * Events, all of which bubble: `checkrein-continue` `{run, goal}` before a run is continued (prevent it to do that
 * yourself), `checkrein-continued` `{run}` after it (prevent it to stay where you are), `checkrein-unauthorised` when a
 * new `token` is needed.
 *
 * This file is the element, and what the page around may do with it; the bar of one run is in bar/body.js.
 */
import { BarBody } from "../bar/body.js";
import { keepInView } from "../bar/layout.js";
import { listenForKeys } from "../bar/shortcuts.js";
import { Api } from "../connection/api.js";
import { el, say } from "../lib/dom.js";
import { RunStore } from "../connection/run_store.js";
import { onBeat } from "../lib/time.js";
import { barStyle } from "../styles/bar.js";
import { base, tokens } from "../styles/base.js";

/** States may pass in a few milliseconds; only one that stays is worth saying aloud. */
const SPEAK_AFTER_MS = 150;

export class CheckreinBar extends HTMLElement {
  static observedAttributes = ["run-id", "base-url", "token", "page-keys", "may"];

  /** @type {RunStore | null} */
  #live = null;
  #isOwn = false;
  /** @type {string | null} */
  #token = null;
  /** What the server said that whoever looks may do. @type {string | null} */
  #may = null;
  /** @type {BarBody | null} */
  #body = null;
  /** @type {(() => void)[]} */
  #undos = [];
  /** Stops listening for keys. */
  #deaf = () => {};
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #speaking;
  #spoken = "";
  #status = el("p", { class: "unseen", role: "status" });
  #room = el("div", { class: "room" });
  #bar = el("div", { class: "bar", role: "region", "aria-label": "Control of the run", tabIndex: -1 });

  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [tokens, base, barStyle];
    root.append(this.#room, this.#bar, this.#status);
    for (const name of /** @type {const} */ (["live", "token"])) {
      if (!Object.hasOwn(this, name)) continue; // set before this class was known to the page
      const value = this[name];
      delete (/** @type {any} */ (this)[name]);
      /** @type {any} */ (this)[name] = value;
    }
  }

  // -- what the page around gives

  get runId() {
    return this.getAttribute("run-id") ?? "";
  }

  set runId(id) {
    this.setAttribute("run-id", id);
  }

  /** The run that is shown. One that is given is opened and closed by whoever gives it. */
  get live() {
    return this.#live;
  }

  set live(live) {
    this.#stop();
    this.#live = live;
    if (this.isConnected) this.#begin();
  }

  /** A short-lived token for this run. A new one is used at once. @returns {string | null} */
  get token() {
    return this.#token ?? this.getAttribute("token");
  }

  set token(token) {
    this.#token = token;
    if (this.#live === null || !this.#isOwn) return;
    this.#live.api.token = token;
    if (this.#live.state !== "live") this.#live.reconnect();
  }

  /**
   * Say a sentence to those who listen, in the one region that is for it.
   * @param {string} sentence
   */
  announce(sentence) {
    clearTimeout(this.#speaking);
    say(this.#status, sentence);
  }

  connectedCallback() {
    this.#begin();
  }

  disconnectedCallback() {
    this.#stop();
  }

  /**
   * @param {string} name
   * @param {string | null} before
   * @param {string | null} after
   */
  attributeChangedCallback(name, before, after) {
    if (before === after || !this.isConnected) return;
    if (name === "token") {
      this.token = after;
    } else if (name === "page-keys") {
      this.#listen();
    } else if (name === "may") {
      this.#body?.draw();
    } else if (this.#isOwn || this.#live === null) {
      this.#stop();
      this.#begin();
    }
  }

  // -- beginning and ending

  #begin() {
    if (this.#body !== null || (this.#live === null && this.runId === "")) return;
    if (this.#live === null) {
      this.#live = new RunStore(new Api(this.getAttribute("base-url") ?? "", this.token), this.runId);
      this.#isOwn = true;
    }
    const live = this.#live;
    const body = (this.#body = new BarBody(this, this.#bar, live, (sentence) => this.#speak(sentence)));
    const draw = () => body.draw();
    const told = () => this.#tellState();
    live.addEventListener("change", draw);
    live.addEventListener("state", told);
    this.#undos = [
      () => live.removeEventListener("change", draw),
      () => live.removeEventListener("state", told),
      () => body.close(),
      () => this.#deaf(),
      onBeat(() => body.tick()),
    ];
    this.#listen();
    // One among others in a page: each has a name of its own.
    if (this.hasAttribute("inline")) this.#bar.setAttribute("aria-label", `Control of the run ${live.runId}`);
    else this.#undos.push(keepInView(this.#bar, this.#room));
    if (this.#isOwn) live.open();
    if (this.#isOwn) void this.#learn(live);
    body.draw();
  }

  /** Let go of everything. A run that was given is not asked for again. */
  #stop() {
    for (const undo of this.#undos) undo();
    this.#undos = [];
    this.#body = null;
    if (!this.#isOwn) return;
    this.#live?.close();
    this.#live = null;
    this.#isOwn = false;
  }

  #listen() {
    this.#deaf();
    const everywhere = this.hasAttribute("page-keys");
    const press = (/** @type {number} */ n) => () => this.#body?.press(n);
    const keys = { p: press(0), r: press(1), c: press(2), escape: () => this.#body?.closeComposer() ?? false };
    this.#deaf = listenForKeys(everywhere ? document : this.shadowRoot ?? this, keys);
  }

  /**
   * Ask who is looking. Pages of other origins may not; there the first refusal tells.
   * @param {RunStore} live
   */
  async #learn(live) {
    const { origin } = new URL(live.api.baseUrl, location.href);
    if (this.hasAttribute("may") || origin !== location.origin) return;
    try {
      const { may = [] } = await live.api.get("/api/whoami");
      this.#may = may.join(" ");
      this.#body?.draw();
    } catch {
      // Whoever may not ask that is told by what they ask next.
    }
  }

  #tellState() {
    if (this.#live?.problem?.status === 401) this.tell("checkrein-unauthorised");
    this.#body?.draw();
  }

  /** @param {string} sentence */
  #speak(sentence) {
    if (sentence === this.#spoken) return;
    this.#spoken = sentence;
    clearTimeout(this.#speaking);
    this.#speaking = setTimeout(() => say(this.#status, sentence), SPEAK_AFTER_MS);
  }

  // -- for the body

  /** Whether whoever looks may do this, as far as is known. @param {string} action */
  may(action) {
    const may = this.getAttribute("may") ?? this.#may;
    return may === null || may.split(" ").includes(action);
  }

  /** Whether a new run may be begun from here: with a token for one run only the page around can. */
  get canContinue() {
    return !this.token || this.hasAttribute("can-continue");
  }

  /**
   * Show a run that continues this one, unless the page around wants it otherwise.
   * @param {string} run
   */
  goTo(run) {
    if (this.tell("checkrein-continued", { run }) && this.#isOwn) this.runId = run;
  }

  /**
   * @param {string} type
   * @param {object} detail
   * @returns {boolean} false: the page around has taken it in hand
   */
  tell(type, detail = {}) {
    return this.dispatchEvent(new CustomEvent(type, { bubbles: true, composed: true, cancelable: true, detail }));
  }
}

customElements.define("checkrein-bar", CheckreinBar);
