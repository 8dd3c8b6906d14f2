"""Streams that somebody else makes, stopped: also those that do not want to end. The witness is the stream itself."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable

import pytest

from checkrein.calls import stream
from checkrein.calls.stream import StreamExecution
from checkrein.core.enums import Outcome
from checkrein.secrets import OFF
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LET_GO_SECONDS", 0.2)


class Stubborn:
    """Two streams that do not end when they are told to. `go` ends them."""

    def __init__(self) -> None:
        self.told = 0
        self.go = asyncio.Event()

    async def swallows(self) -> AsyncIterator[str]:
        yield "one "
        await self._wait()
        yield "two"

    async def hangs_at_its_end(self) -> AsyncIterator[str]:
        try:
            yield "one "
            await asyncio.sleep(600)
        finally:
            await self._wait()

    async def _wait(self) -> None:
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.told += 1


@pytest.mark.parametrize("which", ["swallows", "hangs_at_its_end"])
async def test_a_stream_that_does_not_end_when_it_is_told_to_is_detached(which: str) -> None:
    source, shown = Stubborn(), []
    execution = StreamExecution(getattr(source, which), 1, lambda at, text: shown.append(text), secrets=OFF)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not shown:
            await asyncio.sleep(0.005)

        await execution.abort()
        ended = await execution.ended()

    assert (ended.outcome, ended.result, ended.left) == (Outcome.DETACHED, b'"one "', ("the stream",))
    assert source.told >= 1
    source.go.set()
    await asyncio.sleep(0.01)
    assert shown == ["one "], "nothing is shown after the stop"
    assert (await execution.ended()).outcome is Outcome.DETACHED


async def test_a_stream_that_ends_in_order_is_aborted() -> None:
    async def endless() -> AsyncIterator[str]:
        yield "one "
        await asyncio.sleep(600)

    shown: list[str] = []
    execution = StreamExecution(endless, 1, lambda at, text: shown.append(text), secrets=OFF)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not shown:
            await asyncio.sleep(0.005)
        await execution.abort()
        assert (await execution.ended()).outcome is Outcome.ABORTED


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("there is no text")


def exits() -> None:
    sys.exit(4)


def is_cancelled_by_nobody() -> None:
    raise asyncio.CancelledError


def cannot_say_what_is_wrong() -> None:
    raise Unprintable


@pytest.mark.parametrize("end", [exits, is_cancelled_by_nobody, cannot_say_what_is_wrong])
async def test_whatever_a_stream_raises_is_the_failure_of_its_call(end: Callable[[], None]) -> None:
    async def source() -> AsyncIterator[str]:
        yield "one "
        end()

    execution = StreamExecution(source, 1, lambda at, text: None, secrets=OFF)
    async with asyncio.timeout(PATIENCE_SECONDS):
        ended = await execution.ended()

    assert ended.outcome is Outcome.FAILED
    assert ended.error
