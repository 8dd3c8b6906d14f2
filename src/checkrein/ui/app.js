// @ts-check
/**
 * The page: which address shows what, and who is looking.
 *
 * `/` lists the runs, `/?thread=…` those of a thread, `/runs/{id}` shows one, `/stops` lists every stop; everything
 * else is nowhere, with a way back. Links within are followed without a reload, so that a run opens at once.
 */

import "./elements/checkrein-run.js";
import "./elements/checkrein-runs.js";
import "./elements/checkrein-signin.js";
import "./elements/checkrein-stops.js";
import { Api } from "./connection/api.js";
import { el, mark } from "./lib/dom.js";
import { plain } from "./lib/escape.js";
import { notify, notifyButton } from "./lib/notify.js";
import { Halts } from "./page/halts.js";
import { tokens } from "./styles/base.js";

const base = document.querySelector('meta[name="checkrein-base"]')?.getAttribute("content")?.replace(/\/+$/, "") ?? "";
const page = /** @type {HTMLElement} */ (document.getElementById("page"));
const who = /** @type {HTMLElement} */ (document.getElementById("who"));
const api = new Api(base);
const halts = new Halts(
  api, /** @type {HTMLElement} */ (document.getElementById("halts")),
  /** @type {HTMLElement} */ (document.getElementById("kill-switch")),
);
/** What whoever looks may do; null until it is known. @type {string | null} */
let may = null;

document.adoptedStyleSheets = [...document.adoptedStyleSheets, tokens];
document.querySelector(".brand")?.setAttribute("href", `${base}/`);
document.querySelector(".to-stops")?.setAttribute("href", `${base}/stops`);

/** @param {boolean} takeFocus whether somebody has just followed a link */
function show(takeFocus) {
  document.title = "Checkrein";
  const element = elementFor(new URL(location.href));
  page.replaceChildren(element);
  offerKillSwitch();
  if (!takeFocus) return;
  scrollTo(0, 0);
  page.focus({ preventScroll: true });
}

/** @param {URL} url @returns {HTMLElement} */
function elementFor(url) {
  const path = url.pathname.slice(base.length);
  const run = /^\/runs\/([^/]+)\/?$/.exec(path)?.[1];
  const isStops = /^\/stops\/?$/.test(path);
  if (!run && !isStops && path !== "" && path !== "/") return nowhere();
  const element = document.createElement(run ? "checkrein-run" : isStops ? "checkrein-stops" : "checkrein-runs");
  mark(element, "base-url", base);
  mark(element, "may", may);
  if (run) mark(element, "run-id", decodeURIComponent(run));
  else if (!isStops) mark(element, "thread", url.searchParams.get("thread"));
  return element;
}

function offerKillSwitch() {
  const run = /^\/runs\/([^/]+)\/?$/.exec(location.pathname.slice(base.length))?.[1];
  halts.offer((may ?? "").split(" ").includes("operate"), run ? decodeURIComponent(run) : null);
}

/** An address that is none. */
function nowhere() {
  document.title = "Not found · Checkrein";
  return el(
    "main", { class: "lone" },
    el("h1", null, "There is nothing at this address"),
    el("p", null, el("a", { href: `${base}/` }, "All runs")),
  );
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
  if (path !== `${base}/` && path !== `${base}/stops` && !path.startsWith(`${base}/runs/`)) return;
  event.preventDefault();
  go(link.href);
}

// -- who is looking

async function meet() {
  try {
    const me = await api.get("/api/whoami");
    const out = el("button", { type: "button", onclick: () => void leave() }, "Sign out");
    const name = el("span", null, plain(me.name === me.role ? me.role : `${me.name} · ${me.role}`));
    who.replaceChildren(...[notifyButton(), name, out].filter((part) => part !== null));
    may = (me.may ?? []).join(" ");
    if (page.firstElementChild) mark(page.firstElementChild, "may", may);
    offerKillSwitch();
    void halts.look();
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
document.addEventListener("checkrein-waits", (event) => {
  const { detail } = /** @type {CustomEvent} */ (event);
  notify(detail, () => go(`${base}/runs/${encodeURIComponent(detail.run)}`));
});
document.addEventListener("checkrein-waiting", (event) => {
  const { count } = /** @type {CustomEvent} */ (event).detail;
  document.title = count ? `(${count}) Runs · Checkrein` : "Runs · Checkrein";
});

show(false);
void meet();
