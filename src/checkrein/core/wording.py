"""What things are called: the one place where a status, an outcome, a verb or a number becomes English.

The refusals, the buttons, the receipts and the command line say what is written here; the page is given the same words
as data (`words_for_page`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from checkrein.core.conditions import Cost, Effects, Elapsed, Repeats, Tokens, ToolCalls, Turns
from checkrein.core.enums import Answer, CallKind, EffectState, Outcome, Status, Verb
from checkrein.core.escape import one_line

# -- statuses

STATUS_WORDS: Final[Mapping[Status, str]] = {
    Status.QUEUED: "Queued",
    Status.RUNNING: "Running",
    Status.PAUSING: "Pausing…",
    Status.PAUSED: "Paused",
    Status.REDIRECTING: "Redirecting…",
    Status.CANCELLING: "Cancelling…",
    Status.COMPLETED: "Completed",
    Status.FAILED: "Failed",
    Status.CANCELLED: "Cancelled",
    Status.KILLED: "Halted by an operator",
}
"""A run's status, as a heading. A gerund says that something is still settling."""

WAITING_FOR_PROCESS: Final = "Waiting for its process"
"""A run that is at work by its status, while no living process drives it."""


def status_word(status: Status, *, driven: bool = True) -> str:
    """A run's status, as a heading. `driven`: whether a living process drives it, or it needs none."""
    if driven:
        return STATUS_WORDS[status]
    if status is Status.RUNNING:
        return WAITING_FOR_PROCESS
    return f"{STATUS_WORDS[status]}, {WAITING_FOR_PROCESS.lower()}"  # a stop is in force with or without one


def worker_wanted(agent: str, version: str = "", *, is_full: bool = False) -> str:
    """Of a run that nobody can drive at the moment: what it waits for. `is_full`: those who could have no slot free."""
    worker = f"a worker with agent {agent}" + (f" (version {version})" if version else "")
    return f"a free slot of {worker}" if is_full else worker


WHY_NOT: Final[Mapping[Status, str]] = {
    Status.QUEUED: "it has not begun",
    Status.RUNNING: "it is running",
    Status.PAUSING: "it is being paused",
    Status.PAUSED: "it is paused",
    Status.REDIRECTING: "it is being redirected",
    Status.CANCELLING: "it is being cancelled",
    Status.COMPLETED: "it has completed",
    Status.FAILED: "it has failed",
    Status.CANCELLED: "it was cancelled",
    Status.KILLED: "an operator halted it",
}
"""Why a verb is not possible in a status, beside its button."""

TOO_LATE: Final[Mapping[Status, str]] = {
    Status.COMPLETED: "it had completed before this; there was nothing left to stop",
    Status.FAILED: "it had failed before this",
    Status.CANCELLED: "it was cancelled before this",
    Status.KILLED: "an operator halted it",
}
"""What a verb that comes after the end is told."""

TO_GO_ON: Final = 'to go on from there, start another run: checkrein run FILE "…" --continue {run}'
"""What one is told besides who wanted more of a run that is over."""

ENDED: Final[Mapping[Status, str]] = {
    Status.COMPLETED: "completed",
    Status.FAILED: "failed",
    Status.CANCELLED: "was cancelled",
    Status.KILLED: "was halted by an operator",
    Status.PAUSED: "is paused",
}
"""What became of a run, after *it* or *the run*."""

UNTIL_SENT: Final[Mapping[Status, str]] = {
    Status.QUEUED: "It has not begun; it gets this first.",
    Status.RUNNING: "The agent works on until you send.",
    Status.PAUSING: "It is about to hold; it stays so until you send.",
    Status.PAUSED: "It stays paused until you send.",
    Status.REDIRECTING: "It is being redirected; this takes the place of what was sent before.",
    Status.CANCELLING: "It is being cancelled.",
}
"""While somebody writes an instruction: what the run does meanwhile."""

# -- steps, calls and effects

SHOWN_WORDS: Final[Mapping[str, str]] = {
    "queued": "Queued",
    "running": "Running",
    "paused": "Paused",
    "done": "Done",
    "cancelled": "Cancelled",
    "undone": "Undone",
    "failed": "Failed",
    "needs_you": "Needs you",
    "not_started": "Not started",
}
"""How a step looks, by what `Shown` says about it."""

OUTCOMES: Final[Mapping[Outcome, str]] = {
    Outcome.COMPLETED: "done",
    Outcome.FAILED: "failed",
    Outcome.ABORTED: "aborted",
    Outcome.KILLED: "killed",
    Outcome.DETACHED: "detached",
    Outcome.IN_DOUBT: "in doubt",
}

