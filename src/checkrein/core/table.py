"""What each verb does to a run in each status.

A (status, verb) pair that is missing is refused and changes nothing. The page's buttons, the refusals and the diagram
in the docs are made from this table, so they cannot drift from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from checkrein.core.words import Status, Verb

QUEUED, RUNNING, PAUSING, PAUSED = Status.QUEUED, Status.RUNNING, Status.PAUSING, Status.PAUSED
REDIRECTING, CANCELLING = Status.REDIRECTING, Status.CANCELLING
COMPLETED, FAILED, CANCELLED, KILLED = Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.KILLED

PAUSE, RESUME, REDIRECT, CANCEL = Verb.PAUSE, Verb.RESUME, Verb.REDIRECT, Verb.CANCEL
ASK, ABORT, APPROVE, DENY = Verb.ASK, Verb.ABORT, Verb.APPROVE, Verb.DENY
RESOLVE, RETRY_UNDO, HALT = Verb.RESOLVE, Verb.RETRY_UNDO, Verb.HALT


class Move(msgspec.Struct, frozen=True):
    """The status a run goes to when the verb is accepted; `settled`, where it goes when the verb is settled."""

    to: Status
    settled: Status | None = None
    undriven: Status | None = None
    """Where it goes instead when no driver lives."""
    joins: bool = False
    """Nothing new is accepted: the answer is the receipt of the verb that is, or was, in force."""


def _stay(status: Status) -> Move:
    return Move(status)


def _same_receipt(status: Status) -> Move:
    return Move(status, joins=True)


# fmt: off
VERBS: Final[Mapping[tuple[Status, Verb], Move]] = {
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

    (PAUSING,     PAUSE):      _same_receipt(PAUSING),
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
    (CANCELLING,  CANCEL):     _same_receipt(CANCELLING),
    (CANCELLING,  RESOLVE):    _stay(CANCELLING),
    (CANCELLING,  HALT):       Move(KILLED),

    (COMPLETED,   RESOLVE):    _stay(COMPLETED),
    (COMPLETED,   RETRY_UNDO): _stay(COMPLETED),
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
