"""A run as a person sees it: what the command line and the page show, and what the HTTP API answers.

Only the structs: `viewing` makes them of the records of the journal. Nothing is guessed from context, and every word a
person reads about a status, a step, a call or an effect comes from here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from checkrein.core.conditions import Usage
from checkrein.core.controls import Control
from checkrein.core.receipts import Receipt
from checkrein.core.state import Waiting
from checkrein.core.words import Answer, CallKind, EffectState, Status, Verb


class Shown(StrEnum):
    """What a step or a call looks like. Each has a word and a shape of its own."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    UNDONE = "undone"
    FAILED = "failed"
    NEEDS_YOU = "needs_you"
    NOT_STARTED = "not_started"


class StepView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    number: int
    title: str
    shown: Shown
    calls: tuple[str, ...] = ()
    started_at: float | None = None
    finished_at: float | None = None


class CallView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    kind: CallKind
    name: str
    shown: Shown
    now: str
    """`running`, `stopping`, `held`, `waiting for approval`, `approved`, `denied`, or how it ended."""
    step: int | None = None
    attempt: int = 1
    arguments: Any = None
    result: Any = None
    error: str | None = None
    text: str = ""
    """Of a model: what has streamed so far, or had by the time it was stopped."""
    thinking: str = ""
    """Of a model: what it thought before it spoke, once that is known."""
    started_at: float | None = None
    finished_at: float | None = None
    stopped_by: Verb | None = None
    run: str | None = None
    """Of a sub-run: its id."""
    files: tuple[str, ...] = ()
    """Of a tool: the files it has published, on the machine where it ran."""


class ApprovalView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that waits for a person's consent."""

    call: str
    name: str
    requested_at: float
    arguments: Any = None
    blocks: bool = True
    """False: the agent works on meanwhile."""


class AnswerView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of the three things a person may say about a call in doubt, and what follows from it."""

    answer: Answer
    enabled: bool
    consequence: str


class CheckView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tool's own check said about a call in doubt. It helps a person to decide, and decides nothing itself."""

    at: float
    answer: Answer | None = None
    """None: it could not tell."""
    note: str = ""


class DoubtView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call of which nobody knows whether it happened."""

    call: str
    name: str
    answers: tuple[AnswerView, ...]
    started_at: float | None = None
    arguments: Any = None
    blocks: bool = True
    """False: the run does not wait for it."""
    may_still_happen: bool = False
    """Whoever made the call is neither known dead nor has answered."""
    checked: CheckView | None = None


class SettlingView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A verb that is accepted and in force, and not settled yet."""

    verb: Verb
    by: str
    at: float
    waiting_for: str = ""
    """Empty: nothing any more, its receipt is on its way."""


class EffectView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    what: str
    now: EffectState
    why: str = ""
    can_undo: bool = False


class InstructionView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    verb: Verb
    by: str
    text: str
    at: float
    diff: str = ""
    delivered: bool | None = None
    """None: not yet."""


class VerbView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A verb that was taken: who asked for it, and when. Its receipt, if there is one yet, has the same `seq`."""

    verb: Verb
    seq: int
    by: str
    at: float
    reason: str = ""
    question: str = ""
    call: str | None = None


class ReasonView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a run was stopped, as somebody said afterwards."""

    reason: str
    by: str
    at: float
    note: str = ""


class FlagView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    watcher: str
    what: str
    at: float
    call: str | None = None


class CapView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    label: str
    used: float | None
    """None: not known."""
    allowed: float
    words: str
    """`turn 7 of 50`, `3:10 of 30:00`, `$0.12 of $1.00`."""


class RunView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    status: Status
    agent: str
    goal: str
    thread: str
    owner: str = ""
    parent: str | None = None
    continues: str | None = None
    seq: int = 0
    status_seq: int = 0
    created_at: float = 0.0
    finished_at: float | None = None
    elapsed_seconds: float = 0.0
    waiting: tuple[Waiting, ...] = ()
    approvals: tuple[ApprovalView, ...] = ()
    doubts: tuple[DoubtView, ...] = ()
    settling: tuple[SettlingView, ...] = ()
    steps: tuple[StepView, ...] = ()
    planned: bool = False
    """Whether the steps are those of a plan; else they are made of the calls, one each."""
    calls: tuple[CallView, ...] = ()
    effects: tuple[EffectView, ...] = ()
    instructions: tuple[InstructionView, ...] = ()
    flags: tuple[FlagView, ...] = ()
    verbs: tuple[VerbView, ...] = ()
    reasons: tuple[ReasonView, ...] = ()
    usage: Usage = Usage()
    caps: tuple[CapView, ...] = ()
    controls: dict[Verb, Control] = {}
    receipts: tuple[Receipt, ...] = ()
    result: Any = None
    error: str | None = None
