"""Who may append what, and when: the rules of admission, fencing and stale epochs that every journal shares.

Pure. A journal reads the head of a run inside its transaction, asks `admit`, and takes as many of the events as it is
told. `propose` has by then checked what can be checked without looking at the run, so that a mistake of the caller
never reaches a transaction and the transaction has little left to ask.

    maker                      takes part with
    without an epoch           `UNOWNED` events only
    with the run's epoch       everything
    with an older epoch        `call.answered` for calls of that epoch, nothing else

The leading facts of an append are taken on their own; from the first decision on it is all or nothing. An event whose
id is already recorded is never taken again: what remains of such an append is judged as if it had come alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache, lru_cache
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from checkrein.core.effects import EFFECT_EVENTS
from checkrein.core.enums import FENCING, TERMINAL, CallKind, Status, Verb
from checkrein.core.events import (
    DECIDING,
    DECISIONS,
    UNOWNED,
    ApprovalDecided,
    CallAnswered,
    CallResolved,
    CallStarted,
    Event,
    ReasonAdded,
    RunCreated,
    RunFinished,
    VerbAccepted,
    is_taken_after_the_end,
)
from checkrein.errors import CheckreinError, Conflict, Fenced, MisuseError, RunOver, StaleEpoch, StoreFull
from checkrein.journal import operations
from checkrein.journal.base import Fence, LiftWords, Recorded, Scope

_WORDY = frozenset({VerbAccepted, ApprovalDecided, CallResolved, ReasonAdded})

URGENT = frozenset({VerbAccepted, ApprovalDecided, CallResolved})
"""What a person waits for: an append with one of these goes before others."""


class FenceLevel(IntEnum):
    """The strongest fence over a run; also the weakest one that stops an append."""

    NONE = 0
    CANCEL = 1
    HALT = 2
    NEVER = 3


class Head(NamedTuple):
    """What the rules must know about a run."""

    seq: int
    decided: int
    epoch: int
    status: Status


class Shape(msgspec.Struct, frozen=True, gc=False):
    """What the kinds of an append's events say about it, whatever is in them."""

    facts: int
    """How many facts lead; what follows them is all or nothing."""
    decided: int
    """The place of the last deciding event, from 1; 0 when there is none."""
    is_urgent: bool
    is_unowned: bool
    """It may come without an epoch."""
    has_permit: bool
    has_answer: bool
    has_verb: bool
    has_words: bool
    """It may hold words of people."""
    has_effects: bool
    """It changes the ledger of effects."""


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """An append as the rules see it."""

    events: tuple[Event, ...]
    after: int
    epoch: int | None
    shape: Shape
    stopped_by: FenceLevel
    """The weakest fence that stops it."""
    fencing: VerbAccepted | None
    """The verb in it that puts up a fence."""

    @property
    def is_work(self) -> bool:
        """It permits a call other than an undo: refused when the disk is full."""
        return self.stopped_by is FenceLevel.CANCEL


KEPT_WORDS: Final = 200
"""How many characters of a reason or a note are kept when the disk is full."""
SHORT_WORDS: Final = 1_000
"""How long an instruction, a question or an answer may be that is taken when the disk is full."""


def without_words(proposal: Proposal) -> Proposal | None:
    """What of an append is taken when the disk is full: of what people ask for, the verb and not its words.

    The room that is kept for that day is for stops and their settlement. A long reason or note is cut, since a stop
    must not fail for it; an instruction or an answer that is long, or a reason that is added later, is not taken: None.
    """
    if proposal.epoch is not None or not proposal.shape.has_words:
        return proposal
    events = [_without_words(event) for event in proposal.events]
    taken = [event for event in events if event is not None]
    if len(taken) < len(events):
        return None
    if all(one is other for one, other in zip(taken, proposal.events, strict=True)):
        return proposal
    return propose(taken, after=proposal.after, epoch=None)


def _without_words(event: Event) -> Event | None:
    match event:
        case ReasonAdded():
            return None
        case VerbAccepted():
            if len(event.instruction or "") + len(event.question or "") > SHORT_WORDS:
                return None
            return event if len(event.reason) <= KEPT_WORDS else replace(event, reason=_cut(event.reason))
        case CallResolved() if event.result is not None and memoryview(event.result).nbytes > SHORT_WORDS:
            return None
        case ApprovalDecided() | CallResolved() if len(event.note) > KEPT_WORDS:
            return replace(event, note=_cut(event.note))
        case _:
            return event


