"""One run, followed for all who read it: what need not be asked again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from checkrein.control.feed import Ticker
from checkrein.control.live_text import Listeners
from checkrein.core.enums import CallKind
from checkrein.journal import Chunk, Lease
from checkrein.journal.memory import MemoryJournal
from checkrein.server.streaming import hub
from checkrein.server.streaming.frames import HEARD_SECONDS, RunFrames
from checkrein.server.streaming.hub import Hub
from checkrein.server.streaming.sse import Limits
from tests.control.test_left import dead, driven_by
from tests.journal.build import driven, permit, started
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


async def test_a_driver_that_has_just_streamed_need_not_be_looked_for_until_it_is_silent_or_was_given_up() -> None:
    journal, alive_at = await driven_by(dead())
    listeners = Listeners()
    workers_wanted = AsyncMock(return_value={})
    backend: Any = SimpleNamespace(
        journal=journal, listen=listeners.add, now=lambda: alive_at + 3600, workers_wanted=workers_wanted
    )
    frames = RunFrames(backend, "r", Limits(), Ticker())
    await frames.ready(is_fresh=False)
    assert not frames.is_told_of(time.monotonic())

    listeners.tell("r", Chunk("c1", 0, "a word"))
    heard_at = time.monotonic()

    assert frames.is_told_of(heard_at)
    assert not frames.is_told_of(heard_at + HEARD_SECONDS)
    await frames.look_at_lease()
    assert frames.viewer.left_at is not None
    assert not frames.is_told_of(heard_at), "whether it is back only its lease says"
    frames.close()


async def test_whether_runs_are_driven_is_one_question_however_many_are_read_and_text_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One question each would hold up the text of all runs of a front every two seconds."""
    monkeypatch.setattr(hub, "RECLAIM_SECONDS", 0.02)
    journal = MemoryJournal()
    runs = [f"r{n}" for n in range(20)]
    for run in runs:
        lease = await driven(journal, run, thread=run)
        await journal.append(run, [started(lease.epoch)], after=1, epoch=lease.epoch)
    asked = asyncio.Event()

    async def held(ids: Collection[str]) -> dict[str, Lease]:
        assert sorted(ids) == sorted(runs)
        asked.set()
        await asyncio.sleep(3_600)
        return {}

    backend: Any = SimpleNamespace(
        journal=journal, listen=Listeners().add, now=time.time, workers_wanted=AsyncMock(return_value={})
    )
    read = Hub(backend)
    feeds = [await read.feed(run) for run in runs]
    for feed in feeds:
        feed.readers.add(MagicMock(is_stuck=lambda *_: False))
    monkeypatch.setattr(journal, "leases", held)
    monkeypatch.setattr(journal, "lease", None)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asked.wait()
        await journal.append("r1", [permit("c1", kind=CallKind.MODEL)], after=2, epoch=1)
        await journal.write_chunks({"r1": [Chunk("c1", 0, "a word")]})
        while feeds[1].viewer.texts.text("c1") != "a word":
            await asyncio.sleep(0.01)
    await read.close()


def test_whoever_stops_to_listen_while_a_piece_is_told_leaves_the_others_their_turn() -> None:
    listeners = Listeners()
    told: list[str] = []

    def first(chunk: Chunk) -> None:
        told.append(f"first {chunk.text}")
        undo()

    undo = listeners.add("r", first)
    listeners.add("r", lambda chunk: told.append(f"second {chunk.text}"))

    for text in ("a", "b"):
        listeners.tell("r", Chunk("c1", 0, text))

    assert told == ["first a", "second a", "second b"]
