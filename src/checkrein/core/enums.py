"""The words of a run that are chosen from a closed list: one word per idea, the same in Python, SQL and JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

RUNTIME: Final = "checkrein"
"""Who asks when the runtime itself pauses or cancels a run, or decides something about a call."""


class Status(StrEnum):
    """Where a run stands. An adjective, or a gerund while something is still settling."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    REDIRECTING = "redirecting"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    KILLED = "killed"


# Every set of statuses that means something has its name here and nowhere else.

TERMINAL: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.KILLED})
"""A run in one of these is finished: only undos, answers, resolutions and reasons are still taken."""

STOPPED: Final = frozenset({Status.CANCELLED, Status.KILLED})
"""It was ended by somebody else than its own program."""

ENDED_BY_ITSELF: Final = TERMINAL - STOPPED
"""Its own program has come to an end."""

UNFINISHED: Final = frozenset(Status) - TERMINAL
"""It may still do something."""

AT_WORK: Final = frozenset({Status.RUNNING, Status.PAUSING, Status.REDIRECTING, Status.CANCELLING})
"""A driver is at it: time counts as elapsed, unless the run waits for a person."""

DRIVEN: Final = AT_WORK | {Status.QUEUED}
"""It wants a driver: where none lives, something should take it up."""

PERMITTING: Final = frozenset({Status.RUNNING, Status.REDIRECTING})
"""The program may begin calls, and may end."""

GOING_ON: Final = PERMITTING | {Status.QUEUED}
"""Nothing keeps it from going on, at the latest when a driver takes it up."""

PAUSE_IN_FORCE: Final = frozenset({Status.PAUSING, Status.PAUSED})

STOPPING: Final = frozenset({Status.PAUSING, Status.CANCELLING})
"""What is in flight comes to rest, and nothing new begins."""

SETTLING: Final = AT_WORK - {Status.RUNNING}
"""A verb is in force whose work is not done yet."""
MAY_WAIT: Final = frozenset({Status.RUNNING, Status.PAUSED})
"""Waiting for a person is shown beside one of these."""


class Verb(StrEnum):
    """What a person or an operator may ask of a run."""

    PAUSE = "pause"
    RESUME = "resume"
    REDIRECT = "redirect"
    CANCEL = "cancel"
    ASK = "ask"
    ABORT = "abort"
    APPROVE = "approve"
    DENY = "deny"
    RESOLVE = "resolve"
    RETRY_UNDO = "retry_undo"
    HALT = "halt"


STOPS: Final = frozenset({Verb.PAUSE, Verb.REDIRECT, Verb.CANCEL, Verb.ABORT, Verb.HALT})
"""Verbs that stop calls in flight."""

STOPS_OF_RUNS: Final = STOPS - {Verb.ABORT}
"""Those that are about the whole run."""

STOPS_BY_DRIVER: Final = STOPS - {Verb.HALT}
"""Those that a driver carries out, and must notice in time."""

FINAL_STOPS: Final = STOPS - {Verb.PAUSE}
"""What one of these has stopped is not asked again."""

FENCING: Final = frozenset({Verb.CANCEL, Verb.HALT})
"""Once one of these is in the journal, nothing begins any more, here and in every sub-run."""

NEVER_STALE: Final = FENCING | {Verb.PAUSE}
"""They are taken whatever the person was looking at."""


class CallKind(StrEnum):
    """What a call touches. `RUN` is a sub-run: the call that waits for it. `PROCESS` is a program that knows nothing of
    Checkrein: the call lasts as long as the program, and what it asks of models are calls beside it."""

    MODEL = "model"
    TOOL = "tool"
    ASK = "ask"
    UNDO = "undo"
    RUN = "run"
    PROCESS = "process"


ACTING: Final = frozenset({CallKind.TOOL, CallKind.PROCESS})
"""They do something to the world that nobody but a person can vouch for when their maker has died."""


class Outcome(StrEnum):
    """How a call ended, as far as anybody knows."""

    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"
    KILLED = "killed"
    DETACHED = "detached"
    IN_DOUBT = "in_doubt"


class EffectState(StrEnum):
    """What has become of something a tool call did, or may have done, to the world."""

    OPEN = "open"
    SETTLED = "settled"
    UNDONE = "undone"
    IN_DOUBT = "in_doubt"
    LEFT = "left"


class OnPause(StrEnum):
    """What a pause does to a tool call in flight."""

    FINISH = "finish"
    ABORT = "abort"
    HOLD = "hold"


class When(StrEnum):
    """When a redirect takes hold: at once, or after the calls in flight have finished."""

    NOW = "now"
    NEXT_STEP = "next_step"


class Undo(StrEnum):
    """Which effects a cancel undoes: those still open, the whole saga, or none."""

    OPEN = "open"
    ALL = "all"
    NONE = "none"


class Answer(StrEnum):
    """A person's word on a call in doubt."""

    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"
    UNDO = "undo"


class Decision(StrEnum):
    """What became of a request for approval."""

    APPROVED = "approved"
    DENIED = "denied"
    WITHDRAWN = "withdrawn"
    REFUSED = "refused"
    """Nobody was asked: too many calls of the run waited for an approval already."""


class Then(StrEnum):
    """What a condition does when it trips."""

    PAUSE = "pause"
    FINISH = "finish"
    CANCEL = "cancel"
