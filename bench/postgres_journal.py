"""A journal in PostgreSQL, against rows inserted into the same server with nothing checked, and against SQLite.

The server is started for this, on the disk of the project, with what it does by default: a commit reaches the disk.
The raw peer inserts the same bytes in the same columns into a table with the same indexes, for as many runs, by a
prepared statement on a connection of its own. Every append has two events, as those of a driver mostly do: how a call
ended, and the permit of the next. A machine that is busy with other things flatters what is compared with a commit, so
processor time stands beside.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, Final

import anyio
import psycopg

from bench import durable_steps
from bench.durable_steps import WholeRuns
from bench.harness import MICRO, Benchmark, Measure, Room, Rounds, Target, latencies
from bench.workload import DrivenRun, begin, filled, finished, new_id, started
from checkrein import Runtime
from checkrein.core.events import Event
from checkrein.journal import Journal, admission, encoding, open_journal
from checkrein.journal.postgres import PostgresJournal
from checkrein.journal.postgres.connection import Session, target_of
from checkrein.journal.postgres.writes.append import Append
from checkrein.journal.postgres.writes.batch import append_all
from checkrein.journal.postgres.writes.job import Context, Heads
from tests.support.postgres import Cluster, running

PER_TURN: Final = 20
WRITERS: Final = 100
LONG: Final = 10_000

TABLE: Final = """
CREATE TABLE raw (run bigint NOT NULL, seq bigint NOT NULL, id bytea NOT NULL, at double precision NOT NULL,
                  type text COLLATE "C" NOT NULL, hash bytea NOT NULL, body bytea NOT NULL,
                  PRIMARY KEY (run, seq), UNIQUE (run, id))
"""
INDEX: Final = "CREATE INDEX raw_verbs ON raw (run, at) WHERE type = 'verb.accepted'"
INSERT: Final = "INSERT INTO raw VALUES (%b, %b, %b, %b, %b, %b, %b), (%b, %b, %b, %b, %b, %b, %b)"
INSERT_MANY: Final = """
INSERT INTO raw SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[], %b::double precision[], %b::text[],
                                     %b::bytea[], %b::bytea[])
"""
HASH: Final = bytes(32)

_seqs = count(1)


class Raw:
    """Rows and nothing else, as a program would write them that checks nothing."""

    def __init__(self, cluster: Cluster) -> None:
        self._db: psycopg.Connection[Any] = cluster.connect()
        self._db.prepare_threshold = 1
        self._db.execute(TABLE)
        self._db.execute(INDEX)
        self.backend = self._db.info.backend_pid

    def insert_timed(self) -> float:
        rows = [value for event in pair() for value in _row(0, event)]
        began = time.perf_counter()
        self._db.execute(INSERT, rows)
        return time.perf_counter() - began

    def rows_per_second(self, commits: int) -> float:
        batches = [[_row(run, event) for run in range(WRITERS) for event in pair()] for _ in range(commits)]
        began = time.perf_counter()
        for batch in batches:
            self._db.execute(INSERT_MANY, [list(column) for column in zip(*batch, strict=True)])
        return sum(map(len, batches)) / (time.perf_counter() - began)

    def close(self) -> None:
        self._db.close()


def pair() -> tuple[Event, Event]:
    return finished(new_id()), started(new_id(), epoch=1)


def _row(run: int, event: Event) -> tuple[object, ...]:
    return run, next(_seqs), event.id.encode(), event.at, admission.tag(type(event)), HASH, encoding.encode(event)


class Statement:
    """The append without the threads around it."""

    def __init__(self, address: str, run: DrivenRun) -> None:
        target = target_of(address)
        self._at = Context(Session(target, may_prepare=True), Heads(), target, "bench")
        self.backend = self._at.session.connection.info.backend_pid
        self._run = run

    def append_timed(self) -> float:
        events = pair()
        proposal = admission.propose(events, after=self._run.seen, epoch=self._run.epoch)
        job = Append(self._run.id, proposal, [encoding.encode(event) for event in events])
        began = time.perf_counter()
        [[(_, taken)]] = append_all(self._at, [job])
        took = time.perf_counter() - began
        assert isinstance(taken, admission.Taken)
        self._run.seen = taken.events[-1].seq
        return took

    def close(self) -> None:
        self._at.session.close()


async def measure(room: Room) -> list[Measure]:
    with running(within=room.folder) as cluster:
        raw = Raw(cluster)
        try:
            async with await open_journal(cluster.address()) as journal:
                await prepared(journal)
                return [
                    *await _lone(room, cluster, journal, raw),
                    *await _many(room, journal, raw),
                    *await _steps(room, cluster),
                    *await _load(room, cluster, journal),
                ]
        finally:
            raw.close()


async def prepared(journal: Journal) -> None:
    assert isinstance(journal, PostgresJournal)
    while not journal._may_prepare:  # noqa: ASYNC110 - nobody is told
        await anyio.sleep(0.01)


async def _lone(room: Room, cluster: Cluster, journal: Journal, raw: Raw) -> list[Measure]:
    run, other = await begin(journal, "lone"), await begin(journal, "statement")
    statement = Statement(cluster.address(), other)

    async def append() -> Sequence[float]:
        return [await _timed(run) for _ in range(PER_TURN)]

    async def alone() -> Sequence[float]:
        return [statement.append_timed() for _ in range(PER_TURN)]

    async def insert() -> Sequence[float]:
        return [raw.insert_timed() for _ in range(PER_TURN)]

    rounds = Rounds(append=append, alone=alone, insert=insert)
    await rounds.warm_up(10)
    await rounds.run(room.count(60, 10))
    used = Rounds(
        alone=lambda: _used(statement.append_timed, statement.backend),
        insert=lambda: _used(raw.insert_timed, raw.backend),
    )
    await used.run(room.count(30, 10))
    statement.close()
    return [
        rounds.ratio("an append of two events, against a raw insert", "append", "insert", Target("at most", 2.5)),
        rounds.ratio("its statement alone, against a raw insert", "alone", "insert", Target("at most", 1.5)),
        used.ratio("the same in processor time, here and on the server", "alone", "insert"),
        *latencies("append", rounds.samples["append"]),
        *latencies("raw insert", rounds.samples["insert"]),
    ]


async def _used(work: Callable[[], object], backend: int) -> Sequence[float]:
    """The processor time of some work, of this thread and of the server's process for it: load hardly changes it."""
    began = time.thread_time() + _processor_seconds(backend)
    for _ in range(PER_TURN):
        work()
    return [(time.thread_time() + _processor_seconds(backend) - began) / PER_TURN]


