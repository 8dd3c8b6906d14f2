"""Text that streams is written to the journal at a steady pace."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from checkrein.control.live_text import REST, LiveText
from checkrein.journal import Chunk, MemoryJournal
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

WRITE_SECONDS = 0.02


class SlowJournal(MemoryJournal):
    """Takes a while for each write, and during the first of them more is said."""

    def __init__(self) -> None:
        super().__init__()
        self.texts_of = LiveText(self)
        self.written: list[Chunk] = []

    async def write_chunks(self, chunks: Mapping[str, Sequence[Chunk]]) -> None:
        if not self.written:
            self.texts_of.hear("r", "c1", 5, " world")
        self.written += chunks["r"]
        await sleep(WRITE_SECONDS)


sleep = asyncio.sleep


async def waits_of(text_seconds: float, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it waits before each write, of which nothing is waited for here."""
    monkeypatch.setattr(SlowJournal, "text_seconds", text_seconds)
    journal = SlowJournal()
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", wait)
    async with asyncio.timeout(PATIENCE_SECONDS):
        journal.texts_of.hear("r", "c1", 0, "hello")
        await journal.texts_of.kept()
    assert journal.written == [Chunk("c1", 0, "hello"), Chunk("c1", 5, " world")]
    return waits


async def test_what_the_store_takes_for_a_write_is_a_part_of_the_wait_for_the_next(monkeypatch: pytest.MonkeyPatch):
    first, second = await waits_of(3_600.0, monkeypatch)

    assert 3_599 < first <= 3_600
    assert second <= 3_600 - WRITE_SECONDS + 0.001, "a clock may be coarse"


async def test_a_store_that_is_slow_has_a_rest_between_two_writes(monkeypatch: pytest.MonkeyPatch):
    _, second = await waits_of(WRITE_SECONDS / 2, monkeypatch)

    assert second == WRITE_SECONDS / 2 / REST
