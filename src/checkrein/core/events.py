"""Everything that can be said about a run.

An event is a frozen struct with a tag. It carries its own `id` (made by whoever appends it, so that a repeat can be
recognised) and the time `at` which it was made; its `seq` and its hash are given by the journal and are no part of it,
so that an event is encoded once and the same bytes are stored, streamed and hashed.

Every event is either a fact or a decision. A **fact** happened: it is refused only when its maker no longer owns the
run. A **decision** permits something, or changes what is permitted: it is also refused when an event that changes what
is permitted (a **deciding** one) has come in since its maker last looked. `DECISIONS` and `DECIDING` below say which
is which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from checkrein.core.conditions import Condition, Usage
from checkrein.core.receipts import Receipt
from checkrein.core.words import (
    Answer,
    CallKind,
    Decision,
    OnPause,
    Outcome,
    Status,
    Then,
    Undo,
    Verb,
    When,
)

UNDO_PREFIX: Final = "undo:"
"""The id of an undo call is this and the id of its effect."""

Json = msgspec.Raw
"""A JSON value that is kept as the bytes it came in."""

if TYPE_CHECKING:
    MaybeJson = Json | None
else:
    # msgspec cannot decode `Raw | None`. None is never encoded, being the default; a JSON null is the bytes `null`.
    MaybeJson = Json


class Need(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something only a person can give: why the run waits, and what would help."""

    code: str
    what: str
    remedy: str = ""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    id: str
    at: float


# -- the run itself


class RunCreated(Event, frozen=True, kw_only=True, tag="run.created"):
    """Somebody wants a goal reached. The run is queued."""

    run: str
    agent: str
    goal: str
    thread: str
    owner: str = ""
    parent: str | None = None
    root: str | None = None
    """The topmost run this one descends from; None when it is the topmost itself."""
    continues: str | None = None
    stop_when: Condition | None = None

    @property
    def status(self) -> Status:
        return Status.QUEUED


class RunStarted(Event, frozen=True, kw_only=True, tag="run.started"):
    """A driver took the run up, for the first time or again."""

    epoch: int
    status: Status
    host: str = ""
    pid: int = 0


class RunFinished(Event, frozen=True, kw_only=True, tag="run.finished"):
    """The run is over, for good. Open effects are settled, or left, with it."""

    status: Status
    result: MaybeJson = None
    error: str | None = None


# -- what a person sees of the work


class PlanPublished(Event, frozen=True, kw_only=True, tag="plan.published"):
    """The task list as it stands now, those steps included that have begun."""

    steps: tuple[str, ...]


class StepStarted(Event, frozen=True, kw_only=True, tag="step.started"):
    """The agent begins a step of its list."""

    step: int
    title: str


class StepFinished(Event, frozen=True, kw_only=True, tag="step.finished"):
    """The agent is through with a step."""

    step: int


class VersionChosen(Event, frozen=True, kw_only=True, tag="version.chosen"):
    """The program took the newer way at a place where it was changed on purpose."""

    name: str


# -- calls


class CallStarted(Event, frozen=True, kw_only=True, tag="call.started"):
    """The permit. Once it is in the journal the call counts as issued."""

    call: str
    kind: CallKind
    name: str
    epoch: int
    attempt: int = 1
    key: str = ""
    step: int | None = None
    arguments: MaybeJson = None
    fingerprint: str = ""
    """Hash of kind, name and arguments: what replay matches and `Repeats` compares."""
    place: str = ""
    """Where the program stands, if that has a name (`turn:3`): what replay matches instead."""
    on_pause: OnPause = OnPause.FINISH
    idempotent: bool = False
    effect: str | None = None
    """For a tool call: the effect it opens. For an undo: the effect it undoes."""
    timeout_seconds: float | None = None


