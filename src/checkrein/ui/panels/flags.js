// @ts-check
/** What watchers noticed. */

import { el, Keyed, parts, say } from "../lib/dom.js";
import { moment } from "../lib/time.js";
import { Panel } from "./panel.js";

/** @typedef {import("../lib/types.js").FlagView} FlagView */

const LAST = 50;

export class FlagsPanel extends Panel {
  static needs = ["flags"];

  /** @param {import("./panel.js").Context} context */
  constructor(context) {
    super(context, "Noticed", "flags");
    this.list = el("ul", { class: "rows" });
    this.body.append(this.list);
    this.rows = new Keyed(
      this.list,
      (/** @type {FlagView} */ flag) => `${flag.at} ${flag.watcher} ${flag.what}`,
      (flag) => this.#make(flag),
      (row, flag) => {
        const found = parts(row);
        say(found["head-line"], `${moment(flag.at)} · ${flag.watcher}`);
        say(found.what, flag.what);
      },
    );
  }

  /** @param {import("../lib/types.js").RunView} view */
  draw(view) {
    this.show(view.flags.length > 0);
    this.rows.show(view.flags.slice(-LAST));
  }

  /** @param {FlagView} flag */
  #make(flag) {
    const { call } = flag;
    return el(
      "li",
      { class: "flag" },
      el("span", { class: "head-line" }),
      el("span", { class: "what" }),
      call && el("button", { type: "button", class: "quiet", onclick: () => this.context.open(call) }, "Show the call"),
    );
  }
}
