// @ts-check
/**
 * Single keys: p, r and c, and Esc. Only while the bar has the focus, unless the page wants them everywhere; never
 * while somebody types.
 */

/**
 * What each key does; `escape` says whether it did anything.
 * @typedef {{ p: () => void, r: () => void, c: () => void, escape: () => boolean }} Keys
 */

/** Inputs in which nothing is written. */
const PRESSED = new Set(["button", "checkbox", "radio", "submit", "reset"]);

/**
 * @param {EventTarget} target
 * @param {Keys} keys
 * @returns {() => void} an undo
 */
export function listenForKeys(target, keys) {
  const listener = (/** @type {Event} */ event) => onKey(/** @type {KeyboardEvent} */ (event), keys);
  target.addEventListener("keydown", listener);
  return () => target.removeEventListener("keydown", listener);
}

/**
 * @param {KeyboardEvent} event
 * @param {Keys} keys
 */
function onKey(event, keys) {
  if (event.defaultPrevented || event.isComposing) return;
  if (event.key === "Escape") {
    if (keys.escape()) event.preventDefault();
    return;
  }
  const isChord = event.ctrlKey || event.metaKey || event.altKey;
  if (isChord || event.repeat || isTyping(event.composedPath()[0])) return;
  const key = event.key.toLowerCase();
  if (key !== "p" && key !== "r" && key !== "c") return;
  event.preventDefault();
  keys[key]();
}

/** Whether somebody writes there. @param {EventTarget | undefined} target */
export function isTyping(target) {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.closest('[role="textbox"]') !== null) return true;
  if (target instanceof HTMLInputElement) return !PRESSED.has(target.type);
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}
