"""What a PostgreSQL server pays for what a fleet asks of it: its processor time, which load hardly changes.

An append of two events, alone and a hundred in one commit; a row of streamed text, of two hundred runs a flush; and a
notification, for each process that listens: it is the one cost that grows with the number of processes, since everybody
is told of everything. What the listening process pays for it stands beside. And how many commits a second a server
makes for eight connections that tell each other, against the same without telling: the server puts a commit that tells
behind the one before it, and its way to the disk with it. Those that wait for no disk, as streamed text does, and a
notification of its own after each commit, show how much of that is the disk.

`bench/capacity.py` computes with these.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from typing import Final

import anyio
import psycopg

from bench.harness import MICRO, Benchmark, Measure, Room, Rounds, quantile
from bench.postgres_journal import Statement, pair, prepared
from bench.processor import Used, postmaster, processor_seconds
from bench.report import ROOT
from bench.workload import DrivenRun, begin
from checkrein.journal import Journal, open_journal
from checkrein.journal.base import Chunk
from checkrein.journal.postgres.connection import target_of
from tests.support.postgres import Cluster, running

MANY: Final = 100
STREAMING: Final = 200
LISTENERS: Final = 20
NAMED: Final = 20
"""Runs that a notification names: as many as a busy process appends to at a time."""
CONNECTIONS: Final = 8
BODY: Final = bytes(500)
TEXT: Final = " and five more tokens of text"


async def measure(room: Room) -> list[Measure]:
    with running(within=room.folder, autovacuum="off") as cluster:
        async with await open_journal(cluster.address()) as journal:
            await prepared(journal)
            return [
                *await _appends(room, cluster, journal),
                *await _text(room, cluster, journal),
                *await _notifications(room, cluster),
                *await _commits(room, cluster),
            ]


def _cost(what: str, seconds: float, note: str = "") -> Measure:
    return Measure(what=what, value=seconds * MICRO, unit="µs", note=note)


# -- appends and text


async def _appends(room: Room, cluster: Cluster, journal: Journal) -> list[Measure]:
    lone = await begin(journal, "lone")
    runs = [await begin(journal, f"many-{number}") for number in range(MANY)]
    statement = Statement(cluster.address(), lone)
    for _ in range(200):
        statement.append_timed()
    times = room.count(2000, 300)
    began = processor_seconds(statement.backend)
    for _ in range(times):
        statement.append_timed()
    alone = (processor_seconds(statement.backend) - began) / times
    statement.close()

    async def append(run: DrivenRun, times: int) -> None:
        for _ in range(times):
            await run.append(*pair())

    async def append_all(times: int) -> None:
        async with anyio.create_task_group() as tasks:
            for run in runs:
                tasks.start_soon(append, run, times)

    await append_all(5)
    times = room.count(100, 20)
    ours, server, bytes_before = time.process_time(), Used(postmaster(cluster)), _wal_bytes(cluster)
    await append_all(times)
    appends = times * MANY
    return [
        _cost("server: an append of two events, alone", alone),
        _cost(f"server: one of {MANY} at a time", server.seconds() / appends, "with the log writer and all else"),
        _cost("the process that appends it", (time.process_time() - ours) / appends, "to make the events as well"),
        Measure(what="log written for it", value=(_wal_bytes(cluster) - bytes_before) / appends, unit="B"),
    ]


async def _text(room: Room, cluster: Cluster, journal: Journal) -> list[Measure]:
    runs = [(await begin(journal, f"text-{number}")).id for number in range(STREAMING)]

    async def flush(number: int) -> None:
        await journal.write_chunks({run: [Chunk("c1", number * len(TEXT), TEXT)] for run in runs})

    flushes = room.count(200, 40)
    for number in range(10):
        await flush(number)
    ours, server, bytes_before = time.process_time(), Used(postmaster(cluster)), _wal_bytes(cluster)
    for number in range(10, 10 + flushes):
        await flush(number)
    rows = flushes * STREAMING
    return [
        _cost(f"server: a row of text, {STREAMING} a flush", server.seconds() / rows),
        _cost("the process that writes it", (time.process_time() - ours) / rows),
        Measure(what="log written for it", value=(_wal_bytes(cluster) - bytes_before) / rows, unit="B"),
    ]


def _wal_bytes(cluster: Cluster) -> float:
    with cluster.connect() as db:
        row = db.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8").fetchone()
    assert row is not None
    assert isinstance(row[0], float)
    return row[0]


# -- notifications


async def _notifications(room: Room, cluster: Cluster) -> list[Measure]:
    """What is told to those who listen, by somebody who writes nothing."""
    times = room.count(2000, 400)
    note = "bench " + " ".join(f"r-{number:026d}" for number in range(NAMED))
    channel = _channel(cluster)
    with closing(cluster.connect()) as speaker:

        def tell() -> None:
            for _ in range(times):
                speaker.execute("SELECT pg_notify(%s, %s)", (channel, note))

        async def told(count: int) -> float:
            async with _listeners(cluster, channel, count):
                server = Used(postmaster(cluster))
                await anyio.to_thread.run_sync(tell)
                await anyio.sleep(0.5)
                return server.seconds() / times

        alone, many = await told(0), await told(LISTENERS)
        async with _journal_process(cluster) as pid:
            idle = await _idle(pid)
            began, at = processor_seconds(pid), time.perf_counter()
            await anyio.to_thread.run_sync(tell)
            heard = processor_seconds(pid) - began - idle * (time.perf_counter() - at)
    return [
        _cost("server: a notification, to each that listens", (many - alone) / LISTENERS, f"{NAMED} runs named"),
        _cost("server: a notification that nobody hears", alone),
        _cost("a process that hears one and follows none of it", heard / times),
    ]


def _channel(cluster: Cluster) -> str:
    return target_of(cluster.address()).channel


@asynccontextmanager
async def _listeners(cluster: Cluster, channel: str, count: int) -> AsyncIterator[None]:
    connections = [cluster.connect() for _ in range(count)]
    try:
        for connection in connections:
            connection.execute(f'LISTEN "{channel}"'.encode())
        yield
    finally:
        for connection in connections:
            connection.close()


@asynccontextmanager
async def _journal_process(cluster: Cluster) -> AsyncIterator[int]:
    """Another process with an open journal."""
    program = (
        "import anyio, sys\n"
        "from checkrein.journal import open_journal\n"
        "async def main():\n"
        "    async with await open_journal(sys.argv[1]) as journal:\n"
        "        while not journal._may_prepare: await anyio.sleep(0.01)\n"
        "        print(flush=True); await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    command = [sys.executable, "-c", program, cluster.address()]
    async with await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            await process.stdout.receive()
            yield process.pid
        finally:
            process.kill()


async def _idle(pid: int) -> float:
    """The share of a processor that a process takes when nothing happens."""
    began, at = processor_seconds(pid), time.perf_counter()
    await anyio.sleep(2)
    return (processor_seconds(pid) - began) / (time.perf_counter() - at)


# -- commits that tell, one behind the other


INSERT: Final = "INSERT INTO commits VALUES (1, %s)"
NOTIFY: Final = "SELECT pg_notify('commits', 'a note')"
NOT_AWAITED: Final = "SET LOCAL synchronous_commit = off"
WAYS: Final[dict[str, Sequence[Sequence[str]]]] = {
    "untold": [[INSERT]],
    "told": [[INSERT, NOTIFY]],
    "told afterwards": [[INSERT], [NOT_AWAITED, NOTIFY]],
    "not awaited": [[NOT_AWAITED, INSERT, NOTIFY]],
}
"""Ways to commit a row and to tell of it: the transactions of each, and their statements."""

Connections = Sequence[psycopg.Connection[tuple[object, ...]]]


async def _commits(room: Room, cluster: Cluster) -> list[Measure]:
    with cluster.connect() as db:
        db.execute("CREATE TABLE commits (connection bigint, body bytea)")
    connections = [cluster.connect() for _ in range(CONNECTIONS)]
    seconds = room.count(2, 1)

    def side(way: str) -> Callable[[], Awaitable[Sequence[float]]]:
        async def turn() -> Sequence[float]:
            return [await anyio.to_thread.run_sync(_commits_per_second, connections, WAYS[way], seconds)]

        return turn

    rounds = Rounds(**{way: side(way) for way in WAYS})
    try:
        await rounds.warm_up(1)
        await rounds.run(room.count(8, 4))
    finally:
        for connection in connections:
            connection.close()
    alone = await anyio.to_thread.run_sync(_seconds_of_a_commit, cluster, room.count(400, 100))
    return [
        Measure(what=f"commits of {CONNECTIONS} connections that tell", value=rounds.median("told"), unit="/s"),
        rounds.ratio("that against commits that tell nobody", "told", "untold"),
        rounds.ratio("against these: telling afterwards, not waiting for the disk", "told afterwards", "untold"),
        rounds.ratio("against these: neither waits for the disk", "not awaited", "untold"),
        _cost("a commit that tells, of one connection, p50", alone),
    ]


def _commits_per_second(connections: Connections, transactions: Sequence[Sequence[str]], seconds: float) -> float:
    """Of some threads, one for each connection."""
    made = [0] * len(connections)
    until = time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < until:
            for statements in transactions:
                _perform(connections[number], statements)
            made[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(connections))]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(made) / (time.perf_counter() - began)


def _perform(connection: psycopg.Connection[tuple[object, ...]], statements: Sequence[str]) -> None:
    """One transaction, sent in one piece."""
    with connection.pipeline(), connection.transaction():
        for statement in statements:
            connection.execute(statement.encode(), (BODY,) if "%s" in statement else None)


def _seconds_of_a_commit(cluster: Cluster, times: int) -> float:
    took = []
    with closing(cluster.connect()) as connection:
        for _ in range(times):
            began = time.perf_counter()
            _perform(connection, WAYS["told"][0])
            took.append(time.perf_counter() - began)
    return quantile(took, 0.5)


BENCHMARK: Final = Benchmark("postgres_costs", "what a fleet costs its PostgreSQL server", measure)
