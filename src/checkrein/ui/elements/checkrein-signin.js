// @ts-check
/** `<checkrein-signin base-url>`: exchanges a token for a session of this browser. */

import { Api } from "../connection/api.js";
import { el, say } from "../lib/dom.js";
import { message } from "../panels/panel.js";
import { base, tokens } from "../styles/base.js";
import { panels } from "../styles/panels.js";
import { runsStyle } from "../styles/runs.js";

export class CheckreinSignin extends HTMLElement {
  constructor() {
    super();
    const root = this.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = [tokens, base, panels, runsStyle];
    this.field = el("input", { id: "token", type: "password", autocomplete: "off", "aria-describedby": "trouble" });
    this.trouble = el("p", { class: "trouble", role: "alert", id: "trouble" });
    const form = el(
      "form",
      { class: "panel signin", onsubmit: (/** @type {Event} */ event) => void this.#submit(event) },
      el("h1", { tabIndex: -1 }, "Who is there?"),
      el(
        "p",
        null,
        "This server answers only to those who have a token. The link that ",
        el("code", null, "checkrein serve"),
        " prints opens this page signed in; without it, paste a token here.",
      ),
      el("label", { for: "token" }, "Token"),
      this.field,
      this.trouble,
      el("button", { type: "submit", class: "main" }, "Sign in"),
    );
    root.append(el("div", { class: "sheet" }, el("main", { class: "frame" }, form)));
  }

  /** @param {Event} event */
  async #submit(event) {
    event.preventDefault();
    const token = this.field.value.trim();
    if (!token) return say(this.trouble, "Paste a token first.");
    try {
      await new Api(this.getAttribute("base-url") ?? "").post("/session", { token });
      this.field.value = "";
      this.dispatchEvent(new CustomEvent("checkrein-signed-in", { bubbles: true, composed: true }));
    } catch (error) {
      say(this.trouble, message(error));
      this.field.select();
    }
  }
}

customElements.define("checkrein-signin", CheckreinSignin);
