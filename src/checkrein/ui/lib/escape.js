// @ts-check
/**
 * Text from outside, made safe to show: nothing in it hides, or changes the order of what is read.
 *
 * A text node already keeps markup from acting. What is left are characters that a reader does not see: codes for a
 * terminal, marks that turn the direction of a line, letters without width. They are shown as escapes, such as `\x1b`.
 */

const HIDDEN = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f" + // for terminals; line ends and tabs stay
    "\\u00ad\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u2800\\u3164\\ufe00-\\ufe0d\\uffa0" + // shows nothing
    "\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff" + // without width, or turns the line around
    "\\ufff0-\\uffff\\ud800-\\udfff\\u{e0000}-\\u{e0fff}]", // no characters, and tags nobody sees
  "gu",
);

const JOINERS = "\u200c\u200d";

/** What a joiner may follow: a picture, a mark, or a letter of a script that is written with joiners. */
const JOINED = new RegExp(
  "[\\p{Extended_Pictographic}\\p{Emoji_Modifier}\\p{M}\\ufe0f]" +
    "|[^\\p{Script=Latin}\\p{Script=Greek}\\p{Script=Cyrillic}\\P{L}]",
  "u",
);

/**
 * `text` with each character that acts or hides shown as an escape. Line ends and tabs stay.
 * @param {string} text
 * @param {string} [before] what stands before it, where it comes in pieces
 */
export function plain(text, before = "") {
  HIDDEN.lastIndex = 0;
  if (!HIDDEN.test(text)) return text;
  return text.replace(/\r\n/g, "\n").replace(HIDDEN, (character, at, whole) => {
    const previous = at > 0 ? lastOf(whole.slice(Math.max(0, at - 2), at)) : lastOf(before);
    return JOINERS.includes(character) && JOINED.test(previous) ? character : escaped(character);
  });
}

/**
 * The same on one line; what is longer than `longest` is cut, and says so.
 * @param {string} text
 * @param {number} [longest]
 */
export function oneLine(text, longest = 200) {
  const line = plain(text.slice(0, longest * 4)).split(/\s+/u).join(" ").trim();
  return line.length <= longest && text.length <= longest * 4 ? line : `${line.slice(0, longest - 1)}…`;
}

/** @param {string} text */
function lastOf(text) {
  return [...text].at(-1) ?? "";
}

/** @param {string} character */
function escaped(character) {
  const code = character.codePointAt(0) ?? 0;
  const digits = code.toString(16);
  if (code < 0x100) return `\\x${digits.padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${digits.padStart(4, "0")}` : `\\u{${digits}}`;
}
