"""The journal's file: made whole or not at all, and never mistaken for, or made of, something else."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from checkrein.core.enums import Verb
from checkrein.core.evolve import evolve
from checkrein.errors import CheckreinError, StoreDamaged, StoreNotOurs, StoreTooNew, StoreUnavailable
from checkrein.journal import SqliteJournal
from checkrein.journal.base import Fence, Scope
from checkrein.journal.sqlite import database, writer
from tests.journal.build import created, driven, outcome, permit, started, verb
from tests.journal.conftest import SqliteStore
from tests.support.patience import PATIENCE_SECONDS
from tests.support.snapshots import save_snapshot

pytestmark = pytest.mark.anyio


def contents(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}


def refusal(path: Path) -> CheckreinError:
    """What opening says; whatever is there must be left as it is."""
    before = contents(path.parent)
    with pytest.raises(CheckreinError) as refused:
        SqliteJournal(str(path))
    assert contents(path.parent) == before
    assert str(path) in str(refused.value)
    return refused.value


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """The bytes of a closed journal with a run in it; it is `whole.db`."""
    path = tmp_path / "whole.db"

    async def fill() -> None:
        async with SqliteJournal(str(path)) as journal:
            await driven(journal)
            await journal.append("r", [outcome(f"c{n}", "x" * 500) for n in range(200)], after=1, epoch=1)

    asyncio.run(fill())
    return path.read_bytes()


# -- making


async def test_a_new_journal_is_readable_by_its_owner_only(sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    await journal.create(created("r"))

    for entry in sqlite_store.path.parent.iterdir():
        assert stat.S_IMODE(entry.stat().st_mode) & 0o077 == 0, entry.name


async def test_folders_on_the_way_are_made(tmp_path: Path):
    async with SqliteJournal(str(tmp_path / "a" / "b" / "runs.db")) as journal:
        await journal.create(created("r"))

    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


async def test_nothing_is_left_beside_a_closed_journal_but_its_reserve_and_its_flag(tmp_path: Path):
    async with SqliteJournal(str(tmp_path / "runs.db")) as journal:
        await journal.create(created("r"))

    assert sorted(contents(tmp_path)) == ["runs.db", "runs.db-reserve", "runs.db-verbs"]


async def test_a_journal_is_marked_as_one_and_kept_in_the_safest_mode(sqlite_store: SqliteStore):
    sqlite_store.open()

    with closing(database.connect(str(sqlite_store.path))) as db:
        answers = [
            db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version", "journal_mode", "synchronous")
        ]
    assert answers == [int.from_bytes(b"CKRN", "big"), len(database.scripts()), "wal", 2]


async def test_a_link_to_a_journal_is_that_journal(sqlite_store: SqliteStore, tmp_path: Path):
    await sqlite_store.open().create(created("r"))
    (tmp_path / "other").mkdir()
    link = tmp_path / "other" / "link.db"
    link.symlink_to(sqlite_store.path)

    async with SqliteJournal(str(link)) as journal:
        assert len(await journal.read("r")) == 1

    assert contents(link.parent) == {"link.db": sqlite_store.path.read_bytes()}


def test_processes_that_make_it_at_once_end_with_the_same_one(tmp_path: Path):
    path = tmp_path / "runs.db"
    code = (
        "import asyncio, sys\n"
        "from checkrein.journal import SqliteJournal\n"
        "from tests.journal.build import created\n"
        "sys.stdin.readline()\n"
        "async def main():\n"
        "    async with SqliteJournal(sys.argv[1]) as journal:\n"
        "        await journal.create(created(sys.argv[2]))\n"
        "asyncio.run(main())\n"
    )
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                Popen([sys.executable, "-c", code, str(path), f"r{n}"], stdin=PIPE, cwd=Path(__file__).parents[2])
            )
            for n in range(5)
        ]

        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.close()

        assert [process.wait(PATIENCE_SECONDS) for process in processes] == [0] * 5
    with closing(sqlite3.connect(path)) as db:
        assert {row[0] for row in db.execute("SELECT id FROM runs")} == {f"r{n}" for n in range(5)}
    assert sorted(contents(tmp_path)) == ["runs.db", "runs.db-reserve", "runs.db-verbs"]


# -- what is not a journal


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"hello " * 1_000, bytes(range(256)) * 64],
    ids=["an empty file", "a short text", "a long text", "some bytes"],
)
def test_another_file_is_left_alone(tmp_path: Path, content: bytes):
    (tmp_path / "runs.db").write_bytes(content)

    assert isinstance(refusal(tmp_path / "runs.db"), StoreNotOurs)


def test_a_folder_is_left_alone(tmp_path: Path):
    assert isinstance(refusal(tmp_path), StoreNotOurs)


def test_a_file_where_a_folder_should_be_is_left_alone(tmp_path: Path):
    (tmp_path / "file").write_text("text")

    with pytest.raises(StoreUnavailable):
        SqliteJournal(str(tmp_path / "file" / "runs.db"))


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_another_programs_database_is_left_alone(tmp_path: Path, mode: str):
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db:
        db.execute(f"PRAGMA journal_mode={mode}")
        db.execute("CREATE TABLE events (position)")

    assert isinstance(refusal(tmp_path / "runs.db"), StoreNotOurs)


def test_a_journal_of_a_later_version_is_left_alone(tmp_path: Path, whole: bytes):
    with closing(sqlite3.connect(tmp_path / "whole.db")) as db:
        db.execute("PRAGMA user_version=99")

    error = refusal(tmp_path / "whole.db")

    assert isinstance(error, StoreTooNew)
    assert "99" in str(error)


# -- damage


@pytest.mark.parametrize("lost", [1, 100, 4_096, 10_000, 60_000])
def test_a_journal_that_ends_too_early_is_left_alone(tmp_path: Path, whole: bytes, lost: int):
    (tmp_path / "runs.db").write_bytes(whole[:-lost])

    assert isinstance(refusal(tmp_path / "runs.db"), StoreDamaged)


@pytest.mark.parametrize("left", [20, 400, 512, 4_096])
def test_the_very_beginning_of_a_journal_is_known_for_what_it_is(tmp_path: Path, whole: bytes, left: int):
    (tmp_path / "runs.db").write_bytes(whole[:left])

    assert isinstance(refusal(tmp_path / "runs.db"), StoreDamaged)


def test_a_journal_whose_schema_is_overwritten_is_left_alone(tmp_path: Path, whole: bytes):
    (tmp_path / "runs.db").write_bytes(whole[:100] + bytes(3_996) + whole[4_096:])

    assert isinstance(refusal(tmp_path / "runs.db"), StoreDamaged)


def test_damage_in_the_middle_is_noticed_when_it_is_read(tmp_path: Path, whole: bytes):
    path = tmp_path / "runs.db"
    path.write_bytes(whole[: 4_096 * 22] + b"\xaa" * (len(whole) - 4_096 * 22))

    async def read() -> None:
        async with SqliteJournal(str(path)) as journal:
            await journal.read("r")

    with pytest.raises(StoreDamaged):
        asyncio.run(read())


def test_a_log_whose_journal_is_gone_is_not_mixed_into_a_new_one(tmp_path: Path):
    (tmp_path / "runs.db-wal").write_bytes(b"x" * 5_000)

    assert isinstance(refusal(tmp_path / "runs.db"), StoreDamaged)


async def test_a_journal_that_is_replaced_while_in_use_takes_nothing_more(sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    await driven(journal, "s")
    sqlite_store.path.rename(sqlite_store.path.with_suffix(".old"))
    sqlite_store.path.write_bytes(b"something else")

    with pytest.raises(StoreUnavailable, match="moved"):
        await journal.append("s", [outcome()], after=1, epoch=1)


@pytest.mark.parametrize("at_once_seconds", [60.0, -1.0], ids=["in the event loop", "in the writer's thread"])
async def test_nothing_is_acknowledged_into_a_log_that_was_deleted_and_nothing_acknowledged_is_lost(
    sqlite_store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once_seconds: float
):
    """The witness is a copy of the journal's file alone: what is left of it when every process is killed now."""
    monkeypatch.setattr(writer, "AT_ONCE_SECONDS", at_once_seconds)
    journal = sqlite_store.open()
    lease = await driven(journal, "s")
    for number in range(5):
        await journal.append("s", [outcome(f"c{number}")], after=1 + number, epoch=lease.epoch)
    os.unlink(f"{sqlite_store.path}-wal")

    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"log of .* was moved, replaced or deleted"):
            await journal.append("s", [verb(Verb.CANCEL)], after=6)
    with pytest.raises(StoreUnavailable):
        await journal.fence(Fence(scope=Scope.ALL))
    shutil.copy(sqlite_store.path, tmp_path / "left.db")

    async with SqliteJournal(str(tmp_path / "left.db")) as left:
        assert await left.verify("s") >= 6


