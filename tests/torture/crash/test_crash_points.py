"""Every call by which the journal changes its disk, as a point at which the process or the disk fails.

A life is killed (or its disk failed) at its first crash point, in another try at its second, and so on to the last;
each time the journal is then opened again, on a healthy disk, and compared with what the client had been promised.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.torture.crash import witness
from tests.torture.crash.check import check_in_child
from tests.torture.crash.crew import HUNG, end, in_child, start
from tests.torture.crash.shim import DEADLY, FAILING, Folder, Mode, arm, struck
from tests.torture.crash.tally import Tally
from tests.torture.crash.witness import Promise
from tests.torture.crash.workload import FINISHED, GAVE_UP, make_journal, run_hastily, run_meddler, run_workload


class Life(StrEnum):
    """What is going on when it happens."""

    MAKING = "making a journal"
    WORKING = "working"
    SHARING = "working beside a healthy process"
    HASTY = "promises written down too early, must lose"


LIVES: Final[Mapping[Life, Callable[[Folder], int]]] = {
    Life.MAKING: make_journal,
    Life.WORKING: run_workload,
    Life.SHARING: run_workload,
    Life.HASTY: run_hastily,
}
STRIDES: Final[Mapping[Life, int]] = {Life.MAKING: 48, Life.WORKING: 36, Life.SHARING: 72}
"""When there is little time: every how many-th crash point is tried. Which ones depends on the seed."""

MODES: Final = [mode for mode in Mode if mode in DEADLY | FAILING]

MOST_POINTS: Final = 3_000
"""A bound for the search of the last crash point; a life has a few hundred."""

ENDINGS: Final = {-signal.SIGKILL: "killed", FINISHED: "finished", GAVE_UP: "gave up", HUNG: "hung"}


class Trial(NamedTuple):
    life: Life
    mode: Mode
    point: int
    seed: int


class Verdict(NamedTuple):
    trial: Trial
    struck: str
    """The call that failed, such as "WRITE runs.db-wal"; empty when the life ended before its crash point."""
    ending: str
    promised: int
    wrong: list[str]


def attempt(trial: Trial, template: Path, scratch: Path) -> Verdict:
    """One life on a fresh disk up to its crash, and what is found afterwards."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Folder(Path(name)).made()
        if trial.life is not Life.MAKING:
            shutil.copyfile(template, folder.database)
        with _company(folder) if trial.life is Life.SHARING else nullcontext():
            code = in_child(partial(_live, trial, folder), folder.errors)
        hit = struck(folder.log)
        promises = [promise for path in folder.root.glob("witness*") for promise in witness.read(path)]
        return Verdict(
            trial,
            f"{hit.kind.name} {Path(hit.path).name}" if hit else "",
            ENDINGS.get(code, f"ended with {code}"),
            len(promises),
            [*_improper_ending(trial.mode, code, hit is not None, folder), *_look(folder, promises)],
        )


@contextmanager
def _company(folder: Folder) -> Iterator[None]:
    """Meanwhile another process, with a healthy disk, appends to the same runs."""
    other = start(partial(run_meddler, folder, life="m", witness=folder.root / "witness-meddler"), folder.errors)
    try:
        yield
    finally:
        end(other)


def _improper_ending(mode: Mode, code: int, is_struck: bool, folder: Folder) -> Iterator[str]:
    """A process that was not killed must end by itself, and say properly what it could not do."""
    proper = {FINISHED} if not is_struck else {-signal.SIGKILL} if mode in DEADLY else {FINISHED, GAVE_UP}
    if code not in proper:
        yield f"it ended with {code}: {folder.errors.read_text()}"


def _look(folder: Folder, promises: list[Promise]) -> Iterator[str]:
    found = folder.root / "found"
    if in_child(partial(check_in_child, folder.database, promises), found) != 0:
        yield found.read_text()


def _live(trial: Trial, folder: Folder) -> int:
    arm(folder, trial.mode, point=trial.point, seed=trial.seed)
    return LIVES[trial.life](folder)


class Bench:
    """Where the trials are made: a crew, a folder, and an empty journal to begin with."""

    def __init__(self, pool: ProcessPoolExecutor, scratch: Path, seed: int) -> None:
        folder = Folder(scratch / "template").made()
        assert pool.submit(make_journal, folder).result() == FINISHED
        self._try = partial(attempt, template=folder.database, scratch=scratch)
        self._pool = pool
        self._seed = seed

    def every_point(self, life: Life, mode: Mode, stride: int = 1) -> Iterator[Verdict]:
        """Try the crash points in turn, until a whole batch of them lies beyond the end of the life."""
        points = iter(range(1 + self._seed % stride, MOST_POINTS, stride))
        while batch := list(islice(points, 6)):
            verdicts = list(self._pool.map(self._try, [Trial(life, mode, point, self._seed) for point in batch]))
            yield from (verdict for verdict in verdicts if verdict.struck or verdict.wrong)
            if not any(verdict.struck for verdict in verdicts):
                return
        raise AssertionError(f"{life} has more than {MOST_POINTS} crash points")


def report(life: Life, mode: Mode, verdicts: list[Verdict]) -> Tally:
    calls = Counter(verdict.struck.split(" ")[0].lower() for verdict in verdicts)
    endings = Counter(verdict.ending for verdict in verdicts)
    detail = ", ".join(f"{count} {what}" for what, count in [*calls.most_common(), *endings.most_common()])
    promised, lost = sum(verdict.promised for verdict in verdicts), sum(bool(verdict.wrong) for verdict in verdicts)
    is_control = life is Life.HASTY
    return Tally("crash points", f"{life}, {mode}", len(verdicts), promised, lost, detail, is_control)


@pytest.fixture(scope="module")
def bench(pool: ProcessPoolExecutor, scratch: Path, seed: int) -> Bench:
    return Bench(pool, scratch, seed)


EVERY_LIFE: Final = pytest.mark.parametrize("life", [Life.MAKING, Life.WORKING, Life.SHARING])
EVERY_MODE: Final = pytest.mark.parametrize("mode", MODES)


@EVERY_LIFE
@EVERY_MODE
def test_nothing_acknowledged_is_lost_at_a_sample_of_crash_points(bench, summarise, life, mode):
    verdicts = list(bench.every_point(life, mode, stride=STRIDES[life]))

    summarise(report(life, mode, verdicts))
    assert [verdict for verdict in verdicts if verdict.wrong] == []


@pytest.mark.torture
@EVERY_LIFE
@EVERY_MODE
def test_nothing_acknowledged_is_lost_at_any_crash_point(bench, summarise, life, mode):
    verdicts = list(bench.every_point(life, mode))

    summarise(report(life, mode, verdicts))
    assert [verdict for verdict in verdicts if verdict.wrong] == []
    assert any(verdict.struck.startswith("WRITE runs.db") for verdict in verdicts)


def test_a_client_that_counts_on_what_is_not_acknowledged_yet_is_caught(bench, summarise):
    verdicts = list(bench.every_point(Life.HASTY, Mode.KILL, stride=3))

    summarise(report(Life.HASTY, Mode.KILL, verdicts))
    assert any(verdict.wrong for verdict in verdicts)
