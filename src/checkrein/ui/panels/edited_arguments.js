// @ts-check
/**
 * The arguments of a call that waits for consent, to be changed: then it is made with what stands here. What nobody
 * has changed stays exactly as it was recorded.
 */

import { el, mark, say } from "../lib/dom.js";
import { plain } from "../lib/escape.js";
import { parse } from "../lib/json.js";
import { decisionButton, fresh, message } from "./panel.js";

/** @typedef {{ name: string, text: string, isText: boolean, field: HTMLTextAreaElement }} Edited `text`: as it was */

export class EditedArguments {
  /** @type {Edited[]} */
  #fields = [];
  #isLoaded = false;

  /**
   * @param {import("./panel.js").Context} context
   * @param {string} call
   * @param {Partial<import("./panel.js").Made>} decided what it shares with the other answers to the same question
   * @param {() => object} noted
   */
  constructor(context, call, decided, noted) {
    this.context = context;
    this.call = call;
    this.list = el("div", { class: "edited" });
    const made = decisionButton(context.sender, "approve", call, {
      ...decided,
      takes: (event) => !(event instanceof UIEvent && event.detail > 1) && this.#isValid(),
      label: "Approve what stands here",
      consequence: "it is done with these values",
      kind: "yes",
      body: () => ({ ...noted(), arguments: this.#value() }),
    });
    this.trouble = made.trouble;
    made.button.hidden = true;
    this.button = made.button;
    this.element = el(
      "details", { class: "folded" }, el("summary", null, "Change what it is given"), this.list, made.button, made.trouble,
    );
    this.element.addEventListener("toggle", () => void this.#load());
  }

  async #load() {
    if (this.#isLoaded || !this.element.open) return;
    this.#isLoaded = true;
    try {
      const { given = [] } = await this.context.api.get(this.context.callPath(this.call));
      this.#fields = given.map(fieldOf);
      this.list.replaceChildren(...this.#fields.flatMap(({ name, field }) => [el("label", { for: field.id }, plain(name)), field]));
      this.button.hidden = this.#fields.length === 0;
      if (!this.#fields.length) say(this.trouble, "It is given nothing.");
    } catch (error) {
      this.#isLoaded = false;
      say(this.trouble, message(error));
    }
  }

  #isValid() {
    for (const { name, isText, field } of this.#fields) {
      mark(field, "aria-invalid", null);
      if (isText || isJson(field.value)) continue;
      mark(field, "aria-invalid", "true");
      say(this.trouble, `What stands for ${name} is no JSON: text goes in "quotes".`);
      field.focus();
      return false;
    }
    return true;
  }

  #value() {
    const changed = this.#fields.filter(({ text, field }) => field.value !== text);
    return Object.fromEntries(changed.map(({ name, isText, field }) => [name, isText ? field.value : parse(field.value)]));
  }
}

/** @param {import("../lib/types.js").ShownValue} value @returns {Edited} */
function fieldOf({ name, text, type = "string" }) {
  const rows = Math.min(6, text.split("\n").length);
  const field = el("textarea", { id: fresh("argument"), rows, value: text, spellcheck: false });
  return { name, text: field.value, isText: type === "string", field };
}

/** @param {string} text */
function isJson(text) {
  try {
    parse(text);
    return true;
  } catch {
    return false;
  }
}