async def test_a_journal_whose_log_is_put_back_takes_what_comes_next(sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    lease = await driven(journal, "s")
    log = Path(f"{sqlite_store.path}-wal")
    log.rename(log.with_suffix(".away"))
    with pytest.raises(StoreUnavailable):
        await journal.append("s", [outcome("c1")], after=1, epoch=lease.epoch)

    log.with_suffix(".away").rename(log)
    await journal.append("s", [outcome("c2")], after=1, epoch=lease.epoch)

    assert await journal.verify("s") == len(await journal.read("s"))


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path):  # pragma: no cover
    tmp_path.chmod(0o500)

    with pytest.raises(StoreUnavailable):
        SqliteJournal(str(tmp_path / "runs.db"))


# -- migrations


def test_migrations_are_applied_once_each_in_order(tmp_path: Path, whole: bytes):
    later = (
        *database.scripts(),
        "CREATE TABLE second (n);\n-- a comment; with a semicolon\nCREATE TABLE more (n);",
        "CREATE TABLE third (n);",
    )

    with closing(database.connect(str(tmp_path / "whole.db"))) as db:
        for _ in range(2):
            database._bring_up_to_date(db, str(tmp_path / "whole.db"), later)

        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        assert {"events", "second", "more", "third"} <= tables
        assert db.execute("PRAGMA user_version").fetchone() == (len(later),)


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, whole: bytes):
    broken = (*database.scripts(), "CREATE TABLE second (n);\nINSERT INTO nowhere VALUES (1);")

    with closing(database.connect(str(tmp_path / "whole.db"))) as db:
        with pytest.raises(sqlite3.OperationalError):
            database._bring_up_to_date(db, str(tmp_path / "whole.db"), broken)

        assert db.execute("PRAGMA user_version").fetchone() == (len(broken) - 1,)
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'second'").fetchone() == (0,)


