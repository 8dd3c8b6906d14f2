"""Who may append what, and when: the rules of admission that every journal shares.

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

from collections.abc import Collection, Sequence
from enum import IntEnum
from itertools import takewhile
from typing import NamedTuple

import msgspec

from checkrein.core.effects import EFFECT_EVENTS
from checkrein.core.events import (
    DECIDING,
    DECISIONS,
    UNOWNED,
    ApprovalDecided,
    CallAnswered,
    CallResolved,
    CallStarted,
    Event,
    RunCreated,
    RunFinished,
    VerbAccepted,
    is_taken_after_the_end,
)
from checkrein.core.words import TERMINAL, CallKind, Status, Verb
from checkrein.errors import Conflict, Fenced, JournalError, MisuseError, RunOver, StaleEpoch, StoreFull

URGENT = frozenset({VerbAccepted, ApprovalDecided, CallResolved})
"""What a person waits for: an append with one of these goes before others."""

FENCING = frozenset({Verb.CANCEL, Verb.HALT})
"""Verbs whose acceptance fences the run and all that descend from it."""


class Cover(IntEnum):
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


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """An append as the rules see it."""

    events: tuple[Event, ...]
    after: int
    epoch: int | None
    facts: int
    """How many facts lead; what follows them is all or nothing."""
    stopped_by: Cover
    has_answer: bool
    is_answer: bool
    """It says only what a stale owner may say."""
    is_taken_late: bool
    """A finished run takes it too."""
    is_urgent: bool
    has_permit: bool
    """It permits a call other than an undo: refused when the disk is full."""
    has_effects: bool
    """It changes the ledger of effects."""
    status: Status | None
    """The run's status after it; None when it does not change."""
    decided: int
    """The place of its last deciding event, from 1; 0 when there is none."""
    fencing: VerbAccepted | None


class Admission(NamedTuple):
    """How many of the events are taken, and why not the others."""

    taken: int
    refusal: type[JournalError] | None = None


def answer_id(call: str, epoch: int) -> str:
    """The id of every `call.answered` for this call and epoch, so that it can be said only once."""
    return f"answered:{call}:{epoch}"


def propose(events: Sequence[Event], *, after: int, epoch: int | None) -> Proposal:
    """Read an append. Raises `MisuseError` for one that no run could ever take."""
    events = tuple(events)
    kinds = [type(event) for event in events]
    _check(events, kinds, epoch)
    permits = [event for event in events if type(event) is CallStarted]
    starts_work = any(permit.kind is not CallKind.UNDO for permit in permits)
    return Proposal(
        events=events,
        after=after,
        epoch=epoch,
        facts=sum(1 for _ in takewhile(lambda kind: kind not in DECISIONS, kinds)),
        stopped_by=Cover.CANCEL if starts_work else Cover.HALT if permits else Cover.NEVER,
        has_answer=CallAnswered in kinds,
        is_answer=all(isinstance(event, CallAnswered) and event.epoch == epoch for event in events),
        is_taken_late=all(map(is_taken_after_the_end, events)),
        is_urgent=not URGENT.isdisjoint(kinds),
        has_permit=starts_work,
        has_effects=kinds[-1] is RunFinished or not EFFECT_EVENTS.isdisjoint(kinds),
        status=next((event.status for event in reversed(events) if hasattr(event, "status")), None),
        decided=max((n for n, kind in enumerate(kinds, 1) if kind in DECIDING), default=0),
        fencing=next((e for e in events if isinstance(e, VerbAccepted) and e.verb in FENCING), None),
    )


def _check(events: tuple[Event, ...], kinds: list[type[Event]], epoch: int | None) -> None:
    if not events:
        raise MisuseError("An append needs at least one event.")
    if len({event.id for event in events}) < len(events):
        raise MisuseError("Two events of one append have the same id.")
    if RunCreated in kinds:
        raise MisuseError("A run begins with `create`; run.created cannot be appended.")
    if RunFinished in kinds[:-1]:
        raise MisuseError("run.finished must be the last event of its append.")
    if epoch is None and not UNOWNED.issuperset(kinds):
        owned = next(kind for kind in kinds if kind not in UNOWNED)
        raise MisuseError(f"{tag(owned)} can only be appended by the run's owner: claim the run and give the epoch.")
    if CallAnswered in kinds:
        _check_answers(events)


def _check_answers(events: tuple[Event, ...]) -> None:
    for event in events:
        if isinstance(event, CallAnswered) and event.id != (expected := answer_id(event.call, event.epoch)):
            raise MisuseError(f"The id of this call.answered must be {expected!r}, so that it is taken only once.")


def admit(proposal: Proposal, head: Head, *, cover: Cover = Cover.NONE, is_full: bool = False) -> Admission:
    """How many of the proposed events the run takes, and what stands in the way of the others."""
    epoch = proposal.epoch
    if proposal.after > head.seq or (epoch is not None and epoch > head.epoch):
        raise MisuseError(
            f"An append after event {proposal.after} with epoch {epoch} to a run that has {head.seq} events "
            f"and epoch {head.epoch}: its maker cannot have seen that."
        )
    if epoch is not None and epoch < head.epoch and not proposal.is_answer:
        return Admission(0, StaleEpoch)
    if head.status in TERMINAL and not proposal.is_taken_late:
        return Admission(0, RunOver)
    if proposal.facts == len(proposal.events):
        return Admission(proposal.facts)
    if head.decided > proposal.after:
        return Admission(proposal.facts, Conflict)
    if cover >= proposal.stopped_by:
        return Admission(proposal.facts, Fenced)
    if is_full and proposal.has_permit:
        return Admission(proposal.facts, StoreFull)
    return Admission(len(proposal.events))


def advance(head: Head, proposal: Proposal, taken: int) -> Head:
    """The head after the first `taken` events. Only decisions decide and only they change the status."""
    if taken < len(proposal.events) or not proposal.decided:
        return head._replace(seq=head.seq + taken)
    return Head(head.seq + taken, head.seq + proposal.decided, head.epoch, proposal.status or head.status)


def remainder(proposal: Proposal, recorded: Collection[str]) -> Proposal | None:
    """What is left of an append of which the events with the ids `recorded` were taken before; None when nothing is."""
    left = [event for event in proposal.events if event.id not in recorded]
    if len(left) == len(proposal.events):
        return proposal
    decisions = proposal.events[proposal.facts :]
    if 0 < sum(event.id in recorded for event in decisions) < len(decisions):
        raise MisuseError("This append has an event id of another one; ids must be unique within a run.")
    return propose(left, after=proposal.after, epoch=proposal.epoch) if left else None


def check_descent(event: RunCreated, parent_root: str | None) -> None:
    """Raises `MisuseError` where `event.root` is not the topmost run above its parent."""
    expected = None if event.parent is None else (parent_root or event.parent)
    if event.root != expected:
        raise MisuseError(f"The root of run {event.run} must be {expected!r}, not {event.root!r}.")


def tag(kind: type[Event]) -> str:
    """The name of a kind of event as it is written in the journal."""
    return str(kind.__struct_config__.tag)
