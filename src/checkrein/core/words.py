"""The words of a run that are chosen from a closed list: one word per idea, the same in Python, SQL and JSON."""

from __future__ import annotations

from enum import StrEnum


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


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.KILLED})
"""A run in one of these is finished: only undos, answers, resolutions and reasons are still taken."""


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


class CallKind(StrEnum):
    """What a call touches. `RUN` is a sub-run: the call that waits for it."""

    MODEL = "model"
    TOOL = "tool"
    ASK = "ask"
    UNDO = "undo"
    RUN = "run"


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


class Then(StrEnum):
    """What a condition does when it trips."""

    PAUSE = "pause"
    FINISH = "finish"
    CANCEL = "cancel"
