"""A disk that is really full: a small one in memory, filled to the last byte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkrein.core.enums import Status, Verb
from checkrein.core.events import ReasonAdded, VerbAccepted
from checkrein.errors import StoreFull
from checkrein.journal import Chunk, SqliteJournal
from checkrein.journal.admission import KEPT_WORDS
from checkrein.journal.sqlite import disk_reserve
from tests.journal.build import created, driven, ended, opened, outcome, permit, settled, undo, undone, verb
from tests.support.small_disk import fill, small_disk
from tests.support.snapshots import save_snapshot

pytestmark = pytest.mark.anyio


@pytest.fixture
def disk() -> Iterator[Path]:
    with small_disk(6) as folder:
        yield folder


async def until_full(journal: SqliteJournal, run: str) -> int:
    """Permit calls until the disk is full; return the run's last seq."""
    seq = len(await journal.read(run))
    for number in range(5_000):
        try:
            appended = await journal.append(run, [permit(f"{run}-{number}", key="k" * 400)], after=seq, epoch=1)
        except StoreFull:
            return seq
        seq = appended.events[-1].seq
    raise AssertionError("the disk was never full")


async def test_on_a_full_disk_work_is_refused_and_a_stop_is_recorded_to_its_end(disk: Path):
    path = disk / "runs.db"
    async with SqliteJournal(str(path)) as journal:
        await driven(journal)
        await journal.append("r", [permit(), opened()], after=1, epoch=1)
        fill(disk)
        seq = await until_full(journal, "r")

        with pytest.raises(StoreFull) as refused:
            await journal.create(created("s"))
        assert str(path) in str(refused.value)
        with pytest.raises(StoreFull):
            await journal.write_chunks({"r": [Chunk("c1", 0, "text" * 100)]})
        with pytest.raises(StoreFull):
            await save_snapshot(journal, await journal.load("r"))

        cancel = verb(Verb.CANCEL)
        await journal.append("r", [outcome()], after=seq, epoch=1)
        await journal.append("r", [cancel], after=seq + 1)
        await journal.append("r", [undo()], after=seq + 2, epoch=1)
        await journal.append("r", [outcome("undo:c1"), undone()], after=seq + 3, epoch=1)
        end = [settled(cancel, Status.CANCELLED), ended(Status.CANCELLED)]
        await journal.append("r", end, after=seq + 5, epoch=1)

        assert await journal.verify("r") == seq + 7
    async with SqliteJournal(str(path)) as journal:
        assert (await journal.load("r")).status is Status.CANCELLED


async def test_many_outcomes_fit_into_the_reserve(disk: Path):
    async with SqliteJournal(str(disk / "runs.db")) as journal:
        await driven(journal)
        fill(disk)
        seq = await until_full(journal, "r")

        for number in range(100):
            await journal.append("r", [outcome(f"c{number}", "x" * 300)], after=seq + number, epoch=1)

        assert await journal.verify("r") == seq + 100


async def test_words_do_not_draw_on_the_reserve_and_a_stop_is_taken_without_its_own(disk: Path):
    async with SqliteJournal(str(disk / "runs.db")) as journal:
        await driven(journal)
        fill(disk)
        seq = await until_full(journal, "r")

        long = "why " * 2_500
        for number in range(200):
            added = ReasonAdded(id=f"why{number}", at=1.0, reason=long, by="p")
            with pytest.raises(StoreFull):
                await journal.append("r", [added], after=seq)
            with pytest.raises(StoreFull):
                instructed = verb(Verb.REDIRECT, id=f"redirect{number}", instruction=long)
                await journal.append("r", [instructed], after=seq)
        cancel = verb(Verb.CANCEL, id="cancel", reason=long)
        first = await journal.append("r", [cancel], after=seq)
        again = await journal.append("r", [cancel], after=seq)
        end = [settled(cancel, Status.CANCELLED), ended(Status.CANCELLED)]
        await journal.append("r", end, after=seq + 1, epoch=1)

        assert first.events == again.events
        (record,) = first.events
        assert isinstance(record.event, VerbAccepted)
        assert record.event.reason == long[:KEPT_WORDS] + "…"
        assert await journal.verify("r") == seq + 3


async def test_words_are_whole_while_there_is_room(disk: Path):
    async with SqliteJournal(str(disk / "runs.db")) as journal:
        await driven(journal)
        asked = verb(Verb.CANCEL, reason="why " * 2_500)

        appended = await journal.append("r", [asked], after=1)

        assert appended.events[0].event == asked


async def test_nobody_is_told_anything_that_is_not_so_when_even_the_reserve_is_used_up(disk: Path):
    async with SqliteJournal(str(disk / "runs.db")) as journal:
        await driven(journal)
        fill(disk)
        seq = await until_full(journal, "r")
        taken = 0
        with pytest.raises(StoreFull):
            for number in range(10_000):
                await journal.append("r", [outcome(f"c{number}", "x" * 3_000)], after=seq + number, epoch=1)
                taken += 1

        assert len(await journal.read("r")) == seq + taken
        assert await journal.verify("r") == seq + taken


async def test_work_goes_on_when_there_is_room_again_and_the_reserve_comes_back(
    disk: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(disk_reserve, "BETWEEN_TRIES_SECONDS", 0.0)
    async with SqliteJournal(str(disk / "runs.db")) as journal:
        await driven(journal)
        ballast = fill(disk)
        seq = await until_full(journal, "r")
        assert not (disk / "runs.db-reserve").exists()

        ballast.unlink()
        await journal.append("r", [permit("later")], after=seq, epoch=1)

        assert (disk / "runs.db-reserve").stat().st_size == disk_reserve.SIZE


async def test_a_journal_opened_on_a_full_disk_can_be_read_and_stopped(disk: Path):
    path = disk / "runs.db"
    async with SqliteJournal(str(path)) as journal:
        await driven(journal)
    fill(disk)

    async with SqliteJournal(str(path)) as journal:
        with pytest.raises(StoreFull):
            await journal.append("r", [permit()], after=1, epoch=1)
        await journal.append("r", [verb(Verb.CANCEL)], after=1)


async def test_a_disk_that_others_have_filled_to_the_last_byte_is_named_as_what_is_wrong(disk: Path):
    path = disk / "runs.db"
    async with SqliteJournal(str(path)) as journal:
        await driven(journal)
    (disk / "runs.db-reserve").unlink()
    fill(disk)

    with pytest.raises(StoreFull):
        SqliteJournal(str(path))
    with pytest.raises(StoreFull):
        SqliteJournal(str(disk / "new.db"))
    assert not [name for name in os.listdir(disk) if name.startswith("new.db")]
