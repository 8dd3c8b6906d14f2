// @ts-check
/**
 * What the server says about a run, as `GET /api/runs/{id}` and its live stream tell it. Only types.
 *
 * Fields at their default are left out by the server; `RunStore` puts the top-level ones back.
 *
 * @typedef {"queued" | "running" | "pausing" | "paused" | "redirecting" | "cancelling"
 *   | "completed" | "failed" | "cancelled" | "killed"} Status
 * @typedef {"queued" | "running" | "paused" | "done" | "cancelled" | "undone" | "failed" | "needs_you"
 *   | "not_started"} Shown
 * @typedef {"pause" | "resume" | "redirect" | "cancel" | "ask"} Control
 *
 * @typedef {{ enabled: boolean, consequence: string }} ControlView
 * @typedef {{ number: number, title: string, shown: Shown, calls?: string[], started_at?: number | null,
 *   finished_at?: number | null }} StepView
 * @typedef {{ id: string, kind: "model" | "tool" | "ask" | "undo" | "run" | "process", name: string, shown: Shown, now: string,
 *   step?: number | null, attempt?: number, error?: string | null, started_at?: number | null,
 *   finished_at?: number | null, stopped_by?: string | null, run?: string | null, reused_from?: string, summary?: string,
 *   partial_chars?: number }} CallBrief
 * @typedef {{ run: string, step: number, title: string, calls?: number, by?: string, instruction?: string, told?: string,
 *   effects?: { call: string, what: string, now: EffectView["now"] }[], more_effects?: number }} OriginView
 * @typedef {{ kind: string, what: string, call?: string, remedy?: string }} WaitingView
 * @typedef {{ name: string, text: string, hidden?: number, type?: string }} ShownValue what is shown of a value: `text` is made
 *   by the server of what is recorded, `hidden` characters of it are left out, `type` is what JSON calls it
 * @typedef {{ call: string, name: string, requested_at: number, shown?: ShownValue[], fingerprint?: string, headline?: string,
 *   can_undo?: boolean, blocks?: boolean }} ApprovalView
 * @typedef {{ answer: "happened" | "did_not_happen" | "undo", enabled: boolean, consequence: string }} AnswerView
 * @typedef {{ call: string, name: string, answers: AnswerView[], started_at?: number, shown?: ShownValue[],
 *   blocks?: boolean, may_still_happen?: boolean, checked?: CheckView }} DoubtView
 * @typedef {{ at: number, answer?: "happened" | "did_not_happen" | "undo", note?: string }} CheckView
 * @typedef {{ verb: string, by: string, at: number, waiting_for?: string }} SettlingView
 * @typedef {{ id: string, what: string, now: "open" | "settled" | "undone" | "in_doubt" | "left", why?: string,
 *   can_undo?: boolean }} EffectView
 * @typedef {{ verb: string, by: string, text: string, at: number, diff?: string, delivered?: boolean | null }} InstructionView
 * @typedef {{ watcher: string, what: string, at: number, call?: string }} FlagView
 * @typedef {{ at: number, verb: string, by: string, reasons: string[], run: string, agent: string, goal: string,
 *   stopped_ms: number | null, tokens_after_stop: number, last_text: string, damage: string, seq: number,
 *   store_at: number | null, call: string, shown_by_then: number | null, shown_in_all: number | null,
 *   flag: { watcher: string, what: string, at: number, seconds_before: number, withheld_chars: number } | null }} StopRow
 * @typedef {{ label: string, used: number | null, allowed: number, words: string }} CapView
 * @typedef {{ turns?: number, model_calls?: number, tool_calls?: number, input_tokens?: number,
 *   output_tokens?: number, cost_usd?: number | null, effects?: number, estimated?: boolean }} Usage
 * @typedef {{ id: string, kind: string, name: string, now: string, ms?: number,
 *   left?: string[], waited_for?: string, before_first_token?: boolean }} StoppedCall
 * @typedef {{ id: string, what: string, now: "open" | "settled" | "undone" | "in_doubt" | "left",
 *   why?: string }} ChangedEffect
 * @typedef {{ verb: string, run: string, status: Status, seq: number, by: string, reason?: string,
 *   timing_ms?: { accepted?: number | null, calls_stopped?: number | null, settled?: number | null }, calls?: StoppedCall[],
 *   effects?: ChangedEffect[], tokens_after_stop?: number, partial?: { chars?: number, thread?: string },
 *   superseded_by?: string | null, delivered?: boolean | null, answer?: string | null,
 *   waiting_for?: string | null }} Receipt
 * @typedef {{ reason: string, by: string, at: number, note?: string }} ReasonView
 * @typedef {{ verb: string, seq: number, by: string, at: number, reason?: string, question?: string,
 *   call?: string }} VerbView
 * @typedef {CallBrief & { given?: ShownValue[], brought?: ShownValue, asked_for?: ShownValue[], approved_by?: string,
 *   edited_by?: string, resolved_by?: string, text?: string, thinking?: string, html?: string,
 *   files?: string[], traceback?: string, left?: string[], waits_for?: string }} CallWhole
 * @typedef {{ id: string, status: Status, waiting: boolean, waiting_for?: WaitingView[], agent: string, goal: string,
 *   thread: string, owner?: string, parent?: string | null, created_at: number, changed_at: number,
 *   driven?: boolean, waits_for_worker?: string, elapsed_seconds: number, ticking: boolean, usage?: Usage,
 *   steps?: [number, number] }} RunRow
 *
 * @typedef {object} RunView
 * @property {string} id
 * @property {Status} status
 * @property {string} agent
 * @property {string} goal
 * @property {string} thread
 * @property {string} owner
 * @property {string | null} parent
 * @property {string | null} continues
 * @property {OriginView | null} forked_from
 * @property {number} seq
 * @property {number} status_seq
 * @property {number} created_at
 * @property {number | null} finished_at
 * @property {boolean} [driven] false: at work by its status, and no living process drives it
 * @property {string} [waits_for_worker] what it waits for, where nobody is known who could drive it
 * @property {number} elapsed_seconds
 * @property {boolean} ticking
 * @property {number} at
 * @property {WaitingView[]} waiting
 * @property {ApprovalView[]} approvals
 * @property {number} more_approvals how many more calls wait for consent than are in `approvals`
 * @property {DoubtView[]} doubts
 * @property {SettlingView[]} settling
 * @property {StepView[]} steps
 * @property {boolean} planned whether the steps are those of a plan; else they are made of the calls
 * @property {Map<string, CallBrief>} calls
 * @property {EffectView[]} effects
 * @property {InstructionView[]} instructions
 * @property {FlagView[]} flags
 * @property {Usage} usage
 * @property {CapView[]} caps
 * @property {Partial<Record<Control, ControlView>>} controls
 * @property {Receipt[]} receipts
 * @property {ReasonView[]} reasons
 * @property {VerbView[]} verbs
 * @property {any} result
 * @property {string | null} error
 */

/** @type {ReadonlySet<Status>} */
export const ENDED = new Set(/** @type {Status[]} */ (["completed", "failed", "cancelled", "killed"]));

/**
 * A view with nothing in it, for the fields that a server leaves out.
 * @returns {RunView}
 */
export function emptyView() {
  return {
    id: "", status: "queued", agent: "", goal: "", thread: "", owner: "", parent: null, continues: null, forked_from: null, seq: 0,
    status_seq: 0, created_at: 0, finished_at: null, elapsed_seconds: 0, ticking: false, at: 0, waiting: [],
    approvals: [], more_approvals: 0, doubts: [], settling: [], steps: [], planned: false, calls: new Map(), effects: [], instructions: [], flags: [],
    usage: {}, caps: [], controls: {}, receipts: [], reasons: [],
    verbs: [], result: null, error: null,
  };
}
