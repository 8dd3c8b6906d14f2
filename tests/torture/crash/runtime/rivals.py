"""Several runtimes on one store compete for the same runs; then one of them is killed, and the others for its runs."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from checkrein.core.events import RunCreated, RunFinished, RunStarted
from checkrein.journal import open_journal
from tests.torture.crash.crew import end, in_child, start
from tests.torture.crash.runtime.check import Story, check_at_the_end
from tests.torture.crash.runtime.life import be_person, be_runtime
from tests.torture.crash.runtime.saga import events_in, stories
from tests.torture.crash.runtime.tools import goal, url

RUNS: Final = 20
PATIENCE_SECONDS: Final = 300.0


class Contest(msgspec.Struct):
    """How it went. `took` says how many runs each of them took up first."""

    took: list[int]
    twice: list[str]
    """Runs that were taken from one that lived."""
    orphans: int = 0
    """Unfinished runs of the one that was killed."""
    taken_over: int = 0
    calls: int = 0
    wrong: list[str] = []

    def __str__(self) -> str:
        return (
            f"{len(self.took)} runtimes and {RUNS} runs: they took up {self.took}, {len(self.twice)} twice; "
            f"after a kill -9 of one, {self.taken_over} of its {self.orphans} were taken over; "
            f"{self.calls} calls begun, wrong: {len(self.wrong)}"
        )


def compete(where: Path, seed: int, rivals: int) -> Contest:
    """For a process of its own."""
    where.mkdir(parents=True)
    errors, dice = where / "errors", Random(seed)
    goals = [goal(f"g{n}", seed * 1000 + n, 4) for n in range(RUNS)]
    in_child(partial(_create, where, goals), errors)
    all_of_them = [start(partial(be_runtime, where, f"{where.name}-{n}", goals), errors) for n in range(rivals)]
    wanted = RUNS + dice.randrange(6 * RUNS, 12 * RUNS)
    _until(lambda: events_in(where) >= wanted and events_in(where, "run.started") >= RUNS)
    victim, *heirs = dice.sample(all_of_them, rivals)
    os.kill(victim, signal.SIGKILL)
    report = where / "at the kill"
    in_child(partial(_look, where, all_of_them, victim, report), errors)
    contest = msgspec.json.decode(report.read_bytes(), type=Contest)
    person = start(partial(be_person, where, seed, RUNS, is_calm=True), errors)
    end(victim)
    contest.wrong += [f"one that was left ended with {code}" for heir in heirs if (code := end(heir, PATIENCE_SECONDS))]
    end(person)
    report = where / "at the end"
    in_child(partial(_check, where, victim, report, contest), errors)
    contest = msgspec.json.decode(report.read_bytes(), type=Contest)
    if text := errors.read_text():
        contest.wrong.append(f"somebody complained: {text[-3000:]}")
    return contest


def _create(where: Path, goals: list[str]) -> int:
    asyncio.run(_create_all(where, goals))
    return 0


async def _create_all(where: Path, goals: list[str]) -> None:
    async with await open_journal(url(where)) as journal:
        for number, wanted in enumerate(goals):
            run = f"r-{number}"
            created = RunCreated(id=f"{run}.created", at=time.time(), run=run, agent="torture", goal=wanted, thread=run)
            await journal.create(created)


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until and not holds():
        time.sleep(0.002)


def _starts(story: Story) -> list[RunStarted]:
    return [r.event for r in story.records if isinstance(r.event, RunStarted)]


def _is_over(story: Story) -> bool:
    return any(isinstance(r.event, RunFinished) for r in story.records)


def _look(where: Path, all_of_them: list[int], victim: int, report: Path) -> int:
    """Who had taken up what when one of them was killed. Others may already have begun to take over."""
    found = asyncio.run(stories(where, {}))
    first = Counter(starts[0].pid for story in found if (starts := _starts(story)))
    twice = [story.run for story in found if len(starts := _starts(story)) > 1 and starts[0].pid != victim]
    orphans = sum(not _is_over(story) for story in found if (starts := _starts(story)) and starts[0].pid == victim)
    contest = Contest([first[pid] for pid in all_of_them], twice, orphans=orphans)
    report.write_bytes(msgspec.json.encode(contest))
    return 0


def _check(where: Path, victim: int, report: Path, contest: Contest) -> int:
    for story in asyncio.run(stories(where, {}, verify=True)):
        contest.wrong += check_at_the_end(story)
        contest.calls += len(story.begins())
        drivers = [started.pid for started in _starts(story)]
        if drivers[0] == victim and drivers[-1] != victim:
            contest.taken_over += 1
        if len(drivers) > 2 or (len(drivers) == 2 and drivers[0] != victim):
            contest.wrong.append(f"{story.run} was taken up by {drivers}, of which only {victim} was killed")
    report.write_bytes(msgspec.json.encode(contest))
    return 0
