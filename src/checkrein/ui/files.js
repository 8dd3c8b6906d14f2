// @ts-check
/** Files that a call has published: where they are, and, when somebody wants to see it, what is in them. */

import { el } from "./dom.js";
import { message } from "./panel.js";
import { plain } from "./plain.js";
import { block } from "./value.js";

/**
 * @param {import("./types.js").CallWhole} call
 * @param {import("./panel.js").Context} context
 * @returns {Node[]}
 */
export function filesOf(call, context) {
  const files = call.files ?? [];
  if (!files.length) return [];
  const shown = files.map((path, number) => {
    const inside = el("div", null);
    const details = el("details", { class: "file" }, el("summary", null, el("code", null, plain(path))), inside);
    details.addEventListener("toggle", () => {
      if (details.open) void read(context, context.callPath(call.id, `/files/${number}`), path, inside);
    });
    return el("li", null, details);
  });
  return [el("h3", null, files.length === 1 ? "The file it wrote" : "The files it wrote"), el("ul", null, ...shown)];
}

/**
 * @param {import("./panel.js").Context} context
 * @param {string} address
 * @param {string} path
 * @param {HTMLElement} place
 */
async function read(context, address, path, place) {
  try {
    place.replaceChildren(block(await context.api.text(address), `What is in ${path}`));
  } catch (error) {
    place.replaceChildren(el("p", { class: "trouble", role: "alert" }, plain(message(error))));
  }
}