def _cut(words: str) -> str:
    return words[:KEPT_WORDS] + "…"


class Admission(NamedTuple):
    """How many of the events are taken, and why not the others."""

    taken: int
    refusal: type[CheckreinError] | None = None


class Refusal(NamedTuple):
    """Why an append was not taken whole, and where its run stood."""

    kind: type[CheckreinError]
    head: Head


class Taken(NamedTuple):
    """What became of an append: the events that are recorded, now or since before, and why not the others."""

    events: tuple[Recorded, ...]
    refusal: Refusal | None = None


def answer_id(call: str, epoch: int) -> str:
    """The id of every `call.answered` for this call and epoch, so that it can be said only once."""
    return f"answered:{call}:{epoch}"


def propose(events: Sequence[Event], *, after: int, epoch: int | None) -> Proposal:
    """Read an append. Raises `MisuseError` for one that no run could ever take."""
    events = tuple(events)
    if len({event.id for event in events}) < len(events):
        raise MisuseError("Two events of one append have the same id.")
    shape = _shape(tuple(map(type, events)))
    if epoch is None and not shape.is_unowned:
        raise MisuseError("Only the run's owner can append this: claim the run, and give the epoch of the lease.")
    if shape.has_answer:
        _check_answers(events)
    return Proposal(
        events,
        after,
        epoch,
        shape,
        _stopped_by(events) if shape.has_permit else FenceLevel.NEVER,
        _fencing(events) if shape.has_verb else None,
    )


@lru_cache(maxsize=1024)
def _shape(kinds: tuple[type[Event], ...]) -> Shape:
    if not kinds:
        raise MisuseError("An append needs at least one event.")
    if RunCreated in kinds:
        raise MisuseError("A run begins with `create`; run.created cannot be appended.")
    if RunFinished in kinds[:-1]:
        raise MisuseError("run.finished must be the last event of its append.")
    return Shape(
        facts=next((n for n, kind in enumerate(kinds) if kind in DECISIONS), len(kinds)),
        decided=max((n for n, kind in enumerate(kinds, 1) if kind in DECIDING), default=0),
        is_urgent=not URGENT.isdisjoint(kinds),
        is_unowned=UNOWNED.issuperset(kinds),
        has_permit=CallStarted in kinds,
        has_answer=CallAnswered in kinds,
        has_verb=VerbAccepted in kinds,
        has_words=not _WORDY.isdisjoint(kinds),
        has_effects=RunFinished in kinds or not EFFECT_EVENTS.isdisjoint(kinds),
    )


def _stopped_by(events: tuple[Event, ...]) -> FenceLevel:
    kinds = {event.kind for event in events if isinstance(event, CallStarted)}
    return FenceLevel.HALT if kinds == {CallKind.UNDO} else FenceLevel.CANCEL


def _fencing(events: tuple[Event, ...]) -> VerbAccepted | None:
    return next((e for e in events if isinstance(e, VerbAccepted) and e.verb in FENCING), None)


def _check_answers(events: tuple[Event, ...]) -> None:
    for event in events:
        if isinstance(event, CallAnswered) and event.id != (expected := answer_id(event.call, event.epoch)):
            raise MisuseError(f"The id of this call.answered must be {expected!r}, so that it is taken only once.")


def admit(proposal: Proposal, head: Head, *, cover: FenceLevel = FenceLevel.NONE, is_full: bool = False) -> Admission:
    """How many of the proposed events the run takes, and what stands in the way of the others."""
    epoch = proposal.epoch
    if proposal.after > head.seq or (epoch is not None and epoch > head.epoch):
        return Admission(0, MisuseError)  # its maker claims to have seen what is not there yet
    if epoch is not None and epoch < head.epoch and not _is_answer(proposal):
        return Admission(0, StaleEpoch)
    if head.status in TERMINAL and not all(map(is_taken_after_the_end, proposal.events)):
        return Admission(0, RunOver)
    facts = proposal.shape.facts
    if facts < len(proposal.events):
        if head.decided > proposal.after:
            return Admission(facts, Conflict)
        if cover >= proposal.stopped_by:
            return Admission(facts, Fenced)
        if is_full and proposal.is_work:
            return Admission(facts, StoreFull)
    return Admission(len(proposal.events))


