// @ts-check
/**
 * The page: which address shows what, and who is looking.
 *
 * `/` lists the runs, `/?thread=…` those of a thread, `/runs/{id}` shows one. Links within are followed without a
 * reload, so that a run opens at once.
 */

import { Api } from "./api.js";
import { el, mark } from "./dom.js";
import { plain } from "./plain.js";
import "./run.js";
import "./runs.js";
import "./signin.js";
import { tokens } from "./style.js";

const base = document.querySelector('meta[name="checkrein-base"]')?.getAttribute("content")?.replace(/\/+$/, "") ?? "";
const page = /** @type {HTMLElement} */ (document.getElementById("page"));
const who = /** @type {HTMLElement} */ (document.getElementById("who"));
const api = new Api(base);
/** What whoever looks may do; null until it is known. @type {string | null} */
let may = null;

document.adoptedStyleSheets = [...document.adoptedStyleSheets, tokens];
document.querySelector(".brand")?.setAttribute("href", `${base}/`);

/** @param {boolean} takeFocus whether somebody has just followed a link */
function show(takeFocus) {
  const element = elementFor(new URL(location.href));
  document.title = "Checkrein";
  page.replaceChildren(element);
  if (!takeFocus) return;
  scrollTo(0, 0);
  page.focus({ preventScroll: true });
}

/** @param {URL} url @returns {HTMLElement} */
function elementFor(url) {
  const path = url.pathname.slice(base.length);
  const run = /^\/runs\/([^/]+)\/?$/.exec(path)?.[1];
  const element = document.createElement(run ? "checkrein-run" : "checkrein-runs");
  mark(element, "base-url", base);
  mark(element, "may", may);
  if (run) mark(element, "run-id", decodeURIComponent(run));
  else mark(element, "thread", url.searchParams.get("thread"));
  return element;
}

/** @param {string} address */
function go(address) {
  history.pushState(null, "", address);
  show(true);
}

/** Links to this page are followed here; everything else is the browser's. @param {MouseEvent} event */
function onClick(event) {
  const isPlain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
  if (event.defaultPrevented || !isPlain) return;
  const link = event.composedPath().find((node) => node instanceof HTMLAnchorElement);
  if (!(link instanceof HTMLAnchorElement) || link.target || link.origin !== location.origin || link.hash) return;
  const path = link.pathname;
  if (path !== `${base}/` && !path.startsWith(`${base}/runs/`)) return;
  event.preventDefault();
  go(link.href);
}

// -- who is looking

async function meet() {
  try {
    const me = await api.get("/api/whoami");
    const out = el("button", { type: "button", onclick: () => void leave() }, "Sign out");
    who.replaceChildren(el("span", null, plain(me.name === me.role ? me.role : `${me.name} · ${me.role}`)), out);
    may = (me.may ?? []).join(" ");
    if (page.firstElementChild) mark(page.firstElementChild, "may", may);
  } catch (error) {
    if (/** @type {{status?: number}} */ (error).status === 401) signIn();
  }
}

async function leave() {
  await api.delete("/session").catch(() => undefined);
  signIn();
}

function signIn() {
  if (page.firstElementChild?.localName === "checkrein-signin") return;
  who.replaceChildren();
  document.title = "Sign in · Checkrein";
  const element = document.createElement("checkrein-signin");
  mark(element, "base-url", base);
  page.replaceChildren(element);
}

// -- what the elements tell

document.addEventListener("click", onClick);
addEventListener("popstate", () => show(false));
document.addEventListener("checkrein-unauthorised", signIn);
document.addEventListener("checkrein-signed-in", () => {
  show(true);
  void meet();
});
for (const name of ["checkrein-started", "checkrein-continued"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    go(`${base}/runs/${encodeURIComponent(/** @type {CustomEvent} */ (event).detail.run)}`);
  });
}
document.addEventListener("checkrein-standing", (event) => {
  const { word, goal } = /** @type {CustomEvent} */ (event).detail;
  document.title = plain(`${word} · ${goal} · Checkrein`);
});
document.addEventListener("checkrein-waiting", (event) => {
  const { count } = /** @type {CustomEvent} */ (event).detail;
  document.title = count ? `(${count}) Runs · Checkrein` : "Runs · Checkrein";
});

show(false);
void meet();
