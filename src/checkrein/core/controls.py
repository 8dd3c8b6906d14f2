"""The controls of a run: each verb, whether it is possible now, and its consequence in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from checkrein.core.effects import Effect
from checkrein.core.orders import obstacle
from checkrein.core.state import LiveCall, State
from checkrein.core.table import VERBS
from checkrein.core.words import CallKind, EffectState, OnPause, Status, Verb


class Control(msgspec.Struct, frozen=True):
    enabled: bool
    consequence: str


def controls(
    state: State, effects: Sequence[Effect] = (), *, held: frozenset[str] = frozenset()
) -> dict[Verb, Control]:
    """What each control would do now; for one that is not possible, why not."""
    return {verb: _control(verb, state, effects, held) for verb in _CONSEQUENCES}


def _control(verb: Verb, state: State, effects: Sequence[Effect], held: frozenset[str]) -> Control:
    move = VERBS.get((state.status, verb))
    if move is None:
        return Control(False, _WHY_NOT.get(state.status, f"not while it is {state.status.value}"))
    if verb is Verb.PAUSE and state.resumes_itself:
        return Control(True, "stays paused instead of going on by itself")
    if not move.joins:
        return Control(True, _CONSEQUENCES[verb](state, effects))
    pending = state.pending(verb)
    waits_for = None if pending is None else obstacle(state, pending, effects, held=held)
    return Control(False, f"waits for {waits_for}" if waits_for else f"it is {state.status.value}")


_WHY_NOT: Final[Mapping[Status, str]] = {
    Status.QUEUED: "it has not begun",
    Status.RUNNING: "it is running",
    Status.REDIRECTING: "it is being redirected",
    Status.CANCELLING: "it is being cancelled",
    Status.COMPLETED: "it has completed",
    Status.FAILED: "it has failed",
    Status.CANCELLED: "it was cancelled",
    Status.KILLED: "an operator halted it",
}


# -- the words


def _pause(state: State, effects: Sequence[Effect]) -> str:
    tools = [live for live in state.live.values() if live.kind is CallKind.TOOL and live.stop is None]
    clauses = [
        _clause("waits for", [t for t in tools if t.on_pause is OnPause.FINISH], ", then holds"),
        _clause("freezes", [t for t in tools if t.on_pause is OnPause.HOLD], " where it is"),
        _clause("stops", [t for t in tools if t.on_pause is OnPause.ABORT], ", which resume does again"),
    ]
    return "; ".join(filter(None, clauses)) or "resume keeps context"


def _resume(state: State, effects: Sequence[Effect]) -> str:
    if state.tripped:
        return f"goes on, and grants {', '.join(state.tripped)} again"
    return "goes on exactly there"


def _redirect(state: State, effects: Sequence[Effect]) -> str:
    done = state.steps_finished
    kept = f"keeps {done} finished {_plural('step', done)}" if done else "keeps all finished work"
    granted = f"grants {', '.join(state.tripped)} again" if state.tripped else ""
    return ", ".join(filter(None, [_clause("stops", _in_flight(state)), kept, granted]))


def _cancel(state: State, effects: Sequence[Effect]) -> str:
    undone = [e for e in effects if e.state is EffectState.OPEN and e.undo is not None]
    doubtful = [e for e in effects if e.state is EffectState.IN_DOUBT]
    kept = [e for e in effects if e.state is EffectState.OPEN and e.undo is None]
    parts = [
        "stops now",
        f"undoes {_names(e.what for e in undone)}" if undone else "",
        f"{_names(e.what for e in doubtful)} may have happened" if doubtful else "",
        f"cannot undo {_names(e.what for e in kept)}" if kept else "",
        "partial work saves to the thread",
    ]
    return ", ".join(filter(None, parts))


def _ask(state: State, effects: Sequence[Effect]) -> str:
    stays = "stays paused" if state.status is Status.PAUSED else "goes on"
    return f"answers from a copy of the context, the run {stays}"


_CONSEQUENCES: Final[Mapping[Verb, Callable[[State, Sequence[Effect]], str]]] = {
    Verb.PAUSE: _pause,
    Verb.RESUME: _resume,
    Verb.REDIRECT: _redirect,
    Verb.CANCEL: _cancel,
    Verb.ASK: _ask,
}


def _in_flight(state: State) -> list[LiveCall]:
    return [live for live in state.live.values() if live.kind not in (CallKind.UNDO, CallKind.ASK)]


def _clause(verb: str, calls: Sequence[LiveCall], rest: str = "") -> str:
    return f"{verb} {_names(_called(call) for call in calls)}{rest}" if calls else ""


def _called(call: LiveCall) -> str:
    """A model is not known to people by its name."""
    return "the model" if call.kind is CallKind.MODEL else call.name


def _names(names: Iterable[str]) -> str:
    """`a, b and c`: at most three names, in the order they came, each once."""
    unique = list(dict.fromkeys(names))
    *first, last = unique if len(unique) <= 3 else [*unique[:3], f"{len(unique) - 3} more"]
    return f"{', '.join(first)} and {last}" if first else last


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
