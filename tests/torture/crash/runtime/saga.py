"""One store, a few runs, and many deaths: a runtime is killed and started again until its runs are finished."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, Self

import msgspec

from checkrein.journal import open_journal
from tests.support.witness import is_alive
from tests.torture.crash.crew import HUNG, end, in_child, start
from tests.torture.crash.runtime import diary
from tests.torture.crash.runtime.check import Attempt, Story, check_always, check_at_the_end
from tests.torture.crash.runtime.life import be_person, be_runtime
from tests.torture.crash.runtime.tools import goal, url

RUNS: Final = 4
MOST_SECONDS: Final = 1.5
"""A life that has not met its moment by then is killed anyway."""
LAST_LIFE_SECONDS: Final = 90.0
GONE_SECONDS: Final = 10.0
"""How long a loaded machine may take to end what a dead runtime has left."""


class Sum(msgspec.Struct):
    """Counts that add up, each with its like."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


class Toll(Sum):
    """What happened in a saga, or in many."""

    sagas: int = 0
    kills: int = 0
    lives: int = 0
    runs: int = 0
    calls: int = 0
    """Begins of tools, by their diary."""
    undos: int = 0
    unknown: int = 0
    """Calls without an outcome when their runtime was killed."""
    in_doubt: int = 0
    """How many of those are shown as in doubt."""
    verbs: int = 0
    wrong: list[str] = []

    def __str__(self) -> str:
        return (
            f"{self.kills} kills of a runtime in {self.sagas} stores, {self.runs} runs, {self.verbs} verbs: "
            f"{self.calls} calls and {self.undos} undos begun, {self.in_doubt} of {self.unknown} unknown outcomes "
            f"shown as in doubt, wrong: {len(self.wrong)}"
        )


