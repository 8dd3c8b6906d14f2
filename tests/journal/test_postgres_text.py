"""Text that streams in another process: told at once by the server, and read in one question for all runs.

The witness is the clock of the machine: whoever streams says the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import anyio
import psycopg
import pytest

from checkrein.control.feed import RunFeed
from checkrein.core.enums import CallKind
from checkrein.journal.base import Chunk
from checkrein.journal.postgres import journal as postgres_journal
from checkrein.journal.postgres import tables
from checkrein.journal.postgres.connection import target_of
from checkrein.server.backend import Backend
from checkrein.server.streaming.hub import Hub
from checkrein.server.streaming.sse import Limits
from tests.journal.build import driven, outcome, permit
from tests.journal.conftest import PostgresStore
from tests.journal.test_sqlite_processes import other_process
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.postgres import Cluster
from tests.support.questions import count_questions

pytestmark = pytest.mark.anyio

NEVER = 3_600.0


@pytest.fixture(autouse=True)
def nobody_looks_for_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is told is read."""
    monkeypatch.setattr(postgres_journal, "LOOK_FOR_TEXT_SECONDS", NEVER)
    monkeypatch.setattr(postgres_journal, "LIVE_SECONDS", NEVER)


async def until(holds: Callable[[], object]) -> None:
    with anyio.fail_after(PATIENCE_SECONDS):
        while not holds():
            await anyio.sleep(0.01)


async def test_text_of_another_process_comes_far_sooner_than_by_looking(postgres_store: PostgresStore):
    journal = postgres_store.open()
    delays: list[float] = []
    last: list[str] = [""]

    def hear(chunk: Chunk) -> None:
        *whole, last[0] = (last[0] + chunk.text).split(" ")
        delays.extend(time.time() - float(stamp) for stamp in whole)

    with other_process("stream", postgres_store.address, 1):
        feed = RunFeed(journal, "s-0", on_record=lambda record: None, on_text=hear)
        running = asyncio.ensure_future(feed.run())
        await until(lambda: len(delays) >= 20)
        delays.clear()  # what had streamed before it was followed
        await until(lambda: len(delays) >= 150)
        running.cancel()

    p99 = sorted(delays)[len(delays) * 99 // 100]
    assert p99 < within(0.2)


async def test_one_question_serves_all_runs_of_a_front(postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    """However many stream: about one for each time that the other process writes, which is ten times a second."""
    journal = postgres_store.open()
    runs = 20
    workers_wanted = AsyncMock(return_value={})
    backend = SimpleNamespace(
        journal=journal, listen=lambda run, hear: lambda: None, now=time.time, workers_wanted=workers_wanted
    )

    with other_process("stream", postgres_store.address, runs):
        hub = Hub(cast(Backend, backend), Limits())
        feeds = [await hub.feed(f"s-{run}") for run in range(runs)]
        lengths = [_length(feed.viewer.texts) for feed in feeds]
        asked, began = count_questions(journal, monkeypatch), time.monotonic()
        with postgres_store.cluster.connect() as db:
            before = _written(db, postgres_store.schema)
            await until(
                lambda: all(_length(feed.viewer.texts) > old + 1000 for feed, old in zip(feeds, lengths, strict=True))
            )
            flushes = _written(db, postgres_store.schema) - before
        seconds = time.monotonic() - began
        await hub.close()

    assert flushes >= 10
    assert asked["chunks_of"] <= flushes + 2
    assert asked["chunks_of"] <= 12 * seconds
    assert asked["chunks"] == 0


def _length(texts: Any) -> int:
    return int(texts.length("m1"))


def _written(db: Any, schema: str) -> int:
    """How often the other process has written text so far: each time is a row of one of its runs."""
    query = f"SELECT count(*) FROM {schema}.chunks c JOIN {schema}.runs r ON r.key = c.run WHERE r.id = 's-0'"
    return int(db.execute(query.encode()).fetchone()[0])


async def test_text_that_is_told_before_its_call_is_known_is_read_with_the_call(postgres_store: PostgresStore):
    journal, other = postgres_store.open(), postgres_store.open()
    lease = await driven(journal, "r")
    heard: list[str] = []
    feed = RunFeed(journal, "r", on_record=lambda record: None, on_text=lambda chunk: heard.append(chunk.text))
    running = asyncio.ensure_future(feed.run())
    await until(lambda: feed.viewer.seq == 1)

    await other.write_chunks({"r": [Chunk("m1", 0, "All that is said.")]})
    await until(lambda: feed._is_text_ahead)
    await other.append("r", [permit("m1", 1, CallKind.MODEL)], after=1, epoch=lease.epoch)

    await until(lambda: heard == ["All that is said."])
    running.cancel()


NOTED = """
CREATE TABLE {s}.noted (what text, setting text);
CREATE FUNCTION {s}.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO {s}.noted VALUES (TG_TABLE_NAME, current_setting('synchronous_commit')); RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT ON {s}.chunks FOR EACH STATEMENT EXECUTE FUNCTION {s}.note();
CREATE TRIGGER note AFTER INSERT ON {s}.events FOR EACH STATEMENT EXECUTE FUNCTION {s}.note();
"""
"""The server's own word for whether a commit waits for the disk."""


async def test_only_text_is_committed_without_waiting_for_the_disk(postgres_store: PostgresStore, postgres: Cluster):
    journal = postgres_store.open()
    await driven(journal, "r")
    with postgres.connect() as db:
        db.execute(NOTED.replace("{s}", postgres_store.schema).encode())

    await journal.write_chunks({"r": [Chunk("m1", 0, "All that "), Chunk("m1", 9, "is said.")]})
    await journal.append("r", [outcome("m1", chunks=2)], after=1, epoch=1)  # its text is then joined into one row

    with postgres.connect() as db, anyio.fail_after(PATIENCE_SECONDS):
        query = f"SELECT what, setting FROM {postgres_store.schema}.noted".encode()
        while sorted(noted := db.execute(query).fetchall()) != [("chunks", "off"), ("chunks", "off"), ("events", "on")]:
            assert len(noted) < 3, noted
            await anyio.sleep(0.02)


async def test_to_read_on_in_a_long_call_costs_no_more_than_in_a_short_one(postgres_store: PostgresStore):
    journal = postgres_store.open()
    await driven(journal, "talks")
    for call in range(20):
        await journal.write_chunks({"talks": [Chunk(f"c{call}", number, "x") for number in range(1000)]})

    statement = tables.CHUNKS_OF.replace("{s}", postgres_store.schema)
    with psycopg.connect(target_of(postgres_store.address).conninfo) as db:
        db.execute(f"ANALYZE {postgres_store.schema}.chunks".encode())
        plan = db.execute(f"EXPLAIN (ANALYZE) {statement}".encode(), (["talks"], [b"c1"], [990])).fetchall()

    assert len(await journal.chunks("talks", "c1", after=990)) == 9
    assert not any("Seq Scan on chunks" in line or "Rows Removed by Filter: 9" in line for (line,) in plan), plan
