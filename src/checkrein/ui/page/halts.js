// @ts-check
/**
 * What operators have halted, on every view: a band that nobody overlooks, with who, why and since when; and for those
 * who may, the kill switch. It is held for a moment, by pointer or with Space, so that no slip of a hand halts anything.
 */
import { el, mark, place, say } from "../lib/dom.js";
import { plain } from "../lib/escape.js";
import { moment } from "../lib/time.js";

const LOOK_MS = 2000;
const HOLD_MS = 1500;
const SCOPES = { run: "this run", agent: "an agent", owner: "an owner", all: "everything" };

/** @typedef {{scope: string, name: string, by: string, reason: string, at: number, where: string}} Halt */

export class Halts {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** What is shown, as text: it is drawn again only when it is another. */
  #shown = "";

  /**
   * @param {import("../connection/api.js").Api} api
   * @param {HTMLElement} band where it is said what is halted
   * @param {HTMLElement} control where the kill switch is
   */
  constructor(api, band, control) {
    this.api = api;
    this.band = band;
    this.control = control;
    document.addEventListener("visibilitychange", () => void this.look());
  }

  /** Look now, and then every two seconds as long as somebody sees the page. */
  async look() {
    clearTimeout(this.#timer);
    try {
      this.#draw((await this.api.get("/api/halts")).halts ?? []);
    } catch {
      // What was known stays: a band that vanishes with the connection would say that all is well.
    }
    clearTimeout(this.#timer);
    if (!document.hidden) this.#timer = setTimeout(() => void this.look(), LOOK_MS);
  }

  /** @param {Halt[]} halts */
  #draw(halts) {
    const shown = JSON.stringify(halts);
    if (shown === this.#shown) return;
    this.#shown = shown;
    mark(document.documentElement, "data-halted", halts.length ? "" : null);
    place(this.band, halts.length ? [el("strong", null, "HALTED"), el("ul", null, ...halts.map(line))] : []);
  }

  /** Show the kill switch to those who may use it. @param {boolean} mayOperate @param {string | null} run */
  offer(mayOperate, run) {
    place(this.control, mayOperate ? [killSwitch(this, run)] : []);
  }
}

/** @param {Halt} halt */
function line(halt) {
  const what = halt.scope === "all" ? "Everything" : `${halt.scope} ${halt.name}`;
  const why = halt.reason ? `: ${halt.reason}` : "";
  const where = halt.where === "host" ? " (on this server's host only)" : "";
  return el(
    "li", null,
    el("b", null, plain(what)), plain(` by ${halt.by || "somebody"} since ${moment(halt.at)}${why}${where}. `),
    el("code", null, plain(`checkrein reset ${halt.scope}${halt.name ? ` ${halt.name}` : ""}`)),
  );
}

/** @param {Halts} halts @param {string | null} run the run in view */
function killSwitch(halts, run) {
  const names = Object.entries(SCOPES).filter(([scope]) => scope !== "run" || run);
  const options = names.map(([scope, word]) => el("option", { value: scope }, word));
  const scope = el("select", { id: "halt-scope" }, ...options);
  const name = el("input", { id: "halt-name", type: "text", autocomplete: "off", placeholder: "its name" });
  const reason = el("input", { id: "halt-reason", type: "text", autocomplete: "off", placeholder: "why" });
  const said = el("p", { role: "status" });
  const fit = () => { name.hidden = scope.value === "all" || scope.value === "run" };
  const button = holdButton(async () => {
    const target = scope.value === "run" ? run ?? "" : scope.value === "all" ? "" : name.value.trim();
    say(said, "Halting…");
    try {
      const halted = await halts.api.post("/api/halt", { scope: scope.value, name: target, reason: reason.value });
      say(said, `Halted: ${halted.receipts.length} runs ended.`);
    } catch (error) {
      say(said, /** @type {Error} */ (error).message);
    }
    await halts.look();
  });
  scope.addEventListener("change", fit);
  fit();
  return el(
    "details", { class: "kill-switch" },
    el("summary", null, "Kill switch"),
    el(
      "div", null,
      el("label", { htmlFor: "halt-scope" }, "Halt "), scope,
      el("label", { htmlFor: "halt-name", class: "unseen" }, "Its name"), name,
      el("label", { htmlFor: "halt-reason", class: "unseen" }, "Why"), reason,
      button,
    ),
    el("p", null, "Nothing is undone, and nothing begins there until an operator resets it."),
    said,
  );
}

/**
 * A button that acts once it was held, with a pointer or with Space, and not when it is let go earlier.
 * @param {() => void} act
 */
function holdButton(act) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const button = el("button", { type: "button", class: "hold", "aria-description": "Hold for a second and a half" });
  button.append("Hold to halt");
  const begin = () => {
    if (timer !== undefined) return;
    mark(button, "data-held", "");
    timer = setTimeout(() => { end(); act() }, HOLD_MS);
  };
  const end = () => {
    clearTimeout(timer);
    timer = undefined;
    mark(button, "data-held", null);
  };
  button.addEventListener("pointerdown", (event) => { if (event.button === 0) begin() });
  for (const name of ["pointerup", "pointerleave", "pointercancel", "blur"]) button.addEventListener(name, end);
  button.addEventListener("contextmenu", (event) => event.preventDefault());
  button.addEventListener("keydown", (event) => {
    if (event.key !== " ") return;
    event.preventDefault();
    if (!event.repeat) begin();
  });
  button.addEventListener("keyup", (event) => { if (event.key === " ") end() });
  return button;
}