REFUSED: Final = "refused"
"""Of a tool call that no tool fits: nothing was begun."""

STOPPED_CALLS: Final[Mapping[str, str]] = {
    Outcome.COMPLETED: "had finished",
    Outcome.FAILED: "failed",
    Outcome.ABORTED: "aborted",
    Outcome.KILLED: "killed",
    Outcome.DETACHED: "could not be stopped, its result will be dropped",
    Outcome.IN_DOUBT: "unknown whether it happened",
    "held": "frozen where it is",
}
"""In a receipt: what became of a call that was in flight."""

STOPPED_MODELS: Final[Mapping[str, str]] = {
    **STOPPED_CALLS,
    Outcome.ABORTED: "closed",
    Outcome.DETACHED: "let go, the provider may go on for a while",
}
"""The same, of a model or a side question."""

BEFORE_FIRST_TOKEN: Final = ("closed at our end", "a provider may still be at work on the prompt")
"""The same, of a model of which nothing had come: what is known, and what is not."""

EFFECT_STATES: Final[Mapping[EffectState, str]] = {
    EffectState.OPEN: "open",
    EffectState.SETTLED: "settled",
    EffectState.UNDONE: "undone",
    EffectState.IN_DOUBT: "in doubt",
    EffectState.LEFT: "left",
}

EFFECT_FATES: Final[Mapping[str, str]] = {
    "running": "May be happening now.",
    "undoing": "Is being undone.",
    "done": "Done.",
    "done_undoable": "Done. Cancel undoes it.",
    "done_for_good": "Done. It cannot be undone.",
    "failed_undoable": "It failed. What it may have done is undone by a cancel.",
    "failed_for_good": "It failed. What it may have done is not undone by a cancel.",
    "failed_stays": "It failed. What it may have done stays.",
    "settled": "Done, and meant to stay.",
    "stays": "Stays.",
    "left": "Still there: it was not undone.",
}
"""What becomes of an effect, as a sentence beside it."""

EFFECT_HEADS: Final[Mapping[EffectState, str]] = {
    EffectState.UNDONE: "Undone",
    EffectState.IN_DOUBT: "Unknown",
    EffectState.LEFT: "Left",
}
"""How a receipt begins what it says about effects."""

NO_UNDO: Final = "there is no undo for it"
NOT_WANTED_UNDONE: Final = "it was not to be undone"
OUT_OF_TIME: Final = "the time for its undo was over"
"""Why an effect is left: the cancel that was to undo it has settled without."""
UNSETTLED: Final = "it had not settled; it is fenced, and is cancelled by whoever takes it up"
"""What a receipt says of a sub-run that was not over when the cancel of its parent settled."""

CALL_KINDS: Final[Mapping[CallKind, str]] = {
    CallKind.MODEL: "Model",
    CallKind.TOOL: "Tool",
    CallKind.ASK: "Question",
    CallKind.UNDO: "Undo",
    CallKind.RUN: "Sub-run",
    CallKind.PROCESS: "Program",
}

CALL_PREFIXES: Final[Mapping[CallKind, str]] = {CallKind.UNDO: "undo of ", CallKind.RUN: "sub-run "}
"""What stands before the name of a call."""


NOT_DONE: Final[Mapping[str, str]] = {
    "denied": "denied",
    REFUSED: REFUSED,
    Outcome.ABORTED: "stopped",
    Outcome.KILLED: "stopped",
}
"""Of a run that came to its own end: why something that its model had asked for was not done."""

PERHAPS_DONE: Final[Mapping[str, str]] = {
    Outcome.DETACHED: "could not be stopped",
    Outcome.IN_DOUBT: "interrupted",
}
"""The same, of what nobody can say that of."""


def not_done(calls: Iterable[tuple[str, str]]) -> str:
    """`Not done: send_mail (denied). Unknown whether it was done: shell (interrupted).`, of the names of tools and what
    became of each call; empty where everything was done. *Completed* says only that the agent had no more to do."""
    known = list(calls)
    heads = {"Not done": NOT_DONE, "Unknown whether it was done": PERHAPS_DONE}
    found = {
        head: [f"{one_line(name, 60)} ({why[now]})" for name, now in known if now in why] for head, why in heads.items()
    }
    return " ".join(f"{head}: {listed(left)}." for head, left in found.items() if left)


def stopped_call(kind: CallKind, now: str, *, before_first_token: bool = False) -> str:
    """What became of a call that was in flight; `now` is an `Outcome` or `held`."""
    if before_first_token:
        return BEFORE_FIRST_TOKEN[0]
    words = STOPPED_MODELS if kind in (CallKind.MODEL, CallKind.ASK) else STOPPED_CALLS
    return words.get(now, now)


# -- verbs

