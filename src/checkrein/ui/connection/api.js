// @ts-check
/**
 * Requests to a Checkrein server, and nothing about what they mean.
 *
 * With a token, every request carries it and no cookie: the way of a bar in somebody else's page. Without one, the
 * session cookie of the server's own page is used.
 */
import { parse } from "../lib/json.js";

/** A request that was refused, or got no answer: then `status` is 0 and nobody knows whether it was taken. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} code
   * @param {string} message a sentence for people
   * @param {any} body what the server answered, or null
   */
  constructor(status, code, message, body = null) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.body = body;
  }

  /** Whether asking again with the same request_id is right: there was no answer, or none by the server itself. */
  get isUnanswered() {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

const ANSWER_MS = 20_000;

export class Api {
  /**
   * @param {string} baseUrl where the server is, such as `https://agents.example.com`; empty: where the page is from
   * @param {string | null} token
   */
  constructor(baseUrl = "", token = null) {
    this.baseUrl = baseUrl.replace(/\/+$/, "");
    this.token = token || null;
  }

  /**
   * @param {string} path
   * @returns {Promise<any>} the JSON of the answer; raises `ApiError`
   */
  async get(path) {
    return this.#json(await this.#send(path, { method: "GET" }));
  }

  /**
   * @param {string} path
   * @param {object} [body]
   * @returns {Promise<any>}
   */
  async post(path, body = {}) {
    const headers = { "Content-Type": "application/json" };
    return this.#json(await this.#send(path, { method: "POST", headers, body: JSON.stringify(body) }));
  }

  /**
   * @param {string} path
   * @returns {Promise<any>}
   */
  async delete(path) {
    return this.#json(await this.#send(path, { method: "DELETE" }));
  }

  /**
   * A file as text.
   * @param {string} path
   * @returns {Promise<string>} raises `ApiError`
   */
  async text(path) {
    const response = await this.#send(path, { headers: { Accept: "text/plain" } });
    if (!response.ok) throw await refusal(response);
    if (!response.headers.get("Content-Type")?.startsWith("text/plain")) {
      throw new ApiError(response.status, "no_text", "This file is no text; look at it where it is.");
    }
    return response.text();
  }

  /**
   * Open an event stream. It is read until `signal` says otherwise.
   * @param {string} path
   * @param {AbortSignal} signal
   * @returns {Promise<ReadableStream<Uint8Array>>} raises `ApiError`
   */
  async stream(path, signal) {
    const response = await this.#send(path, { headers: { Accept: "text/event-stream" }, cache: "no-store" }, signal);
    if (!response.ok || response.body === null) throw await refusal(response);
    return response.body;
  }

  /**
   * @param {string} path
   * @param {RequestInit} init
   * @param {AbortSignal} [signal]
   */
  async #send(path, init, signal = AbortSignal.timeout(ANSWER_MS)) {
    const headers = new Headers(init.headers);
    if (!headers.has("Accept")) headers.set("Accept", "application/json");
    if (this.token !== null) headers.set("Authorization", `Bearer ${this.token}`);
    const credentials = this.token === null ? "same-origin" : "omit";
    try {
      return await fetch(this.baseUrl + path, { ...init, headers, credentials, signal });
    } catch {
      throw new ApiError(0, "unreachable", "The server did not answer.");
    }
  }

  /** @param {Response} response */
  async #json(response) {
    if (!response.ok) throw await refusal(response);
    if (response.status === 204) return null;
    try {
      return parse(await response.text());
    } catch {
      throw new ApiError(0, "unreachable", "The answer of the server broke off.");
    }
  }
}

/**
 * @param {Response} response
 * @returns {Promise<ApiError>}
 */
async function refusal(response) {
  /** @type {any} */
  let body = null;
  try {
    body = await response.json();
  } catch {
    // Somebody between us and the server has answered, in a language of their own.
  }
  const code = typeof body?.code === "string" ? body.code : `http_${response.status}`;
  const message = typeof body?.message === "string" ? body.message : `The server answered ${response.status}.`;
  return new ApiError(response.status, code, message, body);
}

/**
 * The name of a request. Repeating a request under the same name does nothing twice.
 * @returns {string}
 */
export function newRequestId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
