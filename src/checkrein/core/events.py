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
from checkrein.core.enums import (
    Answer,
    CallKind,
    Decision,
    EffectState,
    OnPause,
    Outcome,
    Status,
    Then,
    Undo,
    Verb,
    When,
)
from checkrein.core.receipts import Receipt

UNDO_PREFIX: Final = "undo:"
"""The id of an undo call is this and the id of its effect."""

ASK_PREFIX: Final = "ask:"
"""The id of the call that answers a side question is this and the id of its verb."""

HELD_PREFIX: Final = "held:"
"""The id of a pause that a parent passed on begins with this: it is resumed with the parent, and no other is."""


def approval_id(call: str) -> str:
    """The id of the event that puts a call to a person: one a call, so that nobody is asked twice."""
    return f"{call}.approval"


Json = msgspec.Raw
"""A JSON value that is kept as the bytes it came in."""

if TYPE_CHECKING:
    MaybeJson = Json | None
else:
    # msgspec cannot decode `Raw | None`. None is never encoded, being the default; a JSON null is the bytes `null`.
    MaybeJson = Json


class OriginEffect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call of the origin did to the world, and what had become of that when the fork was made."""

    call: str
    what: str
    now: EffectState


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a fork begins: in another run, after a step that is finished there."""

    run: str
    step: int
    """The last step that it takes over."""
    title: str
    seq: int
    """What was asked for up to this event of the origin is taken over, and nothing that was asked for later."""
    hash: str
    """Of that event: which history it was."""
    calls: int = 0
    """How many calls are taken over. Whoever drives the fork first records each as `call.reused`."""
    first: str
    """The run where it all began, where forks are forked: the origin itself, if that is no fork."""
    thread: str
    """Of that run. What was said there before it is known to the fork too."""
    began_at: float
    """When that run was created: what time it is for a program before its first call."""
    by: str = ""
    effects: tuple[OriginEffect, ...] = ()
    """What the calls that are taken over did. It belongs to the origin: the fork undoes none of it."""
    more_effects: int = 0
    """How many there are besides."""
    told: str = ""
    """What the agent is told, because of what it did something does not stand."""
    instruction: str | None = None
    """What a person wants from here on."""

    @property
    def words(self) -> str | None:
        """Everything that the agent is told with the first call of the fork that can carry it; None: nothing."""
        return "\n\n".join(filter(None, (self.told, self.instruction))) or None


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
    forked_from: Origin | None = None

    @property
    def status(self) -> Status:
        return Status.QUEUED


class RunStarted(Event, frozen=True, kw_only=True, tag="run.started"):
    """A driver took the run up, for the first time or again."""

    epoch: int
    status: Status
    host: str = ""
    pid: int = 0
    process: str = ""
    """A name for the driver's process that no other ever has. Old records have neither this nor the next three."""
    boot_id: str = ""
    """Of its host: changes when that restarts."""
    started: float | None = None
    """When its process began, as the host tells: a pid that another process has by now is told apart by it."""
    version: str = ""
    """Of the agents in its process, as whoever deploys them names it; without a name, of Checkrein there."""
    after_death: bool = False
    """The process that drove the run before has died with it in its hands."""
    worked_until: float | None = None
    """Until when the driver before was at work, as far as its lease tells; None: its last event is all there is."""
    ahead: float | None = None
    """By how much the wall clock was ahead of the clock by which leases are kept; None: not known."""


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
    """With `in_doubt`: said by whoever took the run over. The time since its driver was last heard of was nobody's
    work."""
    worked_until: float | None = None
    """With `abandoned`, as of `run.started`."""
    files: tuple[str, ...] = ()
    """The files that it has published, on the machine where it ran."""
    file_hashes: tuple[str, ...] = ()
    """Of each file the SHA-256 of what the store keeps of it; empty for one that is kept where it ran only."""
    traceback: str | None = None
    """With `failed`, of a tool: where its code failed, as its author sees it; of a long one the end."""
    left: tuple[str, ...] = ()
    """What of it could not be stopped, in words. Whatever that still brings is dropped."""
    shown_at: float | None = None
    """When the first piece of its text was handed to readers; None: nothing was, or it is not known."""
    shown: tuple[tuple[int, int], ...] = ()
    """So many milliseconds after `shown_at`, so many characters had been handed to readers, all in all."""
    refused: bool = False
    """With `failed`, of a tool: there is none of this name, or its arguments do not fit. Nothing was begun."""
    unasked: bool = False
    """With `failed`, of a model: there is no key for it, or no such model. It has spent nothing and is no turn."""


