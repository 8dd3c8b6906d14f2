"""kill -9 at random moments, over and over, on one and the same journal.

Each life begins by recovering what the one before it left. Sometimes a second process appends to the same runs and is
killed as well. A kill cannot lose what the operating system has taken (that is for the power cuts); it shows that no
moment of the writer's life leaves something that the next one cannot read.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import pytest

from tests.torture.crash import witness
from tests.torture.crash.check import check_in_child, check_promises_in_child
from tests.torture.crash.crew import crew, end, in_child, start
from tests.torture.crash.shim import Folder
from tests.torture.crash.tally import Tally
from tests.torture.crash.witness import Promise
from tests.torture.crash.workload import FOR_EVER, run_meddler, run_workload

LONGEST_LIFE_SECONDS: Final = 0.06
"""From the start, or from the first promise."""
FIRST_PROMISE_SECONDS: Final = 2.0


class Toll(NamedTuple):
    """What a series of lives came to."""

    kills: int
    promised: int
    wrong: list[str]


def live_and_die(folder: Folder, kills: int, seed: int) -> Toll:
    """Lives on one journal until so many of them were killed; a cheap look after each, a full one at the end."""
    dice = Random(seed)
    killed = 0
    everything: list[Promise] = []
    for life in range(2 * kills):
        if killed >= kills:
            break
        codes, promises = _one_round(folder, f"k{life}", dice)
        killed += codes.count(-signal.SIGKILL)
        everything += promises
        wrong = [f"life {life} ended with {code}" for code in codes if code != -signal.SIGKILL]
        if wrong or in_child(partial(check_promises_in_child, folder.database, promises), folder.errors) != 0:
            return Toll(killed, len(everything), [*wrong, folder.errors.read_text()])
    if in_child(partial(check_in_child, folder.database, everything), folder.errors) != 0:
        return Toll(killed, len(everything), [folder.errors.read_text()])
    return Toll(killed, len(everything), [])


def _one_round(folder: Folder, life: str, dice: Random) -> tuple[list[int], list[Promise]]:
    """A process, sometimes with a second one that meddles with its runs: how they ended, what they were promised."""
    lists = [folder.root / f"witness-{life}", folder.root / f"witness-{life}-meddler"]
    works: list[Callable[[], int]] = [partial(run_workload, folder, life=life, calls=FOR_EVER, witness=lists[0])]
    if dice.random() < 0.4:
        works.append(partial(run_meddler, folder, life=f"{life}-meddler", witness=lists[1]))
    pids = [start(work, folder.errors) for work in works]
    if dice.random() < 0.7:
        _await_first_promise(lists[0])
    codes = [end(pid, dice.uniform(0.0, LONGEST_LIFE_SECONDS)) for pid in pids]
    promises = [promise for path in lists for promise in witness.read(path)]
    for path in lists:
        path.unlink(missing_ok=True)
    return codes, promises


def _await_first_promise(path: Path) -> None:
    """On a busy machine most lives would otherwise end before they had begun."""
    until = time.monotonic() + FIRST_PROMISE_SECONDS
    while time.monotonic() < until and not (path.exists() and path.stat().st_size):
        time.sleep(0.001)


def kill_many(folder: Path, kills: int, seed: int) -> list[Toll]:
    """Spread the kills over as many journals as there are cores."""
    with crew() as pool:
        journals = [Folder(folder / str(number)).made() for number in range(os.cpu_count() or 1)]
        series = [
            pool.submit(live_and_die, journal, kills // len(journals), seed + number)
            for number, journal in enumerate(journals)
        ]
        return [each.result() for each in series]


def report(tolls: Sequence[Toll]) -> Tally:
    kills, promised = sum(toll.kills for toll in tolls), sum(toll.promised for toll in tolls)
    return Tally("kills", f"on {len(tolls)} journals", kills, promised, sum(bool(toll.wrong) for toll in tolls))


def test_nothing_acknowledged_is_lost_by_kill_9(scratch, seed, summarise):
    tolls = kill_many(scratch / "few", kills=50, seed=seed)

    summarise(report(tolls))
    assert [toll.wrong for toll in tolls if toll.wrong] == []


@pytest.mark.torture
@pytest.mark.parametrize("part", range(2))
def test_nothing_acknowledged_is_lost_by_two_thousand_kills(scratch, seed, summarise, part):
    tolls = kill_many(scratch / str(part), kills=1_000, seed=seed + 100 * part)

    summarise(report(tolls))
    assert [toll.wrong for toll in tolls if toll.wrong] == []