def _is_answer(proposal: Proposal) -> bool:
    """Whether this is what a stale owner may still say."""
    return all(isinstance(event, CallAnswered) and event.epoch == proposal.epoch for event in proposal.events)


def advance(head: Head, proposal: Proposal, taken: int) -> Head:
    """The head after the first `taken` events. Only deciding events decide, and only they change the status."""
    seq, decided = head.seq + taken, proposal.shape.decided
    if not decided or taken < len(proposal.events):
        return Head(seq, head.decided, head.epoch, head.status)
    status = next((event.status for event in reversed(proposal.events) if hasattr(event, "status")), head.status)
    return Head(seq, head.seq + decided, head.epoch, status)


def is_repeat(event: Event, recorded: Event) -> bool:
    """Whether `recorded`, which has the id of `event`, is what `event` says once more.

    A verb may be asked for again a moment later. A permit is the same only to the letter: another one for the same
    attempt, by whoever, is no repeat.
    """
    if isinstance(event, VerbAccepted) and isinstance(recorded, VerbAccepted):
        return event.verb is recorded.verb
    return event == recorded if isinstance(event, CallStarted) else type(event) is type(recorded)


def remainder(proposal: Proposal, recorded: Mapping[str, Recorded]) -> Proposal | None:
    """What is left of an append of which the events in `recorded`, by id, were taken before; None when nothing is.

    Raises `MisuseError` when an id was taken for something else.
    """
    for event in proposal.events:
        if event.id in recorded and not is_repeat(event, recorded[event.id].event):
            taken_by = tag(type(recorded[event.id].event))
            raise MisuseError(
                f"The id {event.id!r} of this {tag(type(event))} was taken by another {taken_by}; an id says one thing."
            )
    left = [event for event in proposal.events if event.id not in recorded]
    if len(left) == len(proposal.events):
        return proposal
    decisions = proposal.events[proposal.shape.facts :]
    if 0 < sum(event.id in recorded for event in decisions) < len(decisions):
        raise MisuseError("This append has an event id of another one; ids must be unique within a run.")
    return propose(left, after=proposal.after, epoch=proposal.epoch) if left else None


def check_fence(fence: Fence) -> None:
    """Raises `MisuseError` for a fence that would cover nothing, or not what its maker thinks."""
    if (fence.scope is Scope.ALL) != (not fence.name):
        raise MisuseError(f"A fence around {fence.scope.value} {'takes no name' if fence.name else 'needs a name'}.")


def fence_of(run: str, verb: VerbAccepted) -> Fence:
    """The fence that a cancel or a halt of `run` puts up."""
    halt = verb.verb is Verb.HALT
    return Fence(scope=Scope.RUN, name=run, halt=halt, by=verb.by, reason=verb.reason, at=verb.at)


def halt_request(fence: Fence, host: str) -> operations.Request:
    """What is recorded of a halt. Raises `MisuseError` for words that are no text."""
    words = {"by": fence.by, "reason": fence.reason, "host": host}
    return _checked(operations.request(operations.HALTED, fence.scope.value, fence.name, at=fence.at, **words))


def reset_request(scope: Scope, name: str, words: LiftWords) -> operations.Request:
    """The same of a reset."""
    by, reason, host = words.get("by", ""), words.get("reason", ""), words.get("host", "")
    at = words.get("at", 0.0)
    return _checked(operations.request(operations.RESET, scope.value, name, by=by, reason=reason, at=at, host=host))


def _checked(asked: operations.Request) -> operations.Request:
    try:
        asked.body()
    except UnicodeEncodeError as error:
        raise MisuseError(f"This cannot be written as text: {error.reason}.") from None
    return asked


def check_descent(event: RunCreated, parent_root: str | None) -> None:
    """Raises `MisuseError` where `event.root` is not the topmost run above its parent."""
    expected = None if event.parent is None else (parent_root or event.parent)
    if event.root != expected:
        raise MisuseError(f"The root of run {event.run} must be {expected!r}, not {event.root!r}.")


@cache
def tag(kind: type[Event]) -> str:
    """The name of a kind of event as it is written in the journal."""
    return str(kind.__struct_config__.tag)
