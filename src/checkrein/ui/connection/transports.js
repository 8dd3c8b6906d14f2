// @ts-check
/**
 * How a `RunStore` hears of its run: over a stream, or by looking now and then.
 *
 * A transport tells until its signal is aborted. It ends, or raises, when nothing can be heard any more; to connect
 * again is not its business.
 */

import { ApiError } from "./api.js";
import { parse } from "../lib/json.js";
import { FrameParser } from "./sse.js";
import { ENDED } from "../lib/types.js";

/** @import { Api } from "./api.js" */

/** @typedef {{ type: string, data: any }} Told a `view`, whole or what changed of it, or a `call.chunk` of a text */
/**
 * What was heard, in the order in which it came. Nothing at all says that the run is still heard of.
 * @typedef {(api: Api, runId: string, signal: AbortSignal) => AsyncIterable<Told[]>} Transport
 */

/** From so long a silence on, not even broken by a keep-alive, the connection counts as lost. */
const SILENCE_MS = 20_000;

/** Everything as it happens, over a connection of its own. @type {Transport} */
export async function* streaming(api, runId, signal) {
  const silence = new AbortController();
  const listen = () => setTimeout(() => silence.abort(), SILENCE_MS);
  let timer = listen();
  /** @type {ReadableStreamDefaultReader<Uint8Array> | undefined} */
  let reader;
  try {
    const either = AbortSignal.any([signal, silence.signal]);
    reader = (await api.stream(`${pathOf(runId)}/live`, either)).getReader();
    const decoder = new TextDecoder();
    const parser = new FrameParser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = listen();
      const frames = parser.feed(decoder.decode(value, { stream: true }));
      yield frames.map(({ type, data }) => ({ type, data: parse(data) }));
    }
  } finally {
    clearTimeout(timer);
    reader?.cancel().catch(() => undefined);
  }
}

const EVERY_MS = 1_000;
/** What has ended is looked at less often: a reason or an undo may still come. */
const RARELY_MS = 10_000;
const PATIENCE = 3;

/**
 * Whole views, now and then. For sub-runs: a browser opens only a handful of connections to a server, and a page that
 * held one for each sub-run would leave none for the stop button.
 * @type {Transport}
 */
export async function* polling(api, runId, signal) {
  let failures = 0;
  let isOver = false;
  while (!signal.aborted) {
    try {
      const view = await api.get(pathOf(runId));
      failures = 0;
      isOver = ENDED.has(view.status);
      yield [{ type: "view", data: { ...view, whole: true } }, ...textsOf(view)];
    } catch (error) {
      failures += 1;
      const isRefused = error instanceof ApiError && error.status !== 0;
      if (isRefused || failures >= PATIENCE) throw error;
    }
    await wait(signal, isOver || document.visibilityState === "hidden" ? RARELY_MS : EVERY_MS);
  }
}

/** How long it is only looked at before a stream is asked for again. */
const STREAM_AGAIN_MS = 15_000;

/**
 * A stream; and where the server has none to give just now, whole views until it has one. Whoever watches can stop the
 * run either way.
 * @type {Transport}
 */
export async function* streamingOrPolling(api, runId, signal) {
  for (;;) {
    try {
      yield* streaming(api, runId, signal);
      return;
    } catch (error) {
      if (!hasNoRoom(error)) throw error;
    }
    const awhile = AbortSignal.any([signal, AbortSignal.timeout(STREAM_AGAIN_MS)]);
    yield* polling(api, runId, awhile);
    if (signal.aborted) return;
  }
}

/** Whether it answered, and not about who is asking or for what. @param {unknown} error */
function hasNoRoom(error) {
  return error instanceof ApiError && (error.status === 429 || error.status >= 500);
}

/** What has been said by each call, as a stream would have told it. @param {any} view @returns {Told[]} */
function textsOf(view) {
  return (view.calls ?? [])
    .filter((/** @type {any} */ { kind, text }) => kind === "model" && text)
    .map((/** @type {any} */ { id, attempt, text }) => ({ type: "call.chunk", data: { call: id, attempt, offset: 0, text } }));
}

/** @param {string} runId */
function pathOf(runId) {
  return `/api/runs/${encodeURIComponent(runId)}`;
}

/** Wait, but not longer than until the signal is aborted. @param {AbortSignal} signal @param {number} ms */
function wait(signal, ms) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve(undefined);
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done);
  });
}
