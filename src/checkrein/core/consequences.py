"""The controls of a run: each verb, whether it is possible now, and its consequence in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from checkrein.core import transitions
from checkrein.core.effects import Effect
from checkrein.core.enums import ACTING, CallKind, EffectState, Status, Verb
from checkrein.core.escape import one_line
from checkrein.core.orders import obstacle
from checkrein.core.state import LiveCall, State
from checkrein.core.transitions import Fate, Stop
from checkrein.core.wording import WHY_NOT, listed, plural, with_short_quotes


class VerbControl(msgspec.Struct, frozen=True):
    enabled: bool
    consequence: str


def controls(
    state: State, effects: Sequence[Effect] = (), *, held: frozenset[str] = frozenset()
) -> dict[Verb, VerbControl]:
    """What each control would do now; for one that is not possible, why not."""
    return {verb: _control(verb, state, effects, held) for verb in _CONSEQUENCES}


def _control(verb: Verb, state: State, effects: Sequence[Effect], held: frozenset[str]) -> VerbControl:
    move = transitions.VERBS.get((state.status, verb))
    if move is None:
        return VerbControl(False, WHY_NOT[state.status])
    if verb is Verb.PAUSE and state.resumes_itself:
        return VerbControl(True, "stays paused instead of going on by itself")
    if verb is Verb.PAUSE and state.is_held:
        return VerbControl(True, "stays paused when its parent goes on")
    if not move.joins:
        return VerbControl(True, _CONSEQUENCES[verb](state, effects))
    pending = state.pending(verb)
    shielded = [live for live in state.live.values() if live.waits_for and not live.hurried]
    if verb is Verb.CANCEL and pending is not None and shielded:
        return VerbControl(True, f"waits no longer for {listed(map(_called, shielded))}")
    waits_for = None if pending is None else obstacle(state, pending, effects, held=held)
    return VerbControl(False, f"waits for {waits_for}" if waits_for else f"it is {state.status.value}")


# -- the words


def _pause(state: State, effects: Sequence[Effect]) -> str:
    tools = [live for live in state.live.values() if live.kind in ACTING and live.stop is None]
    clauses = [
        _clause("waits for", [t for t in tools if t.fate(Stop.PAUSE) is Fate.FINISH], ", then holds"),
        _clause("freezes", [t for t in tools if t.fate(Stop.PAUSE) is Fate.HOLD], " where it is"),
        _clause("stops", [t for t in tools if t.fate(Stop.PAUSE) is Fate.STOP], ", which resume does again"),
    ]
    speaks = any(live.kind is CallKind.MODEL for live in state.live.values())
    return "; ".join(filter(None, clauses)) or f"{'stops the model' if speaks else 'holds'} here; nothing is lost"


def _resume(state: State, effects: Sequence[Effect]) -> str:
    if state.tripped:
        return f"goes on, and grants {', '.join(state.tripped)} again"
    return "goes on exactly there"


def _redirect(state: State, effects: Sequence[Effect]) -> str:
    stopped = [live for live in state.live.values() if live.fate(Stop.REDIRECT_NOW) is Fate.STOP]
    done = state.steps_finished
    kept = f"keeps {plural(done, 'finished step')}" if done else "keeps all finished work"
    granted = f"grants {', '.join(state.tripped)} again" if state.tripped else ""
    return ", ".join(filter(None, [_clause("stops", stopped), kept, granted]))


def _cancel(state: State, effects: Sequence[Effect]) -> str:
    undone = [e for e in effects if e.state is EffectState.OPEN and e.undo is not None]
    doubtful = [e for e in effects if e.state is EffectState.IN_DOUBT]
    kept = [e for e in effects if e.state is EffectState.OPEN and e.undo is None]
    parts = [
        "stops now",
        f"takes back {_effects(undone)}" if undone else "",
        f"{_effects(doubtful)} may have happened" if doubtful else "",
        f"cannot take back {_effects(kept)}" if kept else "",
        "keeps the text so far",
    ]
    return " · ".join(filter(None, parts))


def _effects(effects: Sequence[Effect]) -> str:
    return listed(with_short_quotes(effect.what) for effect in effects)


def _ask(state: State, effects: Sequence[Effect]) -> str:
    stays = f"stays {state.status.value}" if state.is_finished or state.status is Status.PAUSED else "goes on"
    return f"answers from a copy of the context, the run {stays}"


_CONSEQUENCES: Final[Mapping[Verb, Callable[[State, Sequence[Effect]], str]]] = {
    Verb.PAUSE: _pause,
    Verb.RESUME: _resume,
    Verb.REDIRECT: _redirect,
    Verb.CANCEL: _cancel,
    Verb.ASK: _ask,
}


def _clause(verb: str, calls: Sequence[LiveCall], rest: str = "") -> str:
    return f"{verb} {listed(_called(call) for call in calls)}{rest}" if calls else ""


def _called(call: LiveCall) -> str:
    """A model is not known to people by its name."""
    return "the model" if call.kind is CallKind.MODEL else one_line(call.name, 60)
