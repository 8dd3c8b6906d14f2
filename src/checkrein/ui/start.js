// @ts-check
/** Starting a run: which agent, and what it should do. Enter starts it. */

import { el, mark, say } from "./dom.js";
import { message } from "./panel.js";
import { oneLine, plain } from "./plain.js";

/** @typedef {{name: string, description?: string, tools?: string[], warnings?: string[]}} AgentCard */

const NEXT = "What should it do next, in this thread?";
const NO_AGENT = "This server has no agent. Start it with a file that defines one: checkrein serve FILE.";

export class StartForm {
  /**
   * @param {import("./api.js").Api} api
   * @param {string | null} thread the thread that the run is to belong to, if any
   * @param {(run: string) => void} started
   */
  constructor(api, thread, started) {
    this.api = api;
    this.thread = thread;
    this.started = started;
    /** @type {AgentCard[]} */
    this.cards = [];
    this.agent = el("select", { id: "agent", name: "agent", onchange: () => this.#describe() });
    this.goal = el("textarea", {
      id: "goal",
      name: "goal",
      rows: 2,
      placeholder: "For example: Which customers will churn next quarter?",
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.#onKey(event),
      oninput: () => this.#clear(),
    });
    this.about = el("div", { class: "about soft small" });
    this.trouble = el("p", { class: "trouble", role: "alert", id: "start-trouble" });
    this.button = el("button", { type: "submit", class: "main" }, "Start");
    this.element = el(
      "form",
      {
        class: "panel start",
        "aria-label": thread ? "Start a run in this thread" : "Start a run",
        onsubmit: (/** @type {Event} */ event) => void this.#submit(event),
      },
      el("label", { for: "agent", class: "for-agent" }, "Agent"),
      this.agent,
      el("label", { for: "goal", class: "for-goal" }, thread ? NEXT : "What should it do?"),
      this.goal,
      this.button,
      this.about,
      this.trouble,
    );
    void this.#load();
  }

  async #load() {
    try {
      const { agents } = await this.api.get("/api/agents");
      this.cards = agents;
      const names = this.cards.map((card) => card.name);
      this.agent.replaceChildren(...names.map((name) => el("option", { value: name }, oneLine(name, 80))));
      if (!names.length) say(this.trouble, NO_AGENT);
      this.#describe();
    } catch (error) {
      say(this.trouble, message(error));
    }
  }

  #describe() {
    const card = this.cards.find((one) => one.name === this.agent.value);
    const warnings = card?.warnings ?? [];
    this.about.replaceChildren();
    if (card?.description) this.about.append(el("p", null, plain(card.description)));
    if (!warnings.length) return;
    const list = el("ul", null, ...warnings.map((warning) => el("li", null, plain(warning))));
    this.about.append(el("details", null, el("summary", null, "Notes for its author"), list));
  }

  #clear() {
    say(this.trouble, "");
    mark(this.goal, "aria-invalid", null);
    mark(this.goal, "aria-describedby", null);
  }

  /** @param {Event} event */
  async #submit(event) {
    event.preventDefault();
    const goal = this.goal.value.trim();
    if (this.button.ariaBusy === "true") return;
    if (!goal) return this.#refuse("Say first what it should do.");
    if (!this.agent.value) return this.#refuse("There is no agent to start.");
    this.button.ariaBusy = "true";
    try {
      const thread = this.thread ? { thread: this.thread } : {};
      const run = await this.api.post("/api/runs", { agent: this.agent.value, goal, ...thread });
      this.goal.value = "";
      this.started(run.id);
    } catch (error) {
      this.#refuse(message(error));
    } finally {
      this.button.ariaBusy = null;
    }
  }

  /** @param {string} why */
  #refuse(why) {
    say(this.trouble, why);
    mark(this.goal, "aria-invalid", "true");
    mark(this.goal, "aria-describedby", "start-trouble");
    this.goal.focus();
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.element.requestSubmit();
  }
}
