"""The sentences of a journal that says no: who, in which state, what was refused, what would work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from checkrein.core.events import DECIDING, RunCreated
from checkrein.errors import (
    CheckreinError,
    Conflict,
    Fenced,
    LeaseHeld,
    MisuseError,
    RunExists,
    RunNotFound,
    RunOver,
    StaleEpoch,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
)
from checkrein.journal.contract import Owner, Recorded
from checkrein.journal.rules import Head, Proposal, tag

# fmt: off
_SENTENCES: Final[Mapping[type[CheckreinError], str]] = {
    Conflict:   "Run {run} got {deciding} after event {after}: look at what came in and decide again.",
    Fenced:     "Run {run}, or one above it, was cancelled or halted: no further call may begin.",
    RunOver:    "Run {run} is finished ({status}); it takes only undos, answers, resolutions and reasons.",
    StaleEpoch: "Run {run} has epoch {epoch} by now; nothing of an append with epoch {made_with} was taken.",
    MisuseError: "Run {run} has {seq} events and epoch {epoch}; who appends after event {after} with epoch {made_with} "
                "cannot have looked at it.",
    StoreFull:  "The disk with {path} is full: no call, run or text is taken until there is room again. "
                "Free some space; verbs are still accepted.",
}
# fmt: on


def refused(
    kind: type[CheckreinError],
    head: Head,
    run: str,
    proposal: Proposal,
    committed: tuple[Recorded, ...],
    missed: tuple[Recorded, ...],
    path: str = "",
) -> CheckreinError:
    """The error for an append that was not taken whole."""
    sentence = _SENTENCES[kind].format(
        run=run,
        status=head.status,
        seq=head.seq,
        epoch=head.epoch,
        made_with=proposal.epoch,
        after=proposal.after,
        deciding=", ".join(sorted({tag(type(r.event)) for r in missed if type(r.event) in DECIDING})),
        path=path,
    )
    return kind(sentence, run=run, epoch=head.epoch, status=head.status, missed=missed, committed=committed)


def full(path: str) -> StoreFull:
    return StoreFull(_SENTENCES[StoreFull].format(path=path), path=path)


def not_found(run: str) -> RunNotFound:
    return RunNotFound(f"There is no run {run}.", run=run)


def exists(run: str) -> RunExists:
    return RunExists(f"There is another run {run}; choose another id.", run=run)


def fenced_creation(event: RunCreated) -> Fenced:
    where = f"below {event.parent}" if event.parent else f"of {event.agent}"
    return Fenced(
        f"Nothing was started {where}: the run above was cancelled, or a halt stands over it, which a reset lifts.",
        run=event.run,
    )


def over_parent(event: RunCreated) -> RunOver:
    return RunOver(f"Run {event.run} was not created: run {event.parent} above it is finished.", run=event.run)


def held(run: str, owner: Owner, deadline: float) -> LeaseHeld:
    return LeaseHeld(
        f"Run {run} is driven by process {owner.process} on {owner.host or 'this host'}; "
        "wait until its lease has run out, or claim it by force.",
        run=run,
        owner=owner,
        deadline=deadline,
    )


def stale_claim(run: str, epoch: int, current: int) -> StaleEpoch:
    return StaleEpoch(
        f"Run {run} has epoch {current} by now; it cannot be claimed with {epoch}.", run=run, epoch=current
    )


def broken_chain(run: str, seq: int) -> StoreDamaged:
    return StoreDamaged(
        f"Event {seq} of run {run} does not follow from the one before: it was changed, moved or taken away. "
        "Compare the journal with a backup or with exported evidence.",
        run=run,
        seq=seq,
    )


def closed() -> StoreUnavailable:
    return StoreUnavailable("The journal is closed.")
