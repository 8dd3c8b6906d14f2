// @ts-check
/**
 * Markdown that the server has rendered, taken over element by element from an allow-list.
 *
 * The server renders with raw HTML and images off. This walk trusts none of that: it parses into a document that
 * neither runs scripts nor loads anything, and builds new elements of its own for what it knows. Everything else is
 * dropped or becomes its text; of the attributes only the address of a link survives, if it is one
 * to follow, and the side of a cell.
 */

import { plain } from "./escape.js";

const KNOWN = new Set([
  "p", "br", "hr", "em", "strong", "s", "del", "code", "pre", "blockquote", "ul", "ol", "li", "a",
  "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "sub", "sup",
]);

/** A text stands under a heading of the page at this level; its own begin one below, and leave none out. */
const ABOVE = 2;

/** Gone with all they hold. */
const DROPPED = new Set([
  "script", "style", "template", "noscript", "iframe", "object", "embed", "svg", "math", "head", "title", "textarea",
  "select", "audio", "video", "img", "picture", "source", "link", "meta", "base", "form", "input", "button",
]);

const SCHEMES = new Set(["http:", "https:", "mailto:"]);

const policy = makePolicy();

/**
 * Safe nodes for what the server rendered.
 * @param {string} html
 * @returns {DocumentFragment}
 */
export function markdown(html) {
  const given = policy === null ? html : policy.createHTML(html);
  const parsed = new DOMParser().parseFromString(given, "text/html");
  const fragment = document.createDocumentFragment();
  levels = headings(parsed.body);
  fragment.append(...copies(parsed.body));
  return fragment;
}

/** @type {Map<Element, string>} */
let levels = new Map();

/**
 * Which heading each becomes: as deep as in the text, as far as the page allows.
 * @param {Element} body
 * @returns {Map<Element, string>}
 */
function headings(body) {
  const found = [...body.querySelectorAll("h1, h2, h3, h4, h5, h6")];
  const highest = Math.min(...found.map((heading) => Number(heading.localName[1])));
  let before = ABOVE;
  return new Map(
    found.map((heading) => {
      const level = ABOVE + 1 + Number(heading.localName[1]) - highest;
      before = Math.min(level, before + 1, 6);
      return [heading, `h${before}`];
    }),
  );
}

/** @param {Node} from @returns {Node[]} */
function copies(from) {
  return [...from.childNodes].flatMap(copyOf);
}

/** @param {Node} node @returns {Node[]} */
function copyOf(node) {
  if (node.nodeType === Node.TEXT_NODE) return [document.createTextNode(plain(node.nodeValue ?? ""))];
  if (!(node instanceof Element) && node.nodeType !== Node.ELEMENT_NODE) return [];
  const element = /** @type {Element} */ (node);
  const name = element.localName;
  if (DROPPED.has(name)) return [];
  if (!KNOWN.has(name)) return copies(element);
  const copy = document.createElement(levels.get(element) ?? name);
  if (name === "a") lead(/** @type {HTMLAnchorElement} */ (copy), element.getAttribute("href") ?? "");
  if (name === "pre") copy.tabIndex = 0;
  if (name === "th" || name === "td") align(copy, element.getAttribute("align") ?? "");
  copy.append(...copies(element));
  if (name !== "table") return [copy];
  const frame = document.createElement("div");
  frame.className = "table";
  frame.append(copy);
  return [frame];
}

/**
 * A link says where it leads, and leads nowhere unless it is one to follow.
 * @param {HTMLAnchorElement} link
 * @param {string} href
 */
function lead(link, href) {
  let url;
  try {
    url = new URL(href);
  } catch {
    return;
  }
  if (!SCHEMES.has(url.protocol)) return;
  link.href = url.href;
  link.rel = "noopener noreferrer nofollow";
  link.target = "_blank";
  link.title = plain(url.href);
}

/** @param {HTMLElement} cell @param {string} side */
function align(cell, side) {
  if (side === "right" || side === "center") cell.className = side;
}

/** Where a page demands trusted types, parsing needs a policy; the walk is what makes the outcome safe. */
function makePolicy() {
  const types = /** @type {any} */ (globalThis).trustedTypes;
  try {
    return types?.createPolicy("checkrein-markdown", { createHTML: (/** @type {string} */ html) => html }) ?? null;
  } catch {
    return null;
  }
}
