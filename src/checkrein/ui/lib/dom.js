// @ts-check
/**
 * Small helpers around the document: making elements, and keeping a list of them in step with a list of things.
 *
 * Text only ever becomes a text node. Nothing here reads a string as markup.
 */

import { plain } from "./escape.js";
import { shape } from "./shapes.js";

/** @typedef {Node | string | null | undefined | false} Child */

/**
 * An element with these properties and children. `class` and names with a hyphen become attributes, `on…` functions
 * listeners, everything else properties.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, unknown> | null} [properties]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, properties = null, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") && typeof value === "function") {
      element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    } else if (name === "class" || name === "role" || name === "for" || name.includes("-")) {
      element.setAttribute(name, value === true ? "" : String(value));
    } else {
      /** @type {any} */ (element)[name] = value;
    }
  }
  element.append(...children.filter(isChild));
  return element;
}

/** @param {Child} child @returns {child is Node | string} */
function isChild(child) {
  return child !== null && child !== undefined && child !== false && child !== "";
}

/**
 * Set the text of an element if it is another one, in a form in which nothing hides.
 * @param {Node} node
 * @param {string} text
 */
export function say(node, text) {
  const shown = plain(text);
  if (node.textContent !== shown) node.textContent = shown;
}

/**
 * Set or remove an attribute, only if that changes anything.
 * @param {Element} element
 * @param {string} name
 * @param {string | null} value
 */
export function mark(element, name, value) {
  if (element.getAttribute(name) === value) return;
  if (value === null) element.removeAttribute(name);
  else element.setAttribute(name, value);
}

/**
 * The children of an element by the first of their classes.
 * @param {Element} element
 * @returns {Record<string, any>}
 */
export function parts(element) {
  return Object.fromEntries(
    [...element.children].map((child) => [child.classList[0] ?? "", /** @type {HTMLElement} */ (child)]),
  );
}

/**
 * Show a shape, unless it is there already.
 * @param {HTMLElement} place
 * @param {string} name
 */
export function look(place, name) {
  if (place.dataset.shape === name) return;
  place.dataset.shape = name;
  place.replaceChildren(shape(name));
}

/**
 * Show these children, leaving alone those that are there already.
 * @param {Element} parent
 * @param {Node[]} children
 */
export function place(parent, children) {
  children.forEach((child, n) => {
    const there = parent.childNodes[n] ?? null;
    if (there !== child) parent.insertBefore(child, there);
  });
  while (parent.childNodes.length > children.length) parent.lastChild?.remove();
}

/**
 * A list of elements kept in step with a list of things: an element stays with its thing, so focus, open details and
 * selections stay too, and only a thing that is another object than before is drawn again.
 * @template T
 * @template {HTMLElement} [E=HTMLElement]
 */
export class Keyed {
  /** @type {Map<string, {element: E, thing: T}>} */
  #rows = new Map();

  /**
   * @param {HTMLElement} parent
   * @param {(thing: T) => string} key
   * @param {(thing: T) => E} make
   * @param {(element: E, thing: T) => void} draw
   */
  constructor(parent, key, make, draw) {
    this.parent = parent;
    this.key = key;
    this.make = make;
    this.draw = draw;
  }

  /** @param {Iterable<T>} things */
  show(things) {
    /** @type {Map<string, {element: E, thing: T}>} */
    const rows = new Map();
    for (const thing of things) {
      const key = this.key(thing);
      const before = this.#rows.get(key);
      const element = before?.element ?? this.make(thing);
      if (before?.thing !== thing) this.draw(element, thing);
      rows.set(key, { element, thing });
    }
    this.#rows = rows;
    place(this.parent, [...rows.values()].map((row) => row.element));
  }

  /** Draw one again although it is the same thing, as when only time has passed. @param {string} key */
  again(key) {
    const row = this.#rows.get(key);
    if (row) this.draw(row.element, row.thing);
  }

  /** @param {string} key */
  element(key) {
    return this.#rows.get(key)?.element ?? null;
  }

  get size() {
    return this.#rows.size;
  }
}

/**
 * A button that copies what `text` says, and says for a moment that it did.
 * @param {() => string | Promise<string>} text
 * @param {string} what is copied, for those who cannot see what stands beside the button
 */
export function copyButton(text, what) {
  const label = el("span", null, "Copy");
  const button = el("button", { type: "button", class: "quiet", onclick: copy }, label);
  button.append(el("span", { class: "unseen" }, ` ${plain(what)}`));
  async function copy() {
    try {
      await navigator.clipboard.writeText(plain(await text()));
      label.textContent = "Copied";
    } catch {
      label.textContent = "Copying is not allowed here: select it instead";
    }
    setTimeout(() => (label.textContent = "Copy"), 1800);
  }
  return button;
}
