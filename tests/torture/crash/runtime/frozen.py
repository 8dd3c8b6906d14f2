"""A driver is frozen beyond its lease, a second one takes its runs over, and the first one wakes.

Only the runtime's own process is stopped: its tools go on meanwhile, as they would beside a process that swaps, or a
virtual machine that was suspended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from checkrein.control.control import Control
from checkrein.core.enums import CallKind
from checkrein.core.events import CallAnswered, RunStarted
from checkrein.errors import LeaseHeld, Refused
from checkrein.journal import open_journal
from checkrein.journal.base import Journal, Lease
from checkrein.processes.identity import this_process
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import is_alive
from tests.torture.crash.crew import end, in_child, start
from tests.torture.crash.runtime import diary
from tests.torture.crash.runtime.check import Story, check_at_the_end, told
from tests.torture.crash.runtime.life import be_person, be_runtime
from tests.torture.crash.runtime.saga import Sum, events_in, stories
from tests.torture.crash.runtime.tools import goal, url

RUNS: Final = 3
LEASE_SECONDS: Final = 1.5
AT_RANDOM: Final = "at random"
AFTER_PERMIT: Final = "between permit and start"
CLAIMED_IN_VAIN: Final = "while somebody claims its runs in vain"
FOR_LONG: Final = "for long, while stops wait"
THEN_KILLED: Final = "and then killed"
LONG_SECONDS: Final = 6.0
"""Longer than a stop may wait for an event loop that hangs."""


class Thaw(Sum):
    """What came of one freeze, or of many."""

    freezes: int = 0
    taken_over: int = 0
    """Runs that a second driver took up while the first was frozen."""
    unknown: int = 0
    """Calls that were in flight then."""
    answered: int = 0
    """Calls for which the first driver answered after it woke."""
    unused: int = 0
    """Permits that it said it had never used."""
    late: int = 0
    """Calls that it began after it woke, all with older permits."""
    wrong: list[str] = msgspec.field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.freezes} freezes of a driver beyond its lease, {self.taken_over} runs taken over with "
            f"{self.unknown} calls in flight: {self.answered} answered, {self.unused} permits never used, "
            f"{self.late} calls begun after waking, wrong: {len(self.wrong)}"
        )


class Freeze:
    """One store, one freeze."""

    def __init__(self, where: Path, seed: int, moment: str) -> None:
        where.mkdir(parents=True)
        self._where = where
        self._errors = where / "errors"
        self._dice = Random(seed)
        self._seed = seed
        self._goals = [goal(f"g{n}", seed * 1000 + n, self._dice.randrange(4, 8)) for n in range(RUNS)]
        self._moment = moment
        self._wrong: list[str] = []

    def play(self) -> Thaw:
        stops_at = self._dice.randrange(1, 12) if self._moment in (AFTER_PERMIT, CLAIMED_IN_VAIN) else 0
        first = self._start("first", stops_at=stops_at)
        self._until_frozen(first)
        report = self._where / "frozen"
        in_child(partial(_note_unknown, self._where, report), self._errors)
        if self._moment == CLAIMED_IN_VAIN:
            in_child(partial(_claim_in_vain, self._where, self._dice.getrandbits(32)), self._errors)
        second = self._start("second")
        self._until(partial(self._are_taken_over, second), PATIENCE_SECONDS)
        if self._moment in (FOR_LONG, THEN_KILLED, CLAIMED_IN_VAIN) or self._dice.random() < 0.6:
            in_child(partial(_cancel_some, self._where, self._dice.getrandbits(32)), self._errors)
        time.sleep(LONG_SECONDS if self._moment == FOR_LONG else self._dice.uniform(0.0, 1.0))
        woke_at = 0.0 if self._moment == THEN_KILLED else time.time()
        os.kill(first, signal.SIGCONT if woke_at else signal.SIGKILL)
        person = start(partial(be_person, self._where, self._seed, RUNS, is_calm=True), self._errors)
        for pid, who in ((first, "first"), (second, "second")):
            code = end(pid, PATIENCE_SECONDS)
            if code != (-signal.SIGKILL if pid == first and self._moment == THEN_KILLED else 0):
                self._wrong.append(f"the {who} runtime ended with {code}")
        end(person)
        thaw = self._checked(first, woke_at, report)
        if self._errors.exists() and (text := self._errors.read_text()):
            thaw.wrong.append(f"somebody complained: {text[-3000:]}")
        if thaw.wrong:
            thaw.wrong.append(f"all of it is in {self._where}, seed {self._seed}, {self._moment}")
        return thaw

    def _start(self, life: str, *, stops_at: int = 0) -> int:
        how = partial(
            be_runtime,
            self._where,
            f"{self._where.name}-{life}",
            self._goals,
            stops_at=stops_at,
            lease_seconds=LEASE_SECONDS,
        )
        return start(how, self._errors)

    def _until_frozen(self, first: int) -> None:
        """Freeze it, but not with the store's lock in its hands: nobody else could take its runs up, or cancel them."""
        if self._moment in (AFTER_PERMIT, CLAIMED_IN_VAIN):
            self._until(lambda: _is_stopped(first) or not is_alive(first), PATIENCE_SECONDS)
        else:
            wanted = self._dice.randrange(10, 60)
            self._until(lambda: events_in(self._where) >= wanted or not is_alive(first), PATIENCE_SECONDS)
            os.kill(first, signal.SIGSTOP)
        self._until(lambda: _is_stopped(first) or not is_alive(first), PATIENCE_SECONDS)
        while is_alive(first) and _is_locked(self._where):
            os.kill(first, signal.SIGCONT)
            time.sleep(self._dice.uniform(0.0, 0.02))
            os.kill(first, signal.SIGSTOP)
            self._until(lambda: _is_stopped(first) or not is_alive(first), PATIENCE_SECONDS)

    def _are_taken_over(self, second: int) -> bool:
        report = self._where / "taken"
        in_child(partial(_note_taken, self._where, second, report), self._errors)
        return report.read_bytes() == b"all"

    @staticmethod
    def _until(holds: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not holds():
            time.sleep(0.001)

    def _checked(self, first: int, woke_at: float, unknown: Path) -> Thaw:
        report = self._where / "report"
        code = in_child(partial(_check, self._where, first, woke_at, unknown, report), self._errors)
        if code:
            return Thaw(freezes=1, wrong=[*self._wrong, f"the check itself ended with {code}"])
        thaw = msgspec.json.decode(report.read_bytes(), type=Thaw)
        thaw.wrong = [*self._wrong, *thaw.wrong]
        return thaw


def _is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def _is_locked(where: Path) -> bool:
    """Whether a process that stands still keeps everybody else from writing to the store."""
    with closing(sqlite3.connect(diary.store(where), timeout=0.3, isolation_level=None)) as db:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        db.execute("ROLLBACK")
    return False


def _note_unknown(where: Path, report: Path) -> int:
    found = {story.run: story.without_outcome() for story in asyncio.run(stories(where, {}))}
    report.write_bytes(msgspec.json.encode(found))
    return 0


def _note_taken(where: Path, second: int, report: Path) -> int:
    found = asyncio.run(stories(where, {}))
    is_all = len(found) == RUNS and all(_is_taken(story, second) or _is_over(story) for story in found)
    report.write_bytes(b"all" if is_all else b"some")
    return 0


def _is_taken(story: Story, second: int) -> bool:
    return any(isinstance(r.event, RunStarted) and r.event.pid == second for r in story.records)


def _is_over(story: Story) -> bool:
    return any(type(r.event).__name__ == "RunFinished" for r in story.records)


def _claim_in_vain(where: Path, seed: int) -> int:
    asyncio.run(_claim_all(where, Random(seed)))
    return 0


async def _claim_all(where: Path, dice: Random) -> None:
    """Claim every run once its lease is over, and come to nothing before it is taken over: die, or give it back."""
    async with await open_journal(url(where)) as journal:
        for row in await journal.runs(limit=100):
            while (lease := await _claimed(journal, row.id)) is None:
                await asyncio.sleep(0.02)
            if dice.random() < 0.5:
                await journal.release(lease)


async def _claimed(journal: Journal, run: str) -> Lease | None:
    try:
        return await journal.claim(run, this_process(), seconds=0.1)
    except LeaseHeld:
        return None


def _cancel_some(where: Path, seed: int) -> int:
    asyncio.run(_cancel(where, Random(seed)))
    return 0


async def _cancel(where: Path, dice: Random) -> None:
    """While the first driver is frozen: what it may still do must not be undone yet."""
    async with await open_journal(url(where)) as journal:
        control = Control(journal, this_process())
        for row in await journal.runs(limit=100):
            if dice.random() < 0.6:
                try:
                    await control.cancel(row.id, by="person", wait=0.3)
                except Refused:
                    continue


def _check(where: Path, first: int, woke_at: float, unknown: Path, report: Path) -> int:
    in_flight = msgspec.json.decode(unknown.read_bytes(), type=dict[str, list[tuple[str, int]]])
    thaw = Thaw(freezes=1)
    for story in asyncio.run(stories(where, {}, verify=True)):
        before = len(thaw.wrong)
        thaw.wrong += check_at_the_end(story)
        starts = [r.event for r in story.records if isinstance(r.event, RunStarted)]
        mine = {started.epoch for started in starts if started.pid == first}
        was_taken = any(started.pid != first for started in starts)
        answers = [r.event for r in story.records if isinstance(r.event, CallAnswered) and r.event.epoch in mine]
        thaw.answered += len(answers)
        thaw.unused += sum(not answer.began for answer in answers)
        thaw.late += sum(
            0 < woke_at < line.at and story.permits[line.call, line.attempt][1].epoch in mine for line in story.begins()
        )
        if woke_at:
            thaw.wrong += _taken_for_dead(story, mine)
        if was_taken:
            thaw.taken_over += 1
            thaw.unknown += len(in_flight.get(story.run, ()))
            if woke_at:
                thaw.wrong += _unanswered(story, in_flight.get(story.run, []), mine)
        if len(thaw.wrong) > before:
            thaw.wrong.append(told(story))
    report.write_bytes(msgspec.json.encode(thaw))
    return 0


def _taken_for_dead(story: Story, mine: set[int]) -> list[str]:
    """Calls of the frozen driver of which somebody has said that their maker is dead, which it never was."""
    return [
        f"{story.run}: the maker of {call} was taken for dead, and lived"
        for (call, attempt), finished in story.outcomes.items()
        for outcome in finished
        if outcome.owner_dead and (call, attempt) in story.permits and story.permits[call, attempt][1].epoch in mine
    ]


def _unanswered(story: Story, in_flight: list[tuple[str, int]], mine: set[int]) -> list[str]:
    """Calls of the frozen driver that were taken from it, whose fate it could have told and has not.

    A person may have been faster, but not here: the one of this play waits for the answer.
    """
    answered = {r.event.call for r in story.records if isinstance(r.event, CallAnswered)}
    found = []
    for call, attempt in in_flight:
        permit = story.permits[call, attempt][1]
        outcome = next(iter(story.outcomes.get((call, attempt), ())), None)
        is_taken = outcome is not None and outcome.abandoned and not outcome.owner_dead
        if permit.kind is CallKind.TOOL and permit.epoch in mine and is_taken and call not in answered:
            found.append(f"{story.run}: nobody ever answered for {call}")
    return found


def freeze(where: Path, seed: int, moment: str) -> Thaw:
    """One freeze, for a process of its own."""
    return Freeze(where, seed, moment).play()
