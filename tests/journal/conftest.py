"""The stores that the contract is tested on. Another journal adds a store here, and nothing else."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from checkrein.journal import Journal, MemoryJournal, SqliteJournal, bells


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Store(ABC):
    """A place that keeps runs. Every `open` gives a journal on the same data, as another process would have it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.opened: list[Journal] = []

    def open(self) -> Journal:
        journal = self._open()
        self.opened.append(journal)
        return journal

    async def close(self) -> None:
        for journal in self.opened:
            await journal.close()

    @abstractmethod
    def _open(self) -> Journal: ...

    @abstractmethod
    def change_body(self, run: str, seq: int, body: bytes) -> None:
        """Tamper with an event behind the journal's back."""


class MemoryStore(Store):
    def __init__(self) -> None:
        super().__init__()
        self._journal = MemoryJournal(clock=self.clock)

    def _open(self) -> Journal:
        return self._journal

    def change_body(self, run: str, seq: int, body: bytes) -> None:
        records = self._journal._runs[run].records
        records[seq - 1] = replace(records[seq - 1], body=body)


class SqliteStore(Store):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "runs.db"

    def _open(self) -> Journal:
        return SqliteJournal(str(self.path), clock=self.clock)

    def change_body(self, run: str, seq: int, body: bytes) -> None:
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute(
                "UPDATE events SET body = ? WHERE seq = ? AND run = (SELECT key FROM runs WHERE id = ?)",
                (body, seq, run),
            )


@pytest.fixture(autouse=True)
def nobody_looks_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows must be told; the second line of defence would hide it."""
    monkeypatch.setattr(bells, "LOOK_SECONDS", 3_600.0)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path)
    yield store
    await store.close()


@pytest.fixture
def journal(store: Store) -> Journal:
    return store.open()


@pytest.fixture
async def sqlite_store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path)
    yield store
    await store.close()