def _processor_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def _timed(run: DrivenRun) -> float:
    events = pair()
    began = time.perf_counter()
    await run.append(*events)
    return time.perf_counter() - began


async def _events_per_second(runs: Sequence[DrivenRun], times: int) -> float:
    async def write(run: DrivenRun) -> None:
        for _ in range(times):
            await run.append(*pair())

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for run in runs:
            tasks.start_soon(write, run)
    return 2 * times * len(runs) / (time.perf_counter() - began)


async def _many(room: Room, journal: Journal, raw: Raw) -> list[Measure]:
    runs = [await begin(journal, f"run-{number}") for number in range(WRITERS)]

    async def append() -> Sequence[float]:
        return [await _events_per_second(runs, 24)]

    async def insert() -> Sequence[float]:
        return [raw.rows_per_second(24)]

    rounds = Rounds(append=append, insert=insert)
    await rounds.warm_up(1)
    await rounds.run(room.count(12, 4))
    return [
        rounds.ratio(f"{WRITERS} writers, against raw batches", "append", "insert", Target("at least", 0.3)),
        Measure(what=f"events of {WRITERS} writers", value=rounds.median("append"), unit="/s"),
        Measure(what=f"raw rows, {2 * WRITERS} to a commit", value=rounds.median("insert"), unit="/s"),
    ]


async def _steps(room: Room, cluster: Cluster) -> list[Measure]:
    """Whole runs of trivial steps, from start to result, in turns with the same on SQLite."""
    turns = durable_steps.TURNS
    async with Runtime(cluster.address("steps")) as here, Runtime(room.address("steps")) as there:
        await prepared(here.journal)
        rounds = Rounds(postgres=WholeRuns(here).turn, sqlite=WholeRuns(there).turn)
        await rounds.warm_up(turns)
        await rounds.run(room.count(10, 3) * turns)
    step = rounds.median("postgres") / durable_steps.PER_TURN
    return [
        rounds.ratio("a durable step, against SQLite", "postgres", "sqlite", Target("at most", 2.0), together=turns),
        Measure(what="a durable step", value=step * MICRO, unit="µs"),
    ]


async def _load(room: Room, cluster: Cluster, journal: Journal) -> list[Measure]:
    """A long run read, and loaded for the first time: without a snapshot."""
    path = room.folder / "journal.db"

    def forget_here() -> int:
        with cluster.connect() as db:
            return db.execute("DELETE FROM checkrein.snapshots").rowcount

    def forget_there() -> int:
        with closing(sqlite3.connect(path)) as db, db:
            return db.execute("DELETE FROM snapshots").rowcount

    async with await open_journal(room.address("journal")) as file:
        for one in (journal, file):
            await filled(one, "long", LONG)

        async def read(one: Journal) -> Sequence[float]:
            began = time.perf_counter()
            await one.read("long")
            return [time.perf_counter() - began]

        async def load(one: Journal, forget: Callable[[], int]) -> Sequence[float]:
            began = time.perf_counter()
            await one.load("long")
            took = time.perf_counter() - began
            while not forget():  # noqa: ASYNC110 - it is kept a moment later, and nobody is told
                await anyio.sleep(0.01)
            return [took]

        reads = Rounds(postgres=lambda: read(journal), sqlite=lambda: read(file))
        loads = Rounds(postgres=lambda: load(journal, forget_here), sqlite=lambda: load(file, forget_there))
        for rounds in (reads, loads):
            await rounds.warm_up(1)
            await rounds.run(room.count(10, 4))
    target = Target("at most", 2.0)
    return [
        reads.ratio(f"reading a run of {LONG:,} events, against SQLite", "postgres", "sqlite", target),
        loads.ratio(f"loading a run of {LONG:,} events, against SQLite", "postgres", "sqlite", target),
    ]


BENCHMARK: Final = Benchmark("postgres_journal", "a journal in PostgreSQL, against raw inserts and SQLite", measure)
