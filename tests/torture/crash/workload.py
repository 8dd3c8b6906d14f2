"""A little of everything a journal is asked for, by several tasks at once so that group commits happen.

Drivers create runs, claim them, and append permits, outcomes, effects and chunks. A person cancels one run in the
middle of it; its driver finds out by a refused permit, undoes, settles and finishes. A sub-run is fenced with it. An
operator halts an agent, and another one for a moment.
Meanwhile another connection checkpoints, as a second process would.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from msgspec import Raw, json

from checkrein.core import events as e
from checkrein.core.enums import CallKind, Outcome, Status, Verb
from checkrein.core.receipts import Receipt
from checkrein.errors import Fenced, RunNotFound, RunOver, StoreFull, StoreUnavailable
from checkrein.journal import open_journal
from checkrein.journal.base import Chunk, Owner
from tests.torture.crash.client import Client, GaveUp, now
from tests.torture.crash.shim import Folder
from tests.torture.crash.witness import Promise, Witness

FINISHED: Final = 0
GAVE_UP: Final = 10
"""Exit codes: everything was done; or the store said, with a proper error, that it cannot."""

DRIVERS: Final = 3
CALLS: Final = 3
FOR_EVER: Final = 1_000_000


def url(database: Path) -> str:
    return f"sqlite:///{database}"


def run_workload(folder: Folder, *, life: str = "a", calls: int = CALLS, witness: Path | None = None) -> int:
    """The whole workload in this process. Returns an exit code; anything improper is raised."""
    with Witness(witness or folder.witness) as promises:
        try:
            asyncio.run(_work(folder.database, promises, life, calls))
        except (GaveUp, StoreFull, StoreUnavailable) as error:
            print(repr(error), file=sys.stderr)
            return GAVE_UP
    return FINISHED


def make_journal(folder: Folder) -> int:
    """Only open a journal, which makes it if there is none, and close it again."""
    try:
        asyncio.run(_open_and_close(folder.database))
    except (StoreFull, StoreUnavailable) as error:
        print(repr(error), file=sys.stderr)
        return GAVE_UP
    return FINISHED


async def _open_and_close(database: Path) -> None:
    async with await open_journal(url(database)):
        pass


def run_meddler(folder: Folder, *, life: str, witness: Path) -> int:
    """A second process on the same journal, that appends to the runs which others drive. Goes on until killed."""
    with Witness(witness) as promises:
        asyncio.run(_meddle(folder.database, promises, life))
    return FINISHED


async def _meddle(database: Path, promises: Witness, life: str) -> None:
    async with await open_journal(url(database)) as journal:
        client = Client(journal, promises, Owner(process=life, pid=os.getpid()))
        for number in range(FOR_EVER):
            for row in await journal.runs(limit=4):
                await client.look(row.id)
                reason = e.ReasonAdded(id=f"{row.id}.{life}.{number}", at=now(), reason="r", by="p")
                await client.append(row.id, reason)


def run_hastily(folder: Folder) -> int:
    """The control: a client that writes down each promise before it was made."""
    with Witness(folder.witness) as promises:
        asyncio.run(_work_hastily(folder.database, promises))
    return FINISHED


async def _work_hastily(database: Path, promises: Witness) -> None:
    async with await open_journal(url(database)) as journal:
        await journal.create(e.RunCreated(id="created", at=now(), run="r", agent="churn", goal="g", thread="t"))
        for seq in range(2, 12):
            promises.saw(Promise("r", seq, f"e{seq}"))
            await journal.append("r", [e.ReasonAdded(id=f"e{seq}", at=now(), reason="r", by="p")], after=seq - 1)


async def _work(database: Path, witness: Witness, life: str, calls: int) -> None:
    """Do everything, and what one task had to give up does not stop the others. Raises the worst that happened."""
    async with await open_journal(url(database)) as journal:
        owner = Owner(process=life, pid=os.getpid())
        client, person = Client(journal, witness, owner), Client(journal, witness, owner)
        stopped = f"{life}-stopped"
        under_way = asyncio.Event()
        ends = await asyncio.gather(
            Driver(client, stopped, calls + 20, under_way).drive(),
            cancel(person, stopped, under_way),
            *(Driver(client, f"{life}-{number}", calls).drive() for number in range(DRIVERS - 1)),
            halt(person, life, under_way),
            checkpoint(database, under_way),
            return_exceptions=True,
        )
    errors = [end for end in ends if isinstance(end, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, GaveUp)):
        raise error


class Driver:
    """Drives one run for a number of calls, or until it is fenced."""

    def __init__(self, client: Client, run: str, calls: int, under_way: asyncio.Event | None = None) -> None:
        self._client = client
        self._run = run
        self._calls = calls
        self._under_way = under_way or asyncio.Event()
        self.epoch = 0

    async def drive(self) -> None:
        try:
            await self.start()
            for number in range(self._calls):
                await self.call(number)
                self._under_way.set()
        except Fenced:
            await self.settle()
        else:
            await self._client.snapshot(self._run)
            await self.finish()
        finally:
            self._under_way.set()

    async def take_over(self) -> None:
        """Become the driver of a run that is under way."""
        await self._client.look(self._run)
        self.epoch = (await self._client.claim(self._run)).epoch

    async def start(self) -> None:
        client, run = self._client, self._run
        await client.create(e.RunCreated(id=f"{run}.created", at=now(), run=run, agent="churn", goal="g", thread="t"))
        self.epoch = (await client.claim(run)).epoch
        started = e.RunStarted(id=f"{run}.started", at=now(), epoch=self.epoch, status=Status.RUNNING)
        await client.append(run, started, epoch=self.epoch)

    async def call(self, number: int) -> None:
        """A permit, a streamed answer, and the outcome."""
        call = self._name(number)
        await self.permit(number)
        await self._client.write_chunks(self._run, [Chunk(call, offset, "x" * 20) for offset in range(0, 60, 20)])
        await self.outcome(number)

    async def permit(self, number: int) -> None:
        """The permit of a call, and the effect that opens with it."""
        call = self._name(number)
        started = e.CallStarted(
            id=f"{call}.s", at=now(), call=call, kind=CallKind.TOOL, name="t", epoch=self.epoch, effect=call
        )
        opened = e.EffectOpened(id=f"{call}.o", at=now(), effect=call, what="a draft", undo="m:f", key=call)
        await self._client.append(self._run, started, opened, epoch=self.epoch)

    async def outcome(self, number: int) -> None:
        """How a call ended. Every third outcome is larger than a page of the database."""
        call, text = self._name(number), "r" * (9_000 if number % 3 == 0 else 90)
        result = Raw(json.encode(text))
        finished = e.CallFinished(id=f"{call}.f", at=now(), call=call, outcome=Outcome.COMPLETED, result=result)
        settled = e.EffectSettled(id=f"{call}.e", at=now(), effect=call)
        await self._client.append(self._run, finished, settled, epoch=self.epoch)

    def _name(self, number: int) -> str:
        return f"{self._run}.c{number}"

    async def settle(self) -> None:
        """The run was cancelled: undo the last effect, then settle the verb and finish in one append."""
        run, accepted = self._run, f"{self._run}.cancel"
        seq = self._client.seen[run]
        receipt = Receipt(verb=Verb.CANCEL, run=run, status=Status.CANCELLED, seq=seq, by="p")
        await self._client.append(
            run, e.EffectUndone(id=f"{run}.undone", at=now(), effect=f"{run}.c0"), epoch=self.epoch
        )
        settled = e.VerbSettled(
            id=f"{run}.settled", at=now(), accepted=accepted, verb=Verb.CANCEL, status=Status.CANCELLED, receipt=receipt
        )
        finished = e.RunFinished(id=f"{run}.finished", at=now(), status=Status.CANCELLED)
        await self._client.append(run, settled, finished, epoch=self.epoch)

    async def finish(self) -> None:
        finished = e.RunFinished(id=f"{self._run}.finished", at=now(), status=Status.COMPLETED)
        await self._client.append(self._run, finished, epoch=self.epoch)


async def cancel(person: Client, run: str, under_way: asyncio.Event) -> None:
    """Somebody without a lease stops a run that has a sub-run; after that it can have no other."""
    await under_way.wait()
    try:
        await person.look(run)
        await person.create(_sub_run(run, "sub"))
        await person.append(run, cancelled(run))
        await person.create(_sub_run(run, "late"))
    except (Fenced, RunOver, RunNotFound):
        return  # fenced, as it must be; or it ended before, or never began, because its own appends failed
    raise AssertionError(f"a sub-run of {run} was created after its cancel was acknowledged")


def cancelled(run: str) -> e.VerbAccepted:
    return e.VerbAccepted(id=f"{run}.cancel", at=now(), verb=Verb.CANCEL, status=Status.CANCELLING, by="p")


def _sub_run(parent: str, name: str) -> e.RunCreated:
    run = f"{parent}-{name}"
    return e.RunCreated(
        id=f"{run}.created", at=now(), run=run, agent="churn", goal="g", thread="t", parent=parent, root=parent
    )


async def halt(operator: Client, life: str, under_way: asyncio.Event) -> None:
    """One agent is halted for good, another only for a moment."""
    await under_way.wait()
    await operator.halt(f"{life}-halted")
    await operator.halt(f"{life}-released")
    await operator.reset(f"{life}-released")


async def checkpoint(database: Path, under_way: asyncio.Event) -> None:
    """What another process does to the write-ahead log, at a time of its own choosing. It may fail."""
    await under_way.wait()
    with suppress(sqlite3.Error), closing(sqlite3.connect(database, timeout=0.05)) as connection:
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
