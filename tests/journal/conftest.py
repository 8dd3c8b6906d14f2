"""The stores that the contract is tested on. Another journal adds a store here, and nothing else."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import NoReturn, cast

import psycopg
import pytest
from msgspec.structs import replace

from checkrein.journal import Journal, MemoryJournal, SqliteJournal, subscriptions
from checkrein.journal.postgres import PostgresJournal, schema
from checkrein.journal.postgres.roles import ROLES
from tests.support.away import store_away
from tests.support.postgres import Cluster, running


class Clock:
    """The wall clock, and the steady one, which goes on with it but is not set with it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._set_by = 0.0

    def __call__(self) -> float:
        return self.now

    def steady(self) -> float:
        return self.now - self._set_by

    def set_forward(self, seconds: float) -> None:
        """Somebody sets the wall clock; below 0, back."""
        self.now += seconds
        self._set_by += seconds


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
    def away(self, journal: Journal) -> AbstractContextManager[None]:
        """Meanwhile nothing that `journal` reads from the store is answered."""

    @abstractmethod
    def change_body(self, run: str, seq: int, body: bytes) -> None:
        """Tamper with an event behind the journal's back."""


class MemoryStore(Store):
    def __init__(self) -> None:
        super().__init__()
        self._journal = MemoryJournal(clock=self.clock, steady=self.clock.steady)

    def _open(self) -> Journal:
        return self._journal

    @contextmanager
    def away(self, journal: Journal) -> Iterator[None]:
        assert isinstance(journal, MemoryJournal)
        with store_away(journal):
            yield

    def change_body(self, run: str, seq: int, body: bytes) -> None:
        records = self._journal._runs[run].records
        records[seq - 1] = replace(records[seq - 1], body=body)


class _Unplugged:
    """A connection to a disk that is gone for the moment."""

    def execute(self, *_: object) -> NoReturn:
        raise sqlite3.OperationalError("disk I/O error")


class SqliteStore(Store):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "runs.db"

    def _open(self) -> Journal:
        return SqliteJournal(str(self.path), clock=self.clock, steady=self.clock.steady)

    @contextmanager
    def away(self, journal: Journal) -> Iterator[None]:
        assert isinstance(journal, SqliteJournal)
        reader, whole = journal._reader, journal._reader._db
        reader._db = cast(sqlite3.Connection, _Unplugged())
        journal._tower.ring_all()  # whoever follows looks now
        try:
            yield
        finally:
            reader._db = whole

    def change_body(self, run: str, seq: int, body: bytes) -> None:
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute(
                "UPDATE events SET body = ? WHERE seq = ? AND run = (SELECT key FROM runs WHERE id = ?)",
                (body, seq, run),
            )


class PostgresStore(Store):
    kind = "tables"

    def __init__(self, cluster: Cluster, *, is_borrowed: bool = False) -> None:
        """With `is_borrowed` for tests that only use a store as everybody does, and leave its tables as they are."""
        super().__init__()
        self.cluster = cluster
        self._is_borrowed = is_borrowed
        self.schema, self.is_made = cluster.borrow(self.kind) if is_borrowed else (cluster.new_schema(), False)
        self.address = cluster.address(self.schema)

    def _open(self) -> PostgresJournal:
        return PostgresJournal(self.address, clock=self.clock, steady=self.clock.steady)

    async def close(self) -> None:
        await super().close()
        if self._is_borrowed:
            self.cluster.give_back(self.kind, self.schema)
        else:
            self.cluster.drop(self.schema)

    @contextmanager
    def away(self, journal: Journal) -> Iterator[None]:
        assert isinstance(journal, PostgresJournal)
        reader, patience = journal._reader, journal._reader._patience
        whole = reader._connect

        def unplugged() -> NoReturn:
            raise psycopg.OperationalError("the network is unreachable")

        reader._connect, reader._patience = unplugged, 0.0
        reader._drop_connection()
        journal._tower.ring_all()  # whoever follows looks now
        try:
            yield
        finally:
            reader._connect, reader._patience = whole, patience

    def change_body(self, run: str, seq: int, body: bytes) -> None:
        with self.cluster.connect() as db:
            db.execute(
                f"UPDATE {self.schema}.events SET body = %s "
                f"WHERE seq = %s AND run = (SELECT key FROM {self.schema}.runs WHERE id = %s)".encode(),
                (body, seq, run),
            )


class RolesStore(PostgresStore):
    """Its journals belong to a user who has the roles and writes no table."""

    kind = "roles"

    def __init__(self, cluster: Cluster, *roles: str, is_borrowed: bool = False) -> None:
        super().__init__(cluster, is_borrowed=is_borrowed)
        if not self.is_made:
            schema.init(self.address)
            schema.make_roles(self.address)
        self.owner = self.address
        self.address = self.address_of(*(roles or ROLES))

    def address_of(self, *roles: str) -> str:
        return self.cluster.address(self.schema, self.cluster.login(self.schema, *roles))


@pytest.fixture(autouse=True)
def nobody_looks_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever follows must be told; the second line of defence would hide it."""
    monkeypatch.setattr(subscriptions, "LOOK_SECONDS", 3_600.0)


@pytest.fixture(scope="session")
def postgres_18() -> Iterator[Cluster]:
    with running("18") as cluster:
        yield cluster


@pytest.fixture(params=["memory", "sqlite", "postgres", "postgres_18", "roles"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store: Store
    if request.param == "roles":
        store = RolesStore(request.getfixturevalue("postgres"), is_borrowed=True)
    elif request.param.startswith("postgres"):
        store = PostgresStore(request.getfixturevalue(request.param), is_borrowed=True)
    else:
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


@pytest.fixture
async def postgres_store(postgres: Cluster) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres)
    yield store
    await store.close()


@pytest.fixture(params=["tables", "roles"])
async def either_store(postgres: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[PostgresStore]:
    """For its owner, and for a user who writes only through functions."""
    store = PostgresStore(postgres) if request.param == "tables" else RolesStore(postgres)
    yield store
    await store.close()
