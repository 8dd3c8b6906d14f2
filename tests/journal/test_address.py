"""Opening a journal by its address."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkrein.errors import MisuseError, StoreNotOurs
from checkrein.journal import MemoryJournal, SqliteJournal, address_of, file_of, open_journal
from tests.journal.build import created

pytestmark = pytest.mark.anyio


async def test_an_absolute_path_has_four_slashes(tmp_path: Path):
    async with await open_journal(f"sqlite:///{tmp_path}/runs.db") as journal:
        assert isinstance(journal, SqliteJournal)

    assert (tmp_path / "runs.db").exists()


async def test_a_relative_path_has_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    async with await open_journal("sqlite:///.checkrein/50% of my runs?.db") as journal:
        await journal.create(created("r"))

    assert (tmp_path / ".checkrein" / "50% of my runs?.db").exists()


async def test_memory_needs_no_path():
    async with await open_journal("memory:") as journal:
        assert isinstance(journal, MemoryJournal)


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("orders.db", "sqlite:///orders.db"),
        ("./data/50% of my runs.db", "sqlite:///./data/50% of my runs.db"),
        ("/var/lib/runs.db", "sqlite:////var/lib/runs.db"),
        (Path("data/runs.db"), "sqlite:///data/runs.db"),
        ("memory:", "memory:"),
        ("sqlite:////var/lib/runs.db", "sqlite:////var/lib/runs.db"),
    ],
)
def test_a_plain_path_is_the_address_of_a_file(said: str | Path, address: str):
    assert address_of(said) == address


def test_a_path_may_begin_at_home(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/ann")

    assert address_of("~/runs.db") == "sqlite:////home/ann/runs.db"
    assert file_of("~/runs.db") == "/home/ann/runs.db"


async def test_a_journal_is_opened_by_a_plain_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    async with await open_journal("orders.db") as journal:
        await journal.create(created("r"))

    assert (tmp_path / "orders.db").exists()


@pytest.mark.parametrize(
    "address", ["", " ", "sqlite:", "sqlite:///", "sqlite://runs.db", "sqlite:///:memory:", "memory", "mysql:///x"]
)
async def test_another_address_is_refused_with_what_would_work(address: str):
    with pytest.raises(MisuseError, match="sqlite:///relative/path") as refused:
        await open_journal(address)

    assert refused.value.code == "misuse"


async def test_what_the_store_says_about_itself_is_passed_on(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("notes")

    with pytest.raises(StoreNotOurs):
        await open_journal(f"sqlite:///{tmp_path}/notes.txt")
