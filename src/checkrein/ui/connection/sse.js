// @ts-check
/** Server-sent events, taken apart as they come. */

/**
 * @typedef {{ type: string, data: string, id: string }} Frame
 */

export class FrameParser {
  #rest = "";
  #type = "";
  #id = "";
  /** @type {string[]} */
  #data = [];

  /**
   * The frames that a piece of the stream completes. A comment completes none.
   * @param {string} piece
   * @returns {Frame[]}
   */
  feed(piece) {
    /** @type {Frame[]} */
    const frames = [];
    const lines = (this.#rest + piece).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line !== "") {
        this.#field(line);
      } else if (this.#data.length) {
        frames.push({ type: this.#type || "message", data: this.#data.join("\n"), id: this.#id });
        this.#type = "";
        this.#data = [];
      }
    }
    return frames;
  }

  /** @param {string} line */
  #field(line) {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.#type = value;
    else if (name === "data") this.#data.push(value);
    else if (name === "id") this.#id = value;
  }
}