RECEIPT_HEADS: Final[Mapping[Verb, str]] = {
    Verb.PAUSE: "Paused.",
    Verb.RESUME: "Goes on.",
    Verb.REDIRECT: "Redirected.",
    Verb.CANCEL: "Cancelled.",
    Verb.ABORT: "Aborted.",
    Verb.HALT: "Halted by an operator.",
}
"""How a receipt begins."""

SETTLING: Final[Mapping[Verb, str]] = {
    Verb.PAUSE: STATUS_WORDS[Status.PAUSING],
    Verb.RESUME: "Resuming…",
    Verb.REDIRECT: STATUS_WORDS[Status.REDIRECTING],
    Verb.CANCEL: STATUS_WORDS[Status.CANCELLING],
}

STOPPED_BY: Final[Mapping[Verb, str]] = {
    Verb.PAUSE: "a pause",
    Verb.REDIRECT: "a redirect",
    Verb.CANCEL: "a cancel",
    Verb.HALT: "an operator",
    Verb.ABORT: "a person",
}
"""Who or what stopped a call."""

INSTRUCTED: Final[Mapping[Verb, str]] = {
    Verb.RESUME: "on resuming",
    Verb.REDIRECT: "redirected",
    Verb.CANCEL: "on cancelling",
}
"""How somebody gave an instruction."""

ANSWERS: Final[Mapping[Answer, str]] = {
    Answer.HAPPENED: "It happened",
    Answer.DID_NOT_HAPPEN: "It did not",
    Answer.UNDO: "Undo it",
}
"""On a button: a person's word on a call in doubt."""

ANSWERED: Final[Mapping[Answer, str]] = {
    Answer.HAPPENED: "happened",
    Answer.DID_NOT_HAPPEN: "did not happen",
    Answer.UNDO: "is to be undone",
}
"""The same, after the name of the call."""

REASONS: Final = ("wrong direction", "too expensive", "suspected disclosure", "other")
"""Why a run was stopped, as somebody says with one click."""

FORMER_REASONS: Final[Mapping[str, str]] = {"suspected confession": "suspected disclosure"}
"""What one of them was called when it was recorded."""


def reason_word(reason: str) -> str:
    """A recorded reason as it is called now; what people wrote themselves stays as it is."""
    plain = " ".join(reason.lower().replace("_", " ").split())
    return FORMER_REASONS.get(plain, reason)


RECEIPT_PHRASES: Final[Mapping[str, str]] = {
    "superseded": "Overtaken by a later verb before it was done.",
    "unknown": "Not everything is known to have stopped.",
    "nothing": "Nothing was in flight.",
    "nothing_ran": "Nothing ran after it was stopped.",
    "nothing_ran_after_you": "Nothing ran after you stopped it.",
    "before_first_token": "{}; {}.".format(*BEFORE_FIRST_TOKEN).capitalize(),
    "delivered": "The agent has the instruction.",
    "not_delivered": "The agent was not given the instruction.",
    "unanswered": "The question got no answer.",
}
"""Whole sentences of a receipt."""


KEPT_TEXT: Final = "Kept: what it had written so far."
"""In a receipt: of a model that was stopped in the middle of a text."""


# -- words that are not ours

QUOTED_CHARS: Final = 60
"""The most of a value that a model has chosen, within a sentence of ours."""
SHORT_QUOTED_CHARS: Final = 24
"""The same on a button, and wherever somebody decides at a glance."""

_QUOTES: Final = dict.fromkeys(map(ord, "“”„‟〝〞＂"), "'")
_QUOTED: Final = re.compile("“([^”]*)”")


def quoted(text: str, longest: int = QUOTED_CHARS) -> str:
    """What somebody else has chosen, such as a model, within a sentence of ours: on one line, with nothing in it that
    acts or hides, and set apart so that it cannot end its quotation and go on in our voice."""
    return f"“{one_line(text.translate(_QUOTES), longest)}”"


def with_short_quotes(text: str) -> str:
    """A sentence whose quotations are short enough for a button."""
    return _QUOTED.sub(lambda found: quoted(found[1], SHORT_QUOTED_CHARS), text)


def shutting_down(tools: Iterable[str], seconds: float) -> str:
    """What somebody is told who ends a process that drives runs. `tools` are those that a pause lets finish."""
    names = list(tools)
    if not names:
        return "Pausing what is at work; it goes on by itself at the next start. Ctrl-C again: end now."
    return (
        f"Pausing what is at work: waiting for {listed(names)}, {seconds:g} s at most; what has not finished by then "
        "is ended, and you will be asked whether it happened. The rest goes on by itself at the next start. "
        "Ctrl-C again: end now."
    )


