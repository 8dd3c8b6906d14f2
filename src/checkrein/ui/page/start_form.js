// @ts-check
/** Starting a run: which agent, and what it should do. Enter starts it. */

import { el, mark, say } from "../lib/dom.js";
import { oneLine, plain } from "../lib/escape.js";
import { message } from "../panels/panel.js";

/** @typedef {{name: string, description?: string, tools?: string[], warnings?: string[], goals?: string[]}} AgentCard
 *   `goals`: what its author would have somebody try first */

const NEXT = "What should it do next, in this thread?";
const NO_AGENT = "This server has no agent. Start it with a file that defines one: checkrein serve FILE.";

export class StartForm {
  /**
   * @param {import("../connection/api.js").Api} api
   * @param {string | null} thread the thread that the run is to belong to, if any
   * @param {(run: string) => void} started
   * @param {(agents: string[]) => void} known
   */
  constructor(api, thread, started, known = () => {}) {
    this.api = api;
    this.thread = thread;
    this.started = started;
    this.known = known;
    /** @type {AgentCard[]} */
    this.cards = [];
    this.agent = el("select", { id: "agent", name: "agent", onchange: () => this.#describe() });
    this.goal = el("textarea", {
      id: "goal",
      name: "goal",
      rows: 2,
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.#onKey(event),
      oninput: () => this.#clear(),
    });
    this.goals = el("div", { class: "goals", role: "group", "aria-label": "Goals to try", hidden: true });
    this.opener = el("button", { type: "button", class: "opener", "aria-expanded": "false", onclick: () => this.#unfold() }, "Start a run");
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
      this.opener,
      el("label", { for: "agent", class: "for-agent" }, "Agent"),
      this.agent,
      el("label", { for: "goal", class: "for-goal" }, thread ? NEXT : "What should it do?"),
      this.goal,
      this.button,
      this.goals,
      this.about,
      this.trouble,
    );
    this.loaded = this.#load();
  }

  async #load() {
    try {
      const { agents } = await this.api.get("/api/agents");
      this.cards = agents;
      const names = this.cards.map((card) => card.name);
      this.agent.replaceChildren(...names.map((name) => el("option", { value: name }, oneLine(name, 80))));
      if (!names.length) say(this.trouble, NO_AGENT);
      this.known(names);
      this.#describe();
    } catch (error) {
      say(this.trouble, message(error));
    }
  }

  #describe() {
    const card = this.cards.find((one) => one.name === this.agent.value);
    const warnings = card?.warnings ?? [];
    const goals = this.thread ? [] : card?.goals ?? [];
    this.goals.hidden = goals.length === 0;
    this.goals.replaceChildren(
      el("span", { class: "soft small" }, "For example:"),
      ...goals.map((goal) => el("button", { type: "button", class: "goal-to-click", onclick: () => this.#take(goal) }, plain(goal))),
    );
    this.about.replaceChildren();
    if (card?.description) this.about.append(el("p", null, plain(card.description)));
    if (!warnings.length) return;
    const list = el("ul", null, ...warnings.map((warning) => el("li", null, plain(warning))));
    this.about.append(el("details", null, el("summary", null, "What its author should mend"), list));
  }

  /** Start with a goal of the agent's author. @param {string} goal */
  #take(goal) {
    this.goal.value = goal;
    this.#clear();
    this.element.requestSubmit();
  }

  /** Where there is little room it is a button, once there are runs to look at. @param {boolean} hasRuns */
  fold(hasRuns) {
    if (this.#isDecided) return;
    this.#isDecided = true;
    this.element.toggleAttribute("data-folded", hasRuns);
  }

  #isDecided = false;

  #unfold() {
    this.element.removeAttribute("data-folded");
    this.goal.focus();
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
    this.button.ariaBusy = "true";
    try {
      await this.loaded; // whoever is quicker than the list of agents has not left anything out
      if (!this.agent.value) return this.#refuse("There is no agent to start.");
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
