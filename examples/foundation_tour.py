"""A tour of the foundation: the core of a run and the journal it is written to, without a runtime above them.

This file plays the driver itself: it asks for permits, reports outcomes and does as it is ordered. Everything else is
real: an SQLite journal in a temporary folder, other processes on the same file, kill -9.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from checkrein.asyncutil import kill
from checkrein.core import commands as c
from checkrein.core.consequences import controls
from checkrein.core.decide import decide
from checkrein.core.decide.verdict import Refusal
from checkrein.core.effects import Effect
from checkrein.core.enums import Answer, CallKind, Outcome
from checkrein.core.events import Event, PlanPublished, RunCreated, StepFinished, StepStarted
from checkrein.core.evolve import evolve
from checkrein.core.orders import Abort, Settle, UndoEffect, orders
from checkrein.core.receipts import Receipt
from checkrein.core.state import State
from checkrein.errors import Conflict, StoreDamaged
from checkrein.journal import open_journal
from checkrein.journal.base import Journal, Owner

PLAN = ("Fetch customer list", "Join against MRR table", "Score churn risk", "Write summary memo")


class Driver:
    """As much of a driver as this tour needs: a lease, a state, and a way to carry out commands."""

    def __init__(self, journal: Journal, run: str, name: str) -> None:
        self.journal, self.run = journal, run
        self.owner = Owner(process=f"{name}-{os.getpid()}", host="here", pid=os.getpid())
        self.state: State
        self.epoch = 0
        self._count = 0

    async def claim(self, *, owner_dead: bool = False) -> None:
        lease = await self.journal.claim(self.run, self.owner, seconds=5, force=owner_dead)
        self.epoch = lease.epoch
        self.state = await self.journal.load(self.run)
        over = frozenset(range(self.epoch) if owner_dead else ())
        await self.do(c.TakeOver(id=self.id(), at=time.time(), epoch=self.epoch, over=over))

    async def do(self, command: c.Command) -> tuple[Event, ...]:
        verdict = decide(self.state, command)
        if not isinstance(verdict, tuple):
            raise RuntimeError(verdict)
        return await self.append(*verdict)

    async def append(self, *events: Event) -> tuple[Event, ...]:
        appended = await self.journal.append(self.run, events, after=self.state.seq, epoch=self.epoch)
        for record in (*appended.missed, *appended.events):
            self.state = evolve(self.state, record.event, record.seq)
        return events

    async def begin(self, call: str, name: str, undo: str | None = None, *, effect: bool = True) -> None:
        opens = Effect(id=call, what=name, undo=undo) if effect else None
        kind = CallKind.TOOL if effect else CallKind.MODEL
        await self.do(
            c.StartCall(id=self.id(), at=time.time(), epoch=self.epoch, call=call, kind=kind, name=name, opens=opens)
        )

    async def report(self, call: str, outcome: Outcome = Outcome.COMPLETED) -> None:
        await self.do(c.FinishCall(id=self.id(), at=time.time(), call=call, outcome=outcome))

    def id(self) -> str:
        self._count += 1
        return f"{self.owner.process}-{self._count}"


async def new_run(journal: Journal, run: str, goal: str) -> None:
    await journal.create(RunCreated(id=f"{run}-created", at=time.time(), run=run, agent="churn", goal=goal, thread=run))


# -- what is shown


def title(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}")


def say(text: str) -> None:
    print(f"  {text}")


def show_controls(state: State, effects: tuple[Effect, ...]) -> None:
    for verb, control in controls(state, effects).items():
        say(f"{'●' if control.enabled else '○'} {verb.value:9} {control.consequence}")


def show_receipt(receipt: Receipt) -> None:
    timing = receipt.timing_ms
    say(f"receipt   {receipt.verb.value} by {receipt.by}, “{receipt.reason}”: the run is {receipt.status.value}")
    for call in receipt.calls:
        say(f"stopped   {call.name}: {call.now}, {call.ms:.0f} ms after it was asked for")
    for effect in receipt.effects:
        say(f"effect    {effect.what}: {effect.now.value}{f' ({effect.why})' if effect.why else ''}")
    say(f"timing    accepted {timing.accepted:.1f} ms, settled {timing.settled:.1f} ms after the click")


# -- the three scenes


async def a_cancel_from_another_process(journal: Journal, path: str) -> None:
    title("1. A run, its controls, and a cancel from another process")
    await new_run(journal, "churn-1", "Which customers will churn?")
    driver = Driver(journal, "churn-1", "driver")
    await driver.claim()
    await driver.append(PlanPublished(id=driver.id(), at=time.time(), steps=PLAN))
    for number, name in enumerate(PLAN[:2]):
        await driver.append(StepStarted(id=driver.id(), at=time.time(), step=number, title=name))
        await driver.append(StepFinished(id=driver.id(), at=time.time(), step=number))
    await driver.begin("c1", "draft", "drafts:discard")
    await driver.report("c1")
    await driver.begin("c2", "lock", "locks:release")
    await driver.report("c2")
    await driver.begin("c3", "score_churn", effect=False)
    show_controls(driver.state, await journal.effects("churn-1"))

    follower = journal.follow("churn-1", after=driver.state.seq)
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, "cancel", path, "churn-1")
    accepted = await anext(follower)
    noticed = time.time() - accepted.event.at
    say(f"another process cancelled it; its driver knew {noticed * 1000:.0f} ms later")
    try:
        await driver.begin("c4", "write_memo", effect=False)
    except Conflict as conflict:
        say(f"a permit asked for in ignorance is refused: {conflict.message}")
    driver.state = await journal.load("churn-1")
    refusal = decide(
        driver.state,
        c.StartCall(id="x", at=0, epoch=driver.epoch, call="c4", kind=CallKind.MODEL, name="write_memo"),
    )
    assert isinstance(refusal, Refusal)
    say(f"and one asked for in full knowledge: {refusal.message}")
    await obey(driver)
    await process.wait()
    settled = [r.event for r in await journal.read("churn-1") if getattr(r.event, "receipt", None)]
    show_receipt(settled[-1].receipt)  # type: ignore[attr-defined]


async def obey(driver: Driver) -> None:
    """Do what the state orders, until it orders nothing more: abort, undo newest first, settle."""
    while True:
        effects = await driver.journal.effects(driver.run)
        due = orders(driver.state, effects, at=time.time())
        if not due:
            return
        match due[0]:
            case Abort(call=call):
                await driver.report(call, Outcome.ABORTED)
            case UndoEffect(effect=effect):
                stamp, at = driver.id(), time.time()
                await driver.do(c.StartUndo(id=stamp, at=at, epoch=driver.epoch, effect=effect.id, effects=effects))
                await driver.report(f"undo:{effect.id}")
            case Settle(verb=verb):
                stamp, at = driver.id(), time.time()
                await driver.do(c.SettleVerb(id=stamp, at=at, accepted=verb.id, effects=effects))
            case other:
                raise RuntimeError(f"this tour does not know how to {other}")


async def a_crash_in_the_middle_of_a_call(journal: Journal, path: str) -> None:
    title("2. A driver is killed with -9 in the middle of sending an invoice")
    await new_run(journal, "churn-2", "Bill the customers who stay")
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, "drive", path, "churn-2")
    async for record in journal.follow("churn-2"):
        if getattr(record.event, "name", "") == "send_invoice":
            break
    await kill(process)
    say(f"process {process.pid} had the permit for send_invoice and is gone; did the customer get it?")
    driver = Driver(journal, "churn-2", "second")
    await driver.claim(owner_dead=True)
    for waiting in driver.state.waiting():
        say(f"the next driver does not guess, and does not send it again. It waits: {waiting.what}")
    answer = c.ResolveCall(id="word", at=time.time(), by="a person", call="c1", answer=Answer.HAPPENED)
    await driver.do(answer)
    say(f"a person looked: it happened. The run goes on; send_invoice is tried again: {bool(driver.state.again)}")


async def a_record_that_was_touched(journal: Journal, path: str) -> None:
    title("3. The record is tamper-evident")
    for run in ("churn-1", "churn-2"):
        say(f"{run}: a chain of {await journal.verify(run)} events, and every hash follows")
    forged = f"{path}.forged"
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(forged)) as target:
        source.backup(target)
        target.execute(
            "UPDATE events SET body = CAST(replace(CAST(body AS TEXT), 'cancel', 'resume') AS BLOB) "
            "WHERE CAST(body AS TEXT) LIKE '%verb.accepted%'"
        )
        target.commit()
    async with await open_journal(f"sqlite:///{forged}") as copy:
        try:
            await copy.verify("churn-1")
        except StoreDamaged as error:
            say(f"in a copy somebody turned the cancel into a resume: {error.message}")


# -- the other processes


async def cancel(path: str, run: str) -> None:
    async with await open_journal(f"sqlite:///{path}") as journal:
        clicked = time.time()
        state = await journal.load(run)
        verdict = decide(
            state, c.CancelRun(id="click-1", at=time.time(), asked_at=clicked, by="a person", reason="wrong path")
        )
        assert isinstance(verdict, tuple)
        await journal.append(run, verdict, after=state.seq)


async def drive(path: str, run: str) -> None:
    async with await open_journal(f"sqlite:///{path}") as journal:
        driver = Driver(journal, run, "first")
        await driver.claim()
        await driver.begin("c1", "send_invoice")
        await asyncio.sleep(60)


async def tour() -> None:
    folder = Path(tempfile.mkdtemp(prefix="checkrein-tour-"))
    path = str(folder / "runs.db")
    try:
        async with await open_journal(f"sqlite:///{path}") as journal:
            await a_cancel_from_another_process(journal, path)
            await a_crash_in_the_middle_of_a_call(journal, path)
            await a_record_that_was_touched(journal, path)
    finally:
        shutil.rmtree(folder)
    title("That is the foundation: a run that cannot be misread, and a journal that never loses.")
    say("The runtime and the page will stand on it. `make test` proves what you have just seen.")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["cancel", path, run]:
            asyncio.run(cancel(path, run))
        case ["drive", path, run]:
            asyncio.run(drive(path, run))
        case []:
            asyncio.run(tour())
        case _:
            sys.exit("usage: foundation_tour.py")
