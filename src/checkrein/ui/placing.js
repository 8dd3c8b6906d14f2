// @ts-check
/**
 * Where the bar stands: at the bottom of what can be seen, above an on-screen keyboard, with room kept free under the
 * page so that nothing is hidden behind it.
 */

/**
 * @param {HTMLElement} bar
 * @param {HTMLElement} room what keeps the room free
 * @returns {() => void} an undo
 */
export function keepInView(bar, room) {
  const viewport = globalThis.visualViewport;
  const lift = () => {
    // Of somebody who has zoomed in with two fingers only a part of the page is seen, and no keyboard is meant.
    const isZoomed = viewport !== null && viewport.scale > 1.01;
    const hidden = viewport === null || isZoomed ? 0 : innerHeight - viewport.height - viewport.offsetTop;
    const height = viewport === null || isZoomed ? innerHeight : viewport.height;
    bar.style.setProperty("--lift", `${Math.max(0, Math.round(hidden))}px`);
    bar.style.setProperty("--seen", `${Math.round(height)}px`);
    bar.toggleAttribute("data-short", height < 480);
  };
  const resized = new ResizeObserver(() => (room.style.blockSize = `${bar.offsetHeight}px`));
  resized.observe(bar);
  viewport?.addEventListener("resize", lift);
  viewport?.addEventListener("scroll", lift);
  addEventListener("resize", lift);
  lift();
  return () => {
    resized.disconnect();
    viewport?.removeEventListener("resize", lift);
    viewport?.removeEventListener("scroll", lift);
    removeEventListener("resize", lift);
  };
}
