"""The sentences of a journal that says no: who, in which state, what was refused, what would work."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from checkrein.core.events import DECIDING, RunCreated
from checkrein.errors import (
    CheckreinError,
    Conflict,
    Fenced,
    JournalError,
    LeaseHeld,
    MisuseError,
    NameTaken,
    Refused,
    RunExists,
    RunNotFound,
    RunOver,
    StaleEpoch,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
    WorkerNotFound,
)
from checkrein.journal.admission import Head, Proposal, tag
from checkrein.journal.base import Owner, Recorded, Worker

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
    if not issubclass(kind, JournalError):
        return kind(sentence, run=run)
    return kind(sentence, run=run, epoch=head.epoch, status=head.status, missed=missed, committed=committed)


def full(path: str) -> StoreFull:
    return StoreFull(_SENTENCES[StoreFull].format(path=path), path=path)


def full_server(address: str) -> StoreFull:
    """A server keeps no room for stops: what needs some waits for it, whatever it is."""
    return StoreFull(
        f"The disk of the server with {address} is full: nothing that needs room is taken, verbs included, until there "
        "is some again; what was taken before is safe.",
        path=address,
    )


def live(run: str, status: str | None = None) -> Refused:
    return Refused(
        f"Run {run} is not over, or somebody still has it; cancel it and wait, then try again. It was left as it is.",
        code="run_live",
        run=run,
        status=status,
    )


def has_sub_runs(run: str) -> Refused:
    return Refused(f"Run {run} has sub-runs, which must go first. It was left as it is.", code="run_live", run=run)


def newest(run: str) -> Refused:
    return Refused(
        f"Run {run} is the newest of its store, or has the newest event there; it can go once another one has begun.",
        code="run_newest",
        run=run,
    )


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


def busy(event: RunCreated, live: str) -> Refused:
    return Refused(f"Thread {event.thread} is busy with run {live}.", code="thread_busy", run=live)


def held(run: str, owner: Owner, deadline: float) -> LeaseHeld:
    return LeaseHeld(
        f"Run {run} is driven by process {owner.process} on {owner.host or 'this host'}; "
        "wait until its lease has run out, or claim it by force.",
        run=run,
        owner=owner,
        deadline=deadline,
    )


def name_taken(worker: Worker) -> NameTaken:
    since = datetime.fromtimestamp(worker.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return NameTaken(
        f"There is a worker {worker.name} already, since {since} on {worker.owner.host or 'a host without a name'} "
        f"(process {worker.owner.pid}). Give this one another name, or end that one first.",
        worker=worker,
    )


def buried(worker: Worker) -> NameTaken:
    burial = worker.burial
    assert burial is not None
    return NameTaken(
        f"{burial.by} has said that worker {worker.name} is dead ({burial.reason}), and its calls were answered for. "
        "Start it again; this process may not drive any more.",
        code="worker_buried",
        worker=worker,
    )


def worker_not_found(name: str) -> WorkerNotFound:
    return WorkerNotFound(f"There is no worker {name}; `checkrein workers` lists those that there are.")


def check_worker(worker: Worker) -> None:
    """Raises `MisuseError`."""
    for what, text in (("name", worker.name), ("version", worker.version), ("engine", worker.engine)):
        if not text.isprintable() or len(text) > LONGEST_NAME:
            raise MisuseError(f"The {what} of a worker is at most {LONGEST_NAME} printable characters, not {text!r}.")
    if not worker.name:
        raise MisuseError("A worker needs a name.")


LONGEST_NAME: Final = 200


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
    return StoreUnavailable("The journal is closed.", is_closed=True)
