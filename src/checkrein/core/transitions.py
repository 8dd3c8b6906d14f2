"""The state machine of a run: what each verb does in each status, and to each kind of call in flight.

A (status, verb) pair that is missing is refused and changes nothing. `decide` reads here where a verb goes and where it
settles; the page's buttons, the refusals and the diagram in the docs are made from the same table, so they cannot drift
from it. A table that contradicts itself is refused when it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from checkrein.core.enums import TERMINAL, CallKind, OnPause, Status, Verb, When

QUEUED, RUNNING, PAUSING, PAUSED = Status.QUEUED, Status.RUNNING, Status.PAUSING, Status.PAUSED
REDIRECTING, CANCELLING = Status.REDIRECTING, Status.CANCELLING
COMPLETED, FAILED, CANCELLED, KILLED = Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.KILLED

PAUSE, RESUME, REDIRECT, CANCEL = Verb.PAUSE, Verb.RESUME, Verb.REDIRECT, Verb.CANCEL
ASK, ABORT, APPROVE, DENY = Verb.ASK, Verb.ABORT, Verb.APPROVE, Verb.DENY
RESOLVE, RETRY_UNDO, HALT = Verb.RESOLVE, Verb.RETRY_UNDO, Verb.HALT


class Move(msgspec.Struct, frozen=True):
    """What an accepted verb does to the status of a run."""

    to: Status
    """Where the run goes when the verb is accepted."""
    settled: Status | None = None
    """Where it goes when the verb settles; None: it stays where it then is."""
    undriven: Status | None = None
    """Where it goes instead when no driver lives."""
    joins: bool = False
    """Nothing new is accepted: the answer is the receipt of the verb that is, or was, in force."""


Table = Mapping[tuple[Status, Verb], Move]


def _stay(status: Status) -> Move:
    return Move(status)


def _same_receipt(status: Status, settled: Status | None = None) -> Move:
    return Move(status, settled=settled, joins=True)


# fmt: off
VERBS: Final[Table] = {
    (QUEUED,      PAUSE):      Move(PAUSED),
    (QUEUED,      REDIRECT):   Move(QUEUED),  # the instruction is kept
    (QUEUED,      CANCEL):     Move(CANCELLING, settled=CANCELLED),
    (QUEUED,      APPROVE):    _stay(QUEUED),
    (QUEUED,      DENY):       _stay(QUEUED),
    (QUEUED,      RESOLVE):    _stay(QUEUED),
    (QUEUED,      HALT):       Move(KILLED),

    (RUNNING,     PAUSE):      Move(PAUSING, settled=PAUSED),
    (RUNNING,     REDIRECT):   Move(REDIRECTING, settled=RUNNING),
    (RUNNING,     CANCEL):     Move(CANCELLING, settled=CANCELLED),
    (RUNNING,     ASK):        _stay(RUNNING),
    (RUNNING,     ABORT):      _stay(RUNNING),
    (RUNNING,     APPROVE):    _stay(RUNNING),
    (RUNNING,     DENY):       _stay(RUNNING),
    (RUNNING,     RESOLVE):    _stay(RUNNING),
    (RUNNING,     HALT):       Move(KILLED),

    # Paused by a shutdown, or with its parent: a person's pause takes the place of that one, here and when paused.
    (PAUSING,     PAUSE):      _same_receipt(PAUSING, settled=PAUSED),
    (PAUSING,     RESUME):     Move(RUNNING),
    (PAUSING,     REDIRECT):   Move(REDIRECTING, settled=RUNNING),
    # Cancel outranks pause: the calls are already stopping, only their fate differs.
    (PAUSING,     CANCEL):     Move(CANCELLING, settled=CANCELLED),
    (PAUSING,     ASK):        _stay(PAUSING),
    (PAUSING,     ABORT):      _stay(PAUSING),
    (PAUSING,     APPROVE):    _stay(PAUSING),  # performed after the resume, here and when paused
    (PAUSING,     DENY):       _stay(PAUSING),
    (PAUSING,     RESOLVE):    _stay(PAUSING),
    (PAUSING,     HALT):       Move(KILLED),

    (PAUSED,      PAUSE):      _same_receipt(PAUSED),
    (PAUSED,      RESUME):     Move(RUNNING, undriven=QUEUED),
    (PAUSED,      REDIRECT):   Move(RUNNING, undriven=QUEUED),  # with the instruction
    (PAUSED,      CANCEL):     Move(CANCELLING, settled=CANCELLED),
    (PAUSED,      ASK):        _stay(PAUSED),
    (PAUSED,      ABORT):      _stay(PAUSED),
    (PAUSED,      APPROVE):    _stay(PAUSED),
    (PAUSED,      DENY):       _stay(PAUSED),
    (PAUSED,      RESOLVE):    _stay(PAUSED),
    (PAUSED,      HALT):       Move(KILLED),

    (REDIRECTING, PAUSE):      Move(PAUSING, settled=PAUSED),  # the instruction is kept
    (REDIRECTING, REDIRECT):   Move(REDIRECTING, settled=RUNNING),  # the newer one wins, both are logged
    (REDIRECTING, CANCEL):     Move(CANCELLING, settled=CANCELLED),
    (REDIRECTING, ASK):        _stay(REDIRECTING),
    (REDIRECTING, ABORT):      _stay(REDIRECTING),
    (REDIRECTING, APPROVE):    _stay(REDIRECTING),
    (REDIRECTING, DENY):       _stay(REDIRECTING),
    (REDIRECTING, RESOLVE):    _stay(REDIRECTING),
    (REDIRECTING, HALT):       Move(KILLED),

    # A second cancel gets the first one's receipt, unless it wants less undone: then it replaces it.
    (CANCELLING,  CANCEL):     _same_receipt(CANCELLING, settled=CANCELLED),
    (CANCELLING,  RESOLVE):    _stay(CANCELLING),
    (CANCELLING,  HALT):       Move(KILLED),

    # A side question needs only the record. One to a run that was stopped is refused: nothing begins there any more.
    (COMPLETED,   ASK):        _stay(COMPLETED),
    (COMPLETED,   RESOLVE):    _stay(COMPLETED),
    (COMPLETED,   RETRY_UNDO): _stay(COMPLETED),
    (FAILED,      ASK):        _stay(FAILED),
    (FAILED,      RESOLVE):    _stay(FAILED),
    (FAILED,      RETRY_UNDO): _stay(FAILED),
    (CANCELLED,   CANCEL):     _same_receipt(CANCELLED),
    (CANCELLED,   RESOLVE):    _stay(CANCELLED),
    (CANCELLED,   RETRY_UNDO): _stay(CANCELLED),
    (KILLED,      RESOLVE):    _stay(KILLED),
    (KILLED,      RETRY_UNDO): _stay(KILLED),
}

SUPERSEDES: Final[Mapping[Verb, frozenset[Verb]]] = {
    PAUSE:    frozenset({PAUSE, RESUME}),
    RESUME:   frozenset({PAUSE}),
    REDIRECT: frozenset({PAUSE, RESUME, REDIRECT}),
    CANCEL:   frozenset({PAUSE, RESUME, REDIRECT, ASK, ABORT, CANCEL}),
    HALT:     frozenset({PAUSE, RESUME, REDIRECT, ASK, ABORT, CANCEL}),
}
"""Which verbs that are accepted and not settled a newer one puts out of force. They are settled as superseded."""
# fmt: on


ABOUT_A_CALL: Final = frozenset({APPROVE, DENY, RESOLVE, RETRY_UNDO})
"""Verbs that are recorded by what they decide about one call, not by `verb.accepted`: the run stays where it is."""


def faults(table: Table) -> Iterator[str]:
    """Where a table contradicts itself or says what nobody could do, in words; nothing for a sound one."""
    settled: dict[tuple[Status, Verb], Status | None] = {}
    for (status, verb), move in table.items():
        row = f"{verb.value} in {status.value}"
        if verb in ABOUT_A_CALL and move != Move(status):
            yield f"{row} is about one call and cannot move the run"
        if move.undriven is not None and verb not in (RESUME, REDIRECT):
            yield f"{row} goes to the same place with and without a driver"
        if move.to in (move.settled, move.undriven):
            yield f"{row} says {move.to.value} twice"
        if move.to is QUEUED and move.settled is not None:
            yield f"{row} waits for a driver, and settles where the run then is"
        if settled.setdefault((move.to, verb), move.settled) is not move.settled:
            yield f"{row} settles elsewhere than another {verb.value} that leads to {move.to.value}"
        if status in TERMINAL and move not in (Move(status), Move(status, joins=True)):
            yield f"{row} moves a run that is finished"


def settles(table: Table) -> dict[tuple[Status, Verb], Status]:
    """By the status that a verb has led to: where the run goes when the verb settles. ValueError if rows disagree."""
    if wrong := list(faults(table)):
        raise ValueError("; ".join(wrong))
    return {(move.to, verb): move.settled for (_, verb), move in table.items() if move.settled is not None}


SETTLES: Final = settles(VERBS)


def settled_status(status: Status, verb: Verb) -> Status:
    """Where a run in `status` goes when `verb` settles."""
    return SETTLES.get((status, verb), status)


# -- calls in flight


class Fate(StrEnum):
    """What a verb does to a call in flight. How each kind of call is really stopped: `checkrein.calls.base`."""

    STOP = "stop"
    """It is ended now."""
    HOLD = "hold"
    """It is frozen where it is, and goes on after a resume."""
    FINISH = "finish"
    """It goes on to its end, and what the verb leads to waits for it."""
    SPARE = "spare"
    """It goes on, and nothing waits for it."""


class Stop(StrEnum):
    """A verb that may stop calls. A redirect does so now or not at all."""

    PAUSE = "pause"
    REDIRECT_NOW = "redirect, now"
    REDIRECT_NEXT_STEP = "redirect, next_step"
    CANCEL = "cancel"
    ABORT = "abort"
    HALT = "halt"


Stoppable = tuple[CallKind, OnPause | None]
"""What calls differ in when they are to be stopped: their kind and, of a tool, its rule `on_pause`."""

_STOP, _HOLD, _FINISH, _SPARE = Fate.STOP, Fate.HOLD, Fate.FINISH, Fate.SPARE

# fmt: off
_STOPS: Final[Mapping[Stoppable, tuple[Fate, ...]]] = {
    #                                  pause    now      next_step  cancel   abort   halt
    (CallKind.MODEL, None):           (_STOP,   _STOP,   _FINISH,   _STOP,   _STOP,  _STOP),   # also a foreign stream
    (CallKind.TOOL,  OnPause.FINISH): (_FINISH, _STOP,   _FINISH,   _STOP,   _STOP,  _STOP),
    (CallKind.TOOL,  OnPause.ABORT):  (_STOP,   _STOP,   _FINISH,   _STOP,   _STOP,  _STOP),
    (CallKind.TOOL,  OnPause.HOLD):   (_HOLD,   _STOP,   _FINISH,   _STOP,   _STOP,  _STOP),
    # A sub-run is paused, cancelled and fenced with its parent.
    (CallKind.RUN,   None):           (_HOLD,   _STOP,   _FINISH,   _STOP,   _STOP,  _STOP),
    # A program with all that it has started. What a person wants instead reaches it with its next request.
    (CallKind.PROCESS, None):         (_HOLD,   _SPARE,  _SPARE,    _STOP,   _STOP,  _STOP),
    # A side question is not part of the work: it is answered while the run is paused or goes elsewhere.
    (CallKind.ASK,   None):           (_SPARE,  _SPARE,  _SPARE,    _STOP,   _STOP,  _STOP),
    # An undo is what a stop wants done. Only an operator's halt, which undoes nothing, ends one.
    (CallKind.UNDO,  None):           (_FINISH, _FINISH, _FINISH,   _FINISH, _SPARE, _STOP),
}
# fmt: on

STOPS: Final[Mapping[tuple[Stoppable, Stop], Fate]] = {
    (row, stop): fate for row, fates in _STOPS.items() for stop, fate in zip(Stop, fates, strict=True)
}
"""What each verb does to each kind of call in flight. An abort is about the one call it names."""

STOP_OF: Final[Mapping[tuple[Verb, When], Stop]] = {
    **{(verb, when): Stop(verb.value) for verb in (PAUSE, CANCEL, ABORT, HALT) for when in When},
    (REDIRECT, When.NOW): Stop.REDIRECT_NOW,
    (REDIRECT, When.NEXT_STEP): Stop.REDIRECT_NEXT_STEP,
}


def stoppable(kind: CallKind, on_pause: OnPause = OnPause.FINISH) -> Stoppable:
    return kind, on_pause if kind is CallKind.TOOL else None


def fate(kind: CallKind, on_pause: OnPause, stop: Stop) -> Fate:
    """What `stop` does to a call of this kind; `on_pause` counts for tools alone."""
    return STOPS[stoppable(kind, on_pause), stop]