# -- numbers


def clock(seconds: float, *, padded: bool = False) -> str:
    """`0:03`, `12:40`, `1:02:05`; padded, `00:03`, so that what stands beside it does not move."""
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes:02}:{rest:02}" if padded else f"{minutes}:{rest:02}"


def milliseconds(ms: float) -> str:
    """`9 ms`, `3.2 s`, `2 min 5 s`."""
    if ms < 1000:
        return f"{ms:.0f} ms" if ms >= 1 or ms == 0 else "under 1 ms"
    seconds = ms / 1000
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def amount(count: int) -> str:
    """`812`, `6.1k`, `50k`, `1.2M`."""
    if count < 1_000:
        return str(count)
    size, unit = (count / 1_000, "k") if count < 999_500 else (count / 1_000_000, "M")
    return f"{size:.1f}".removesuffix(".0") + unit if size < 100 else f"{size:.0f}{unit}"


def plural(count: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def money(usd: float | None) -> str:
    return "unknown" if usd is None else f"${usd:.2f}"


def listed(names: Iterable[str]) -> str:
    """`a, b and c`: at most three names, in the order they came, each once."""
    unique = list(dict.fromkeys(names))
    *first, last = unique if len(unique) <= 3 else [*unique[:3], f"{len(unique) - 3} more"]
    return f"{', '.join(first)} and {last}" if first else last


def cap(condition: object, used: float | None, allowed: float, *, estimated: bool = False) -> str:
    """How much of a cap is used: `turn 7 of 50`, `$0.12 of $1.00`. `estimated`: some of it was not counted."""
    match condition:
        case Cost():
            return f"{money(used)} of {money(allowed)}"
        case Elapsed():
            return f"{clock(used or 0)} of {clock(allowed)}"
        case Tokens():
            return f"{'about ' if estimated else ''}{used or 0:,.0f} of {allowed:,.0f} tokens"
        case Turns():
            return f"turn {used:.0f} of {allowed:.0f}"
        case ToolCalls():
            return f"tool call {used:.0f} of {allowed:.0f}"
        case Effects():
            return f"effect {used:.0f} of {allowed:.0f}"
        case Repeats():
            return f"repeat {used:.0f} of {allowed:.0f}"
    raise AssertionError(condition)


# -- for the page


def words_for_page() -> dict[str, dict[str, str]]:
    """Every word that the page shows for a word of the machine, ready to be sent as JSON."""
    words: dict[str, Mapping[Any, str]] = {
        "statuses": {**STATUS_WORDS, "undriven": WAITING_FOR_PROCESS},
        "why_not": WHY_NOT,
        "ended": ENDED,
        "until_sent": UNTIL_SENT,
        "shown": SHOWN_WORDS,
        "kinds": CALL_KINDS,
        "outcomes": OUTCOMES,
        "stopped_calls": STOPPED_CALLS,
        "stopped_models": STOPPED_MODELS,
        "effects": EFFECT_STATES,
        "effect_heads": EFFECT_HEADS,
        "effect_fates": EFFECT_FATES,
        "settling": SETTLING,
        "stopped_by": STOPPED_BY,
        "instructed": INSTRUCTED,
        "answers": ANSWERS,
        "answered": ANSWERED,
        "receipt_heads": RECEIPT_HEADS,
        "reasons": {**{reason: reason for reason in REASONS}, **FORMER_REASONS},
        "receipt_phrases": {**RECEIPT_PHRASES, "no_undo": NO_UNDO},
    }
    return {name: {str(key): word for key, word in said.items()} for name, said in words.items()}


# -- one line that shows what a person changed

LONGEST: Final = 160
"""Characters; what is longer is cut in the middle of the line, never in the record of the verb itself."""


def one_line_diff(before: str, after: str) -> str:
    """`+ new` where there was nothing, else what both share once and the rest as `[-old-]{+new+}`."""
    old, new = before.split(), after.split()
    if not old:
        return _cut(f"+ {' '.join(new)}")
    head = _shared(old, new)
    tail = _shared(old[head:][::-1], new[head:][::-1])
    removed, added = old[head : len(old) - tail], new[head : len(new) - tail]
    words = [
        *new[:head],
        *([f"[-{' '.join(removed)}-]"] if removed else []),
        *([f"{{+{' '.join(added)}+}}"] if added else []),
        *(new[len(new) - tail :] if tail else []),
    ]
    return _cut(" ".join(words))


def _shared(one: list[str], other: list[str]) -> int:
    """How many words both begin with."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _cut(line: str) -> str:
    if len(line) <= LONGEST:
        return line
    half = (LONGEST - 3) // 2
    return f"{line[:half]} … {line[-half:]}"