class CallReused(Event, frozen=True, kw_only=True, tag="call.reused"):
    """A call of the origin of a fork: the program is answered from it, and nothing is done again."""

    call: str
    kind: CallKind
    name: str
    origin: str
    """The run that made it."""
    asked: int
    """When it was asked for, as its place among all that was asked for and all that ended in what is taken over."""
    ended: int | None = None
    """Likewise when it ended."""
    outcome: Outcome | None = None
    """None: the origin had not begun it by then, or a model had not answered. It is made by the fork."""
    result: MaybeJson = None
    error: str | None = None
    instruction: str | None = None
    """Of one that was interrupted: what the person who did so wanted instead."""
    carried: str | None = None
    """What a person told the agent with it."""
    step: int | None = None
    arguments: MaybeJson = None
    edited: MaybeJson = None
    """What the person who approved it wanted it to be made with."""
    fingerprint: str = ""
    place: str = ""
    started_at: float | None = None
    ended_at: float | None = None


class StopDelayed(Event, frozen=True, kw_only=True, tag="stop.delayed"):
    """The stop of a call waits for the end of an atomic section of its tool (`call.shield`)."""

    call: str
    what: str
    seconds: float
    """How long it waits at most."""


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
    store_at: float | None = None
    """As of `verb.accepted`."""


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
    """Asked, and in force from here on. Its `id` is the verb's request id.

    A redirect and a cancel withdraw every approval with it: those asked for, those given and not used yet, and those
    given for the rest of the run.
    """

    verb: Verb
    status: Status
    by: str
    reason: str = ""
    asked_at: float | None = None
    store_at: float | None = None
    """When it was decided by the clock of the store; `at` is by that of the host which decided. None: not known."""
    instruction: str | None = None
    question: str | None = None
    when: When = When.NOW
    undo: Undo = Undo.OPEN
    call: str | None = None
    needs: Need | None = None
    """With a pause that the runtime asked for: what only a person can give."""
    resumes_itself: bool = False
    """With a pause: the next driver resumes the run without being asked (a shutdown, never a person's pause)."""


class VerbJoined(Event, frozen=True, kw_only=True, tag="verb.joined"):
    """Asked for while the same was in force already: its answer is the receipt of that verb. Its `id` is its request
    id, so that a repeat finds the same answer whatever has happened since."""

    verb: Verb
    accepted: str
    """The id of the `verb.accepted` whose receipt answers it."""
    by: str
    store_at: float | None = None
    """As of `verb.accepted`."""


class VerbSettled(Event, frozen=True, kw_only=True, tag="verb.settled"):
    """Happened. `accepted` is the id of the `verb.accepted` that it settles."""

    accepted: str
    verb: Verb
    status: Status
    receipt: Receipt
    worked_until: float | None = None
    """As of `run.started`, where no driver was there to settle it."""


class ReasonAdded(Event, frozen=True, kw_only=True, tag="reason.added"):
    """Why the run was stopped, as somebody said afterwards."""

    reason: str
    by: str
    note: str = ""
    store_at: float | None = None
    """As of `verb.accepted`."""


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
    what: str = ""
    """What the call changes, in the words of its tool's author."""
    can_undo: bool = False
    """Whether what it changes can be taken back afterwards."""
    schema: MaybeJson = None
    """The JSON schema of the arguments, for whoever wants others."""