class Saga:
    def __init__(self, where: Path, seed: int) -> None:
        where.mkdir(parents=True)
        self._where = where
        self._errors = where / "errors"
        self._unknown = where / "unknown"
        self._dice = Random(seed)
        self._goals = [goal(f"g{n}", seed * 1000 + n, self._dice.randrange(8, 15)) for n in range(RUNS)]
        self._seed = seed
        self._toll = Toll(sagas=1)

    def play(self, kills: int) -> Toll:
        """Kill up to so many times, then let it finish in peace, and check."""
        while self._toll.kills < kills and self._one_life():
            if not self._checked(is_end=False):
                return self._toll
        self._last_life()
        self._checked(is_end=True)
        self._complain()
        return self._toll

    # -- lives

    def _one_life(self) -> bool:
        """A life that ends with kill -9; False when it came to its own end before that."""
        dice, toll = self._dice, self._toll
        toll.lives += 1
        life = f"{self._where.name}-{toll.lives}"
        runtime = start(partial(be_runtime, self._where, life, self._goals), self._errors)
        person: int | None = None
        if dice.random() < 0.7:
            person = self._start_person(dice.getrandbits(32), is_calm=False)
        self._moment(runtime)()
        code = end(runtime)
        if person is not None:
            end(person, dice.choice((0.0, 0.0, 0.05)))
        if code == 0:
            return False
        if code != -signal.SIGKILL:
            toll.wrong.append(f"life {life} ended with {code}")
        toll.kills += 1
        self._note_unknown()
        if dice.random() < 0.5:
            self._await_end_of(life)
        return True

    def _last_life(self) -> None:
        life = f"{self._where.name}-last"
        runtime = start(partial(be_runtime, self._where, life, self._goals), self._errors)
        person = self._start_person(self._seed, is_calm=True)
        code = end(runtime, LAST_LIFE_SECONDS)
        end(person)
        if code:
            self._toll.wrong.append(f"the last life ended with {code}: the runs could not be finished")
        for number in range(1, self._toll.lives + 1):
            self._await_end_of(f"{self._where.name}-{number}")
        self._await_end_of(life)

    def _start_person(self, seed: int, *, is_calm: bool) -> int:
        return start(partial(be_person, self._where, seed, len(self._goals), is_calm=is_calm), self._errors)

    # -- moments

    def _moment(self, runtime: int) -> Callable[[], None]:
        """How the moment of death is chosen: by the clock, by the journal's progress, or by what a tool just wrote."""
        dice = self._dice
        kind = dice.choice(("clock", "progress", "progress", "line", "line"))
        if kind == "clock":
            return partial(self._wait, runtime, lambda: False, dice.uniform(0, 0.9), 0.0)
        after = dice.uniform(0, 0.01) if dice.random() < 0.7 else 0.0
        if kind == "progress":
            wanted = events_in(self._where) + dice.randrange(1, 30)
            return partial(self._wait, runtime, lambda: events_in(self._where) >= wanted, MOST_SECONDS, after)
        word, seen = dice.choice(("begin", "tick", "done", "undo", "undone")), len(diary.read(self._where))
        some = dice.randrange(1, 4)
        return partial(
            self._wait,
            runtime,
            lambda: sum(line.what == word for line in diary.read(self._where)[seen:]) >= some,
            MOST_SECONDS,
            after,
        )

    def _wait(self, runtime: int, has_come: Callable[[], bool], seconds: float, after: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not has_come() and is_alive(runtime):
            time.sleep(0.001)
        time.sleep(after)

    # -- after a death

    def _note_unknown(self) -> None:
        """Keep, from what the killed runtime left, of which calls nobody can know the outcome."""
        in_child(partial(_note_unknown, self._where, self._unknown), self._errors)

    def _await_end_of(self, life: str) -> None:
        """By the process table: nothing of that life, and no process that its tools wrote about, outlives it."""
        until = time.monotonic() + GONE_SECONDS
        while left := [*diary.processes_of(life), *self._children()]:
            if time.monotonic() > until:
                self._toll.wrong.append(f"of life {life} there are left: {left}")
                for pid in left:
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                return
            time.sleep(0.01)

    def _children(self) -> list[int]:
        return [line.pid for line in diary.read(self._where) if line.what == "child" and is_alive(line.pid)]

    def _checked(self, *, is_end: bool) -> bool:
        """Whether all is well so far."""
        report = self._where / "report"
        code = in_child(partial(_check, self._where, self._unknown, report, is_end), self._errors)
        if code != 0:
            self._toll.wrong.append(f"the check itself {'hung' if code == HUNG else f'ended with {code}'}")
            return False
        told = msgspec.json.decode(report.read_bytes(), type=Toll)
        told.wrong = [*self._toll.wrong, *told.wrong]
        told.sagas, told.kills, told.lives = self._toll.sagas, self._toll.kills, self._toll.lives
        self._toll = told
        return not told.wrong

    def _complain(self) -> None:
        if self._errors.exists() and (text := self._errors.read_text()):
            self._toll.wrong.append(f"somebody complained: {text[-3000:]}")
        if self._toll.wrong:
            self._toll.wrong.append(f"all of it is in {self._where}, seed {self._seed}")


def events_in(where: Path, type: str = "") -> int:
    """How many events all runs have together, of this type or of any."""
    with suppress(sqlite3.Error):
        path = diary.store(where)
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as db:
            return int(
                db.execute("SELECT count(*) FROM events WHERE instr(body, ?)", (f'"type":"{type}',)).fetchone()[0]
            )
    return 0


def _note_unknown(where: Path, path: Path) -> int:
    known = _unknown(path)
    for story in asyncio.run(stories(where, known)):
        known[story.run] = [*known.get(story.run, ()), *story.without_outcome()]
    path.write_bytes(msgspec.json.encode(known))
    return 0


def _unknown(path: Path) -> dict[str, list[Attempt]]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, list[Attempt]]) if path.exists() else {}


def _check(where: Path, unknown: Path, report: Path, is_end: bool) -> int:
    found = asyncio.run(stories(where, _unknown(unknown), verify=is_end))
    check = check_at_the_end if is_end else check_always
    toll = Toll(runs=len(found), wrong=[wrong for story in found for wrong in check(story)])
    for story in found:
        toll.calls += len(story.begins())
        toll.undos += sum(line.what == "undo" for line in story.lines)
        toll.unknown += len(story.unknown)
        toll.in_doubt += sum(
            any(finished.outcome == "in_doubt" for finished in story.outcomes.get(attempt, ()))
            for attempt in story.unknown
        )
        toll.verbs += sum(type(record.event).__name__ == "VerbAccepted" for record in story.records)
    report.write_bytes(msgspec.json.encode(toll))
    return 0


async def stories(where: Path, unknown: dict[str, list[Attempt]], *, verify: bool = False) -> list[Story]:
    """Every run of a store. With `verify` its chain is walked too, and a broken one raises."""
    lines = diary.read(where)
    found = []
    async with await open_journal(url(where)) as journal:
        for row in await journal.runs(limit=1000):
            if verify:
                await journal.verify(row.id)
            records = await journal.read(row.id)
            effects = await journal.effects(row.id)
            found.append(Story(row.id, records, lines, unknown.get(row.id, ()), effects))
    return found


def play(where: Path, seed: int, kills: int) -> Toll:
    """One saga, for a process of its own."""
    return Saga(where, seed).play(kills)
