// @ts-check
/**
 * A word from the browser when a run begins to wait for a person while this page is in the background. Nobody is asked
 * whether they want that: they say so by a click, and can take it back by another.
 */
import { el, mark, say } from "./dom.js";
import { oneLine } from "./escape.js";

const KEPT = "checkrein.notify";

/** Whether somebody wants to be told, and may be. */
export function isWanted() {
  return "Notification" in globalThis && Notification.permission === "granted" && kept() === "on";
}

/**
 * Say it, if nobody is looking.
 * @param {{ run: string, goal: string, what: string }} news
 * @param {() => void} go where it leads
 */
export function notify({ run, goal, what }, go) {
  if (!isWanted() || document.visibilityState === "visible") return;
  const told = new Notification("A run waits for you", { body: `${oneLine(goal, 80)}\n${oneLine(what, 120)}`, tag: run });
  told.onclick = () => {
    focus();
    go();
    told.close();
  };
}

/** The button that turns it on and off; null where the browser has nothing of the kind. */
export function notifyButton() {
  if (!("Notification" in globalThis)) return null;
  const button = el("button", { type: "button", onclick: () => void turn() });
  const show = () => {
    mark(button, "aria-pressed", String(isWanted()));
    say(button, isWanted() ? "Told when a run waits ✓" : "Tell me when a run waits");
  };
  async function turn() {
    if (isWanted()) {
      keep("off");
    } else if ((await Notification.requestPermission()) === "granted") {
      keep("on");
    } else {
      say(button, "Your browser does not allow it");
      return;
    }
    show();
  }
  show();
  return button;
}

function kept() {
  try {
    return localStorage.getItem(KEPT);
  } catch {
    return null;
  }
}

/** @param {string} value */
function keep(value) {
  try {
    localStorage.setItem(KEPT, value);
  } catch {
    // A page may be forbidden to keep anything.
  }
}