class CallFinished(Event, frozen=True, kw_only=True, tag="call.finished"):
    """How a call ended, and what it used."""

    call: str
    outcome: Outcome
    result: MaybeJson = None
    error: str | None = None
    usage: Usage | None = None
    chunks: int = 0
    chars: int = 0
    chunk_hash: str = ""
    tokens_after_stop: int = 0
    verb: str | None = None
    """The id of the verb that stopped it, if one did."""
    owner_dead: bool = False
    """With `in_doubt`: the process that made the call is known to be gone, so the call can no longer begin."""
    retry: bool = False
    """With `failed`, of a model: it may pass, and the same is asked again as the next attempt."""
    abandoned: bool = False
    """With `in_doubt`: said by whoever took the run over. The time since the last event was nobody's work."""
    files: tuple[str, ...] = ()
    """The files that it has published, on the machine where it ran."""


class CallAnswered(Event, frozen=True, kw_only=True, tag="call.answered"):
    """The former owner of a call in doubt says what became of it. It will not touch the world again under this call.

    `outcome` is `in_doubt` when all that is known is that the owner is gone.
    """

    call: str
    epoch: int
    outcome: Outcome
    began: bool = True
    """False: the owner had the permit and never used it."""
    result: MaybeJson = None
    error: str | None = None


class CheckAsked(Event, frozen=True, kw_only=True, tag="check.asked"):
    """A person wants the tool of a call in doubt to be asked once more whether it happened."""

    call: str
    by: str


class CallChecked(Event, frozen=True, kw_only=True, tag="call.checked"):
    """The tool was asked whether a call in doubt happened. It helps a person to decide, and decides nothing itself."""

    call: str
    answer: Answer | None = None
    """None: it could not tell."""
    result: MaybeJson = None
    note: str = ""


class CallResolved(Event, frozen=True, kw_only=True, tag="call.resolved"):
    """The doubt about a call is ended, by a person or by the answer of its former owner."""

    call: str
    answer: Answer
    by: str
    result: MaybeJson = None
    note: str = ""


# -- effects (an effect has the id of the call that opened it)


class EffectOpened(Event, frozen=True, kw_only=True, tag="effect.opened"):
    """A permitted call may change the world from now on."""

    effect: str
    what: str
    undo: str | None = None
    """Where the undo function can be imported from; None when there is none."""
    key: str = ""


class EffectSettled(Event, frozen=True, kw_only=True, tag="effect.settled"):
    """What a call did is meant to stay, or it is known to have done nothing."""

    effect: str
    why: str = ""
    happened: bool = True
    """False: it turned out that there was no effect, so there is nothing to undo either."""


class EffectUndone(Event, frozen=True, kw_only=True, tag="effect.undone"):
    """What a call did was taken back."""

    effect: str


class EffectInDoubt(Event, frozen=True, kw_only=True, tag="effect.in_doubt"):
    """Nobody knows whether the call did anything."""

    effect: str
    why: str = ""


class EffectLeft(Event, frozen=True, kw_only=True, tag="effect.left"):
    """What a call did stays, although it was to be undone."""

    effect: str
    why: str = ""


class EffectReopened(Event, frozen=True, kw_only=True, tag="effect.reopened"):
    """An effect that was in doubt, or left, is open again: it did happen, or its undo is to be tried (again)."""

    effect: str
    undo: bool = False
    by: str = ""


# -- verbs


class VerbAccepted(Event, frozen=True, kw_only=True, tag="verb.accepted"):
    """Asked, and in force from here on. Its `id` is the verb's request id."""

    verb: Verb
    status: Status
    by: str
    reason: str = ""
    asked_at: float | None = None
    instruction: str | None = None
    question: str | None = None
    when: When = When.NOW
    undo: Undo = Undo.OPEN
    call: str | None = None
    needs: Need | None = None
    """With a pause that the runtime asked for: what only a person can give."""
    resumes_itself: bool = False
    """With a pause: the next driver resumes the run without being asked (a shutdown, never a person's pause)."""


class VerbSettled(Event, frozen=True, kw_only=True, tag="verb.settled"):
    """Happened. `accepted` is the id of the `verb.accepted` that it settles."""

    accepted: str
    verb: Verb
    status: Status
    receipt: Receipt


