"""A reader that was idle hears of what others commit, whether or not the system tells of writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from checkrein.journal import SqliteJournal
from checkrein.journal.base import RecordStream
from checkrein.journal.sqlite import change_poller
from checkrein.journal.sqlite.change_poller import ChangePoller, FileWatch
from tests.journal.build import driven, outcome
from tests.journal.conftest import SqliteStore
from tests.journal.test_sqlite_processes import other_process
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

HAS_INOTIFY = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")
NEVER = 3_600.0


class Unwatched(FileWatch):
    """A system that has no inotify, or no more of it to give."""

    def __init__(self, *_: object) -> None:
        raise OSError("no more watches")


class Silent(FileWatch):
    """A file system that does not tell what is written on its other side."""

    def arm(self) -> None:
        pass


class Told:
    def __init__(self) -> None:
        self.times = 0

    def tell(self) -> None:
        self.times += 1

    async def until(self, times: int) -> None:
        with anyio.fail_after(PATIENCE_SECONDS):
            while self.times < times:
                await anyio.sleep(0.001)


@pytest.fixture
def told() -> Told:
    return Told()


def demand(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def poller_of(journal: SqliteJournal) -> ChangePoller:
    return journal._reader._lookout


def opened(store: SqliteStore) -> SqliteJournal:
    journal = store.open()
    assert isinstance(journal, SqliteJournal)
    return journal


async def until_idle(poller: ChangePoller) -> None:
    """Until it asks seldom: it waits for the system's word, or cannot have it."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while not poller.is_idle:
            await anyio.sleep(0.01)


async def next_seq(stream: RecordStream) -> int:
    with anyio.fail_after(PATIENCE_SECONDS):
        return (await anext(stream)).seq


async def hears_when_idle(store: SqliteStore, *, times: int, by_the_system: bool) -> None:
    journal = opened(store)
    with other_process("on_demand", store.path, times) as process:
        stream = journal.follow("on-demand", after=1)
        for seq in range(2, times + 2):
            await until_idle(poller_of(journal))
            assert poller_of(journal)._is_armed is by_the_system
            demand(process)
            assert await next_seq(stream) == seq
        await stream.aclose()


@HAS_INOTIFY
async def test_an_idle_follower_is_told_by_the_system_of_another_process(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(change_poller, "SAFETY_SECONDS", NEVER)

    await hears_when_idle(sqlite_store, times=5, by_the_system=True)


async def test_an_idle_follower_hears_of_another_process_without_the_system(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(change_poller, "FileWatch", Unwatched)

    await hears_when_idle(sqlite_store, times=3, by_the_system=False)


@HAS_INOTIFY
async def test_a_commit_that_comes_long_after_its_write_is_heard_of(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    """The disk was slow: no second write tells of it."""
    monkeypatch.setattr(change_poller, "SAFETY_SECONDS", NEVER)
    monkeypatch.setattr(change_poller, "BUSY_SECONDS", 0.0)
    journal = opened(sqlite_store)

    with other_process("on_demand", sqlite_store.path, 1) as process:
        stream = journal.follow("on-demand", after=1)
        await until_idle(poller_of(journal))
        demand(process)
        assert await next_seq(stream) == 2
        await stream.aclose()


@HAS_INOTIFY
async def test_after_a_commit_the_system_is_asked_for_the_next_at_once_and_the_store_less_and_less_often(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    """A moment of a second here: asked every 5 ms it would be 200 times."""
    monkeypatch.setattr(change_poller, "BUSY_SECONDS", 1.0)
    journal = opened(sqlite_store)
    with other_process("on_demand", sqlite_store.path, 1) as process:
        stream = journal.follow("on-demand", after=1)
        await until_idle(poller_of(journal))
        asked, data_version = [], ChangePoller._data_version

        def asking(poller: ChangePoller) -> int:
            asked.append(poller)
            return data_version(poller)

        monkeypatch.setattr(ChangePoller, "_data_version", asking)
        demand(process)
        assert await next_seq(stream) == 2
        asked.clear()

        with anyio.fail_after(PATIENCE_SECONDS):
            while not poller_of(journal)._is_armed:
                await anyio.sleep(0.001)
        assert not poller_of(journal).is_idle
        await until_idle(poller_of(journal))
        await stream.aclose()

    assert len(asked) < 60


@HAS_INOTIFY
async def test_a_system_that_tells_nothing_is_not_relied_on_for_long(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(change_poller, "FileWatch", Silent)
    journal, other = opened(sqlite_store), opened(sqlite_store)
    await driven(other)
    stream = journal.follow("r", after=1)

    for seq in range(1, change_poller.MISSES + 1):
        await until_idle(poller_of(journal))
        assert poller_of(journal)._is_armed
        await other.append("r", [outcome()], after=seq, epoch=1)
        with anyio.fail_after(PATIENCE_SECONDS):
            while poller_of(journal)._missed < seq:
                await anyio.sleep(0.01)
    await until_idle(poller_of(journal))

    assert not poller_of(journal)._is_armed
    assert [await next_seq(stream) for _ in range(change_poller.MISSES)] == [2, 3, 4]
    await stream.aclose()


@HAS_INOTIFY
async def test_what_is_written_is_told_once_for_each_time_it_is_asked_for(tmp_path: Path, told: Told):
    path = tmp_path / "log"
    path.touch()
    watch = FileWatch(str(path), told.tell)
    try:
        path.write_bytes(b"before anybody asked")
        watch.arm()
        path.write_bytes(b"1")
        await told.until(1)
        path.write_bytes(b"2")
        watch.arm()
        path.write_bytes(b"3")
        await told.until(2)
    finally:
        watch.close()

    assert told.times == 2


@HAS_INOTIFY
async def test_a_file_that_is_not_there_cannot_be_watched(tmp_path: Path, told: Told):
    watch = FileWatch(str(tmp_path / "nothing"), told.tell)
    try:
        with pytest.raises(FileNotFoundError):
            watch.arm()
    finally:
        watch.close()
