"""A receipt in plain words: how fast it stopped, what became of what was running and of what it had done, what now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from checkrein.cli import hints
from checkrein.cli.clean import one_line, printable
from checkrein.cli.words import milliseconds, names
from checkrein.core.words import CallKind, EffectState, Outcome, Status, Verb

if TYPE_CHECKING:
    from checkrein.control.verbs import Settling
    from checkrein.core.receipts import ChangedEffect, Receipt, StoppedCall

_STOPS: Final = frozenset({Verb.PAUSE, Verb.REDIRECT, Verb.CANCEL, Verb.HALT})

_HEADS: Final = {
    Verb.PAUSE: "Paused.",
    Verb.RESUME: "Goes on.",
    Verb.REDIRECT: "Redirected.",
    Verb.CANCEL: "Cancelled.",
    Verb.ABORT: "Aborted.",
    Verb.HALT: "Halted by an operator.",
}

_CALLS: Final[dict[str, str]] = {
    Outcome.COMPLETED: "had finished",
    Outcome.FAILED: "failed",
    Outcome.ABORTED: "aborted",
    Outcome.KILLED: "killed",
    Outcome.DETACHED: "could not be stopped, its result will be dropped",
    Outcome.IN_DOUBT: "unknown whether it happened",
    "held": "frozen where it is",
}
_OVER: Final = frozenset({Outcome.COMPLETED, Outcome.FAILED, Outcome.ABORTED, Outcome.KILLED})
_MODEL: Final = {
    **_CALLS,
    Outcome.ABORTED: "closed",
    Outcome.DETACHED: "let go, the provider may go on for a while",
}


def receipt_lines(receipt: Receipt) -> list[str]:
    """What happened, in as few lines as it takes, and under each loose end how to deal with it."""
    if receipt.verb is Verb.ASK:
        return printable(receipt.answer).split("\n") if receipt.answer else ["The question got no answer."]
    return [" ".join(_head(receipt)), *_calls(receipt), *_effects(receipt), *_rest(receipt)]


def settling_lines(settling: Settling) -> list[str]:
    """A verb that is in force and not settled yet: what it waits for."""
    return [
        f"Accepted, and in force: run {settling.run} is {settling.status}. It still waits for {settling.waiting_for}.",
        f"Look again with: {hints.command(f'watch {settling.run}')}",
    ]


def _head(receipt: Receipt) -> Iterator[str]:
    if receipt.superseded_by is not None:
        yield "Overtaken by a later verb before it was done."
        return
    yield _HEADS.get(receipt.verb, f"{receipt.verb.value}: done.")
    if receipt.verb not in _STOPS:
        return
    took = receipt.timing_ms.calls_stopped
    if took is not None:
        yield f"Stopped in {milliseconds(took)}."
    elif any(call.now not in _OVER and call.now != "held" for call in receipt.calls):
        yield "Not everything is known to have stopped."
    elif not receipt.calls:
        yield "Nothing was in flight."
    tokens = receipt.tokens_after_stop
    yield f"{tokens} {'token' if tokens == 1 else 'tokens'} after the stop."


def _calls(receipt: Receipt) -> Iterator[str]:
    if receipt.calls:
        yield f"In flight: {', '.join(_call(call) for call in receipt.calls)}."


def _call(call: StoppedCall) -> str:
    words = _MODEL if call.kind in (CallKind.MODEL, CallKind.ASK) else _CALLS
    after = f" after {milliseconds(call.ms)}" if call.ms and call.now in _OVER else ""
    return f"{one_line(call.name, 80)} ({words.get(call.now, call.now)}{after})"


def _effects(receipt: Receipt) -> Iterator[str]:
    undone = [effect for effect in receipt.effects if effect.now is EffectState.UNDONE]
    if undone:
        yield f"Undone: {names(effect.what for effect in undone)}."
    for effect in receipt.effects:
        if effect.now is EffectState.IN_DOUBT:
            yield f"Unknown: {_what(effect)}."
            answer = hints.command(f"resolve {receipt.run} {effect.id} happened|did_not_happen|undo")
            yield f"  Say what happened: {answer}"
        elif effect.now is EffectState.LEFT:
            yield f"Left: {_what(effect)}."
            if effect.why != _NO_UNDO:
                yield f"  Try its undo again: {hints.command(f'retry-undo {receipt.run} {effect.id}')}"


_NO_UNDO: Final = "there is no undo for it"


def _what(effect: ChangedEffect) -> str:
    why = f" ({one_line(effect.why, 200)})" if effect.why else ""
    return f"{one_line(effect.what, 80)}{why}"


def _rest(receipt: Receipt) -> Iterator[str]:
    if receipt.partial.chars:
        thread = one_line(receipt.partial.thread, 80)
        yield f"Kept: {receipt.partial.chars} characters of partial work, in thread {thread}."
    if receipt.delivered:
        yield "The agent has the instruction."
    elif receipt.delivered is False and receipt.status is not Status.QUEUED:
        yield "The agent was not given the instruction."
    if receipt.waiting_for:
        yield f"It waits for {one_line(receipt.waiting_for, 200)}."
