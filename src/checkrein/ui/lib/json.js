// @ts-check
/**
 * JSON read without changing a number.
 *
 * A number of JavaScript has 53 bits; an account number may have more digits. What would be another number here is kept
 * as it was written (`JSON.rawJSON`), and is written again exactly so. In a browser that cannot do that it becomes a
 * sentence instead of another number.
 */

/** Only where one of these occurs can a number be lost; looking at every value takes time. */
const RISKY = /\d{16}|[eE]\+?\d{3}|-0/;

/** @param {string} text @returns {any} raises `SyntaxError` */
export function parse(text) {
  return RISKY.test(text) ? JSON.parse(text, exactly) : JSON.parse(text);
}

/**
 * @param {string} _name
 * @param {any} value
 * @param {{ source?: string }} [context]
 */
function exactly(_name, value, context) {
  if (typeof value !== "number" || isKept(value, context?.source)) return value;
  const { rawJSON } = /** @type {any} */ (JSON);
  if (context?.source === undefined || rawJSON === undefined) return "a number that this browser cannot show exactly";
  return rawJSON(context.source);
}

/** Whether a number of this page is the number that was written. @param {number} value @param {string | undefined} source */
function isKept(value, source) {
  if (Object.is(value, -0) || !Number.isFinite(value)) return false;
  if (Number.isSafeInteger(value)) return true;
  // A whole number beyond 53 bits; what has a point or an exponent is such a number for the tool, too.
  return source === undefined ? !Number.isInteger(value) : /[.eE]/.test(source);
}
