"""A run as a person sees it: what the command line and the page show, and what the HTTP API answers.

Only the structs: `viewer` makes them of the records of the journal. Nothing is guessed from context, and every word a
person reads about a status, a step, a call or an effect comes from here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, Self

import msgspec

from checkrein.core.conditions import Usage
from checkrein.core.consequences import VerbControl
from checkrein.core.enums import Answer, CallKind, EffectState, Status, Verb
from checkrein.core.events import Origin
from checkrein.core.receipts import Receipt
from checkrein.core.state import State, Waiting
from checkrein.journal.base import Recorded, RunRow


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


class ShownValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One value as text, exactly as it was recorded: what a person decides by."""

    name: str
    """Of an argument; empty for what has none."""
    text: str
    hidden: int = 0
    """How many characters are not in `text`. The call, looked at alone, has them all."""
    type: str = "string"
    """As JSON calls it. A `string` is shown without its quotes, the rest as JSON."""


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
    """`running`, `stopping`, `held`, `waiting for approval`, `approved`, `denied`, `refused`, or how it ended."""
    step: int | None = None
    attempt: int = 1
    arguments: Any = None
    """For programs; here and in `result`, None for what is long, unless the call is looked at alone."""
    result: Any = None
    given: tuple[ShownValue, ...] = ()
    """What it was given, as people read it."""
    brought: ShownValue | None = None
    """What came of it, as people read it."""
    asked_for: tuple[ShownValue, ...] = ()
    """What it was to be given, where the person who approved it wanted something else."""
    approved_by: str = ""
    """Who approved it, or all calls of its tool for the rest of the run."""
    edited_by: str = ""
    """Who approved it with other arguments than those it asked for."""
    resolved_by: str = ""
    """Who said what became of it, of a call that was in doubt."""
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
    reused_from: str = ""
    """Of a call that a fork has taken over: the run that made it. Nothing was done again."""
    files: tuple[str, ...] = ()
    """Of a tool: the files it has published, on the machine where it ran."""
    file_hashes: tuple[str, ...] = ()
    """Of each file the SHA-256 of what the store keeps of it; empty for one that is on its host only."""
    host: str = ""
    """Of a tool that has published files: where it ran."""
    traceback: str | None = None
    """Of a tool that failed: where its code did."""
    left: tuple[str, ...] = ()
    """What of it could not be stopped, in words."""
    waits_for: str = ""
    """What its stop waits for, in words, and at most how long."""


class ApprovalView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that waits for a person's consent."""

    call: str
    name: str
    requested_at: float
    headline: str = ""
    """What it changes, in the words of the tool's author; else the name of the tool."""
    can_undo: bool = False
    """Whether what it changes could be taken back afterwards."""
    shown: tuple[ShownValue, ...] = ()
    """The arguments as people read them."""
    fingerprint: str = ""
    """Of exactly this call. Sent along with an approval, it refuses consent to anything else."""
    arguments: Any = None
    """For programs; None where they are long: the call, looked at alone, has them."""
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
    shown: tuple[ShownValue, ...] = ()
    """The arguments as people read them."""
    arguments: Any = None
    """For programs; None where they are long: the call, looked at alone, has them."""
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
    """A run as a person sees it at one moment."""

    id: str
    status: Status
    agent: str
    goal: str
    thread: str
    owner: str = ""
    parent: str | None = None
    continues: str | None = None
    forked_from: Origin | None = None
    """Of a fork: the run and the step that it goes on from, and what of that run's effects stood when it was made."""
    seq: int = 0
    status_seq: int = 0
    created_at: float = 0.0
    finished_at: float | None = None
    driven: bool = True
    """False: it is at work by its status, and no living process drives it. It reads *waiting for its process*."""
    waits_for_worker: str = ""
    """Of a run that nobody drives, and that nobody who is known could take up: what it waits for, in words."""
    elapsed_seconds: float = 0.0
    waiting: tuple[Waiting, ...] = ()
    approvals: tuple[ApprovalView, ...] = ()
    """Those that hold the run up first; of very many only the first."""
    more_approvals: int = 0
    """How many calls wait for consent besides."""
    always: tuple[str, ...] = ()
    """Tools whose later calls a person has approved for the rest of the run."""
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
    controls: dict[Verb, VerbControl] = {}
    receipts: tuple[Receipt, ...] = ()
    result: Any = None
    brought: ShownValue | None = None
    """The result as people read it."""
    error: str | None = None


_OF_ROW: Final = ("agent", "goal", "thread", "owner", "parent", "created_at", "changed_at")


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list."""

    id: str
    status: Status
    waiting: bool
    """Whether it waits for a person."""
    waiting_for: tuple[Waiting, ...]
    agent: str
    goal: str
    thread: str
    owner: str
    parent: str | None
    created_at: float
    changed_at: float
    driven: bool = True
    """False: it is at work by its status, and no living process drives it."""
    waits_for_worker: str = ""
    """As in `RunView`."""
    elapsed_seconds: float
    ticking: bool
    """Whether its time is counting."""
    usage: Usage
    seq: int
    steps: tuple[int, int]
    """How many of its plan's steps have begun, and how many there are."""

    @classmethod
    def of(cls, row: RunRow, state: State, left: float | None, at: float, waits_for_worker: str) -> Self:
        """A run at `at`. `left`: since when nobody drives it although it is at work, if so."""
        waiting = () if state.is_finished else state.asked()
        return cls(
            id=row.id,
            status=state.status,
            waiting=bool(waiting),
            waiting_for=waiting,
            **{name: getattr(row, name) for name in _OF_ROW},
            driven=left is None,
            waits_for_worker=waits_for_worker,
            elapsed_seconds=round(state.spent(at if left is None else left).elapsed_seconds, 3),
            ticking=state.active_since is not None and left is None,
            usage=state.usage,
            seq=state.seq,
            steps=(state.steps_begun, len(state.plan)),
        )


class RunEvent(Recorded, frozen=True, gc=False):
    """One event of a run. `type` is its word (`call.finished`), `event` its struct, `data` everything in it as values.

    `body` is what was hashed.
    """

    @classmethod
    def of(cls, record: Recorded) -> Self:
        return cls(*msgspec.structs.astuple(record))

    @property
    def type(self) -> str:
        """What happened, in a word: `run.created`, `call.finished`."""
        return str(self.event.__struct_config__.tag)

    @property
    def at(self) -> float:
        """When, in Unix seconds."""
        return self.event.at

    @property
    def data(self) -> dict[str, Any]:
        """Everything that it says, by name. What is not set is not there."""
        return msgspec.json.decode(self.body)  # type: ignore[no-any-return]

    @property
    def call(self) -> str | None:
        """The call that it is about, if it is about one."""
        return getattr(self.event, "call", None)

    @property
    def arguments(self) -> Any:
        """Of a call that begins, or that somebody is asked about."""
        return self.data.get("arguments")

    @property
    def result(self) -> Any:
        """Of a call, or of the run, that has ended."""
        return self.data.get("result")

    def __repr__(self) -> str:
        said = {name: value for name, value in self.data.items() if name not in ("type", "id", "at")}
        short = ", ".join(f"{name}={_short(value)}" for name, value in said.items())
        return f"<{self.seq} {self.type} {short}>"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