class ReasonAdded(Event, frozen=True, kw_only=True, tag="reason.added"):
    """Why the run was stopped, as somebody said afterwards."""

    reason: str
    by: str
    note: str = ""


class InstructionDelivered(Event, frozen=True, kw_only=True, tag="instruction.delivered"):
    """A person's word reaches the agent, with the call that carries it."""

    accepted: str
    """The id of the verb that carried the instruction."""
    call: str
    diff: str


# -- approvals


class ApprovalRequested(Event, frozen=True, kw_only=True, tag="approval.requested"):
    """A call waits for the consent of a person."""

    call: str
    name: str
    fingerprint: str
    place: str = ""
    arguments: MaybeJson = None
    blocks: bool = True


class ApprovalDecided(Event, frozen=True, kw_only=True, tag="approval.decided"):
    """A person has consented to a call or not, or it was withdrawn."""

    call: str
    decision: Decision
    by: str
    note: str = ""


# -- what was noticed


class ConditionTripped(Event, frozen=True, kw_only=True, tag="condition.tripped"):
    """A cap is reached."""

    condition: str
    observed: float | None
    """None: not known."""
    allowed: float
    then: Then


class WatcherFlagged(Event, frozen=True, kw_only=True, tag="watcher.flagged"):
    """A watcher has noticed something in what the agent says or does."""

    watcher: str
    what: str
    call: str | None = None
    offset: int | None = None


class RetryScheduled(Event, frozen=True, kw_only=True, tag="retry.scheduled"):
    """A model that failed is asked again in a while."""

    call: str
    attempt: int
    wait_seconds: float
    why: str


EVENTS: Final[tuple[type[Event], ...]] = (
    RunCreated, RunStarted, RunFinished, PlanPublished, StepStarted, StepFinished, VersionChosen,
    CallStarted, CallFinished, CallAnswered, CheckAsked, CallChecked, CallResolved,
    EffectOpened, EffectSettled, EffectUndone, EffectInDoubt, EffectLeft, EffectReopened,
    VerbAccepted, VerbSettled, ReasonAdded, InstructionDelivered,
    ApprovalRequested, ApprovalDecided, ConditionTripped, WatcherFlagged, RetryScheduled,
)  # fmt: skip

DECISIONS: Final[frozenset[type[Event]]] = frozenset({
    RunStarted, RunFinished, CallStarted, CallResolved, EffectOpened, EffectReopened,
    VerbAccepted, VerbSettled, InstructionDelivered, ApprovalRequested, ApprovalDecided, ConditionTripped,
})  # fmt: skip
"""Events that are refused when a deciding event came in that their maker had not seen. The others are facts."""

DECIDING: Final[frozenset[type[Event]]] = frozenset({
    RunCreated, RunStarted, RunFinished, CallResolved, EffectReopened,
    VerbAccepted, VerbSettled, ApprovalRequested, ApprovalDecided, ConditionTripped,
})  # fmt: skip
"""Events that change what may be decided next. A permit is not one of them: it takes nothing from anybody else, and a
cancel must never lose a race against the permits of a busy run."""

UNOWNED: Final[frozenset[type[Event]]] = frozenset({
    RunCreated, VerbAccepted, ApprovalDecided, CallResolved, EffectSettled, EffectLeft, EffectReopened, ReasonAdded,
    CheckAsked,
})  # fmt: skip
"""Events that may be appended without holding the run's lease (without an epoch)."""

AFTER_THE_END: Final[frozenset[type[Event]]] = frozenset({
    CallAnswered, CallResolved, ReasonAdded, EffectSettled, EffectUndone, EffectInDoubt, EffectLeft, EffectReopened,
})  # fmt: skip
"""Events that a finished run still takes, besides the start and the finish of an undo call."""


def is_taken_after_the_end(event: Event) -> bool:
    """Whether a finished run still takes this event."""
    if isinstance(event, CallStarted):
        return event.kind is CallKind.UNDO
    if isinstance(event, CallFinished):
        return event.call.startswith(UNDO_PREFIX)
    return type(event) in AFTER_THE_END
