"""Power cuts: the disk as it may be left at any moment of a recorded life, compared with what was promised by then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.torture.crash import witness
from tests.torture.crash.check import check
from tests.torture.crash.crew import in_child
from tests.torture.crash.cuts import Cut, Examine, Left, Recording, cut_power, lay_out
from tests.torture.crash.disk import Entries
from tests.torture.crash.plain import examine_plain, run_plain
from tests.torture.crash.shim import Folder, Mode, arm
from tests.torture.crash.tally import Tally
from tests.torture.crash.witness import Promise
from tests.torture.crash.workload import FINISHED, GAVE_UP, make_journal, run_workload

BATCH: Final = 20
SYNCS: Final = 25
"""About as many times as the workload syncs the files of a journal that exists."""

Life = Callable[[Folder], int]
"""A workload: leaves a disk and a witness, and returns an exit code."""


def examine_journal(database: Path, promises: Sequence[Promise]) -> list[str]:
    try:
        return asyncio.run(check(database, promises))
    except Exception as error:
        return [f"it could not be opened and used: {error!r}"]


# -- in a worker


def record(life: Life, folder: Folder, mode: Mode = Mode.RECORD, point: int = 0) -> int:
    """Live once with the shim writing everything down, and perhaps failing an fsync."""
    return in_child(partial(_recorded, life, folder, mode, point), folder.errors)


def _recorded(life: Life, folder: Folder, mode: Mode, point: int) -> int:
    arm(folder, mode, point=point)
    return life(folder)


# -- recordings


def first_life(pool: ProcessPoolExecutor, folder: Folder, life: Life = run_workload) -> Recording:
    """A process on an empty disk, from its beginning to its end."""
    assert pool.submit(record, life, folder.made()).result() == FINISHED, folder.errors.read_text()
    return Recording(folder)


def next_life(pool: ProcessPoolExecutor, folder: Folder, earlier: Recording, dice: Random) -> Recording:
    """A process on a disk that a power cut left behind: it recovers, and goes on."""
    moment = Cut(dice.randint(len(earlier.ops) // 2, len(earlier.ops)), dice.choice(list(Entries)), 0)
    _, disk, promised = next(earlier.walk([moment]))
    files = disk.after_cut(dice)
    lay_out(files, folder.made())
    life = partial(run_workload, life=f"next{dice.getrandbits(32)}")
    assert pool.submit(record, life, folder).result() == FINISHED, folder.errors.read_text()
    return Recording(folder, before=files, promised=[*earlier.promised, *witness.parse(promised)])


def failing_life(pool: ProcessPoolExecutor, folder: Folder, mode: Mode, point: int) -> Recording:
    """A process on an empty journal; the fsync at `point` fails."""
    empty = Folder(folder.root / "empty").made()
    assert pool.submit(make_journal, empty).result() == FINISHED
    files = {"runs.db": empty.database.read_bytes()}
    lay_out(files, folder.made())
    code = pool.submit(record, run_workload, folder, mode, point).result()
    assert code in (FINISHED, GAVE_UP), folder.errors.read_text()
    return Recording(folder, before=files)


def make_cuts(
    pool: ProcessPoolExecutor,
    recording: Recording,
    count: int,
    seed: int,
    scratch: Path,
    examine: Examine = examine_journal,
) -> list[Left]:
    cuts = recording.cuts(count, seed)
    batches = [cuts[start : start + BATCH] for start in range(0, len(cuts), BATCH)]
    work = partial(cut_power, recording, examine=examine, scratch=scratch)
    return [left for batch in pool.map(work, batches) for left in batch]


def report(what: str, lefts: Sequence[Left], *, is_control: bool = False) -> Tally:
    promised, lost = sum(left.promised for left in lefts), sum(bool(left.wrong) for left in lefts)
    return Tally("power cuts", what, len(lefts), promised, lost, is_control=is_control)


# -- the harness itself


@pytest.mark.parametrize("life", [run_workload, partial(run_plain, synchronous="NORMAL")], ids=["journal", "plain"])
def test_the_log_accounts_for_every_byte_on_the_disk(pool, scratch, life, request):
    folder = Folder(scratch / request.node.name)

    recording = first_life(pool, folder, life)

    # SQLite's index of its log is written through a mapping of memory, where no log of writes can see it. It is made
    # anew after a crash, so nothing depends on what is in it.
    there = {path.name: path.read_bytes() for path in folder.disk.iterdir()}
    logged = recording.disk_at(len(recording.ops), Entries.STRICT).now()
    assert logged.keys() == there.keys()
    assert {n: b for n, b in logged.items() if not n.endswith("-shm")} == {
        n: b for n, b in there.items() if not n.endswith("-shm")
    }


def test_a_store_that_does_not_sync_its_commits_is_caught_losing_them(pool, scratch, seed, summarise):
    recording = first_life(pool, Folder(scratch / "normal"), partial(run_plain, synchronous="NORMAL"))

    lefts = make_cuts(pool, recording, 200, seed, scratch, examine_plain)

    summarise(report("plain SQLite with synchronous=NORMAL, must lose", lefts, is_control=True))
    assert sum(bool(left.wrong) for left in lefts) > 50


def test_a_store_that_syncs_its_commits_is_not_accused(pool, scratch, seed, summarise):
    recording = first_life(pool, Folder(scratch / "full"), partial(run_plain, synchronous="FULL"))

    lefts = make_cuts(pool, recording, 200, seed, scratch, examine_plain)

    summarise(report("plain SQLite with synchronous=FULL", lefts, is_control=True))
    assert [left for left in lefts if left.wrong] == []


# -- the journal


def cut_every_kind_of_life(
    pool: ProcessPoolExecutor, folder: Path, seed: int, count: int, summarise: Callable[[Tally], None]
) -> None:
    """A third of the cuts each in a first life, in lives that follow a power cut, and in some with a failed fsync."""
    dice = Random(seed)
    first = first_life(pool, Folder(folder / "first"))
    second = next_life(pool, Folder(folder / "second"), first, dice)
    third = next_life(pool, Folder(folder / "third"), second, dice)
    failing = [
        failing_life(pool, Folder(folder / f"failing-{number}"), Mode.RECORD_FILE, dice.randint(1, SYNCS))
        for number in range(4)
    ]
    lives = {"first life": [first], "after a power cut": [second, third], "with a failed fsync": failing}
    for name, recordings in lives.items():
        each = count // len(lives) // len(recordings)
        lefts = [left for recording in recordings for left in make_cuts(pool, recording, each, seed, folder)]
        summarise(report(name, lefts))
        assert [left for left in lefts if left.wrong] == []


def test_nothing_acknowledged_is_lost_by_a_power_cut(pool, scratch, seed, summarise):
    cut_every_kind_of_life(pool, scratch / "few", seed, 204, summarise)


def test_a_failed_fsync_of_the_directory_loses_nothing_either(pool, scratch, seed):
    lives = [
        failing_life(pool, Folder(scratch / f"folder-{point}"), Mode.RECORD_FOLDER, point) for point in range(1, 4)
    ]

    lefts = [left for recording in lives for left in make_cuts(pool, recording, 100, seed, scratch)]

    assert [left for left in lefts if left.wrong] == []


@pytest.mark.torture
@pytest.mark.parametrize("part", range(10))
def test_nothing_acknowledged_is_lost_by_two_thousand_power_cuts(pool, scratch, seed, summarise, part):
    cut_every_kind_of_life(pool, scratch / str(part), seed + part, 204, summarise)