class ApprovalDecided(Event, frozen=True, kw_only=True, tag="approval.decided"):
    """A person has consented to a call or not, or it was withdrawn."""

    call: str
    decision: Decision
    by: str
    note: str = ""
    arguments: MaybeJson = None
    """With `approved`: the call is made with these instead of those that were asked for."""
    fingerprint: str = ""
    """With `arguments`: the hash of the call with them."""
    always: bool = False
    """With `approved`: so is every later call of the same tool in this run, until a person denies one or says where the
    run goes instead."""
    store_at: float | None = None
    """As of `verb.accepted`."""


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
    withheld_from: int | None = None
    """The first character that was not passed on; None: all of it was."""
    withheld_chars: int = 0
    """How many were read and not passed on when it was noticed. They are kept where only operators read them."""
    withheld_hash: str = ""
    """The SHA-256 of that text in UTF-8."""


class RetryScheduled(Event, frozen=True, kw_only=True, tag="retry.scheduled"):
    """A model that failed is asked again in a while."""

    call: str
    attempt: int
    wait_seconds: float
    why: str


class ClockSet(Event, frozen=True, kw_only=True, tag="clock.set"):
    """The wall clock of the driver was set while it worked, forward or back. `at` is the time after that.

    By 0 seconds: it was not, and the driver says what time it is because it has not for a while.
    """

    seconds: float
    within: float = 5.0
    """It was set within so many seconds before: for so long the driver had not looked at it."""


EVENTS: Final[tuple[type[Event], ...]] = (
    RunCreated, RunStarted, RunFinished, PlanPublished, StepStarted, StepFinished, VersionChosen,
    CallStarted, CallReused, StopDelayed, CallFinished, CallAnswered, CheckAsked, CallChecked, CallResolved,
    EffectOpened, EffectSettled, EffectUndone, EffectInDoubt, EffectLeft, EffectReopened,
    VerbAccepted, VerbJoined, VerbSettled, ReasonAdded, InstructionDelivered,
    ApprovalRequested, ApprovalDecided, ConditionTripped, WatcherFlagged, RetryScheduled,
    ClockSet,
)  # fmt: skip

WITHDRAWS_APPROVALS: Final = frozenset({Verb.REDIRECT, Verb.CANCEL})
"""Verbs that leave no approval behind: what was consented to was part of another course."""

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
    RunCreated, VerbAccepted, VerbJoined, ApprovalDecided, CallResolved, EffectSettled, EffectLeft, EffectReopened,
    ReasonAdded, CheckAsked,
})  # fmt: skip
"""Events that may be appended without holding the run's lease (without an epoch)."""

AFTER_THE_END: Final[frozenset[type[Event]]] = frozenset({
    CallAnswered, CallResolved, ReasonAdded, EffectSettled, EffectUndone, EffectInDoubt, EffectLeft, EffectReopened,
})  # fmt: skip
"""Events that a finished run still takes, besides undo calls, and side questions with their answers."""


def withdrawal(event: VerbAccepted, call: str) -> ApprovalDecided:
    """What a verb that withdraws approvals has decided about one of them."""
    return ApprovalDecided(id=f"{event.id}.{call}", at=event.at, call=call, decision=Decision.WITHDRAWN, by=event.by)


def is_taken_after_the_end(event: Event) -> bool:
    """Whether a finished run still takes this event."""
    if isinstance(event, CallStarted):
        return event.kind in (CallKind.UNDO, CallKind.ASK)
    if isinstance(event, CallFinished):
        return event.call.startswith((UNDO_PREFIX, ASK_PREFIX))
    if isinstance(event, VerbAccepted | VerbSettled):
        return event.verb is Verb.ASK
    return type(event) in AFTER_THE_END