async def test_an_old_snapshot_is_ignored(sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    await driven(journal)
    state = await journal.load("r")
    await save_snapshot(journal, state)

    for change in ("version = 'older'", "state = x'00'", "state = CAST('{}' AS BLOB)"):
        with closing(sqlite3.connect(sqlite_store.path)) as db, db:
            db.execute(f"UPDATE snapshots SET {change}")
        assert await journal.load("r") == state


async def test_a_saved_snapshot_is_used_and_never_goes_back(sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    lease = await driven(journal)
    await journal.append("r", [started(lease.epoch), permit()], after=1, epoch=lease.epoch)
    early = await journal.load("r")
    await journal.append("r", [verb()], after=3)
    late = await journal.load("r")

    await save_snapshot(journal, late)
    await save_snapshot(journal, early)

    with closing(sqlite3.connect(sqlite_store.path)) as db:
        assert db.execute("SELECT seq FROM snapshots").fetchall() == [(late.seq,)]
    assert await sqlite_store.open().load("r") == late


async def test_a_snapshot_ahead_of_the_journal_is_ignored(sqlite_store: SqliteStore):
    journal = sqlite_store.open()
    await driven(journal)
    state = await journal.load("r")

    await save_snapshot(journal, evolve(state, verb(), 2))

    assert await journal.load("r") == state
