"""Streams whose sockets are read together: nothing is lost or out of order, and nobody else waits for them."""

from __future__ import annotations

import asyncio
import selectors
import socket
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, suppress

import pytest

from checkrein.models.http import selector
from checkrein.models.http.client import COALESCED_AFTER, Response, Timeouts, client
from checkrein.models.http.selector import FEWEST_STREAMS, CoalescingSelector, coalesce_reads, coalescing
from tests.models.sockets import END, HEAD, chunk, listening, request
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.witness import until

INTERVAL = 1.0
"""Long enough to be told from a machine that does other things as well."""


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Iterator[CoalescingSelector]:
    monkeypatch.setattr(selector, "SECONDS_AT_MOST", INTERVAL)
    monkeypatch.setattr(selector, "SECONDS_PER_STREAM", INTERVAL)
    found = CoalescingSelector(selectors.DefaultSelector())
    yield found
    found.close()


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    with ExitStack() as stack:
        made = [socket.socketpair() for _ in range(FEWEST_STREAMS)]
        for pair in made:
            for one in pair:
                stack.enter_context(one)
        yield made


def streams(looked: CoalescingSelector, pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    for number, (near, _) in enumerate(pairs):
        looked.register(near, selectors.EVENT_READ, number)
        looked.coalesce(near.fileno())


def ready(looked: CoalescingSelector, timeout: float | None = 0) -> list[int]:
    found = looked.select(timeout)
    return sorted(key.data for key, _ in found)


def test_the_first_after_a_quiet_time_is_ready_at_once_and_the_next_are_ready_together(
    looked: CoalescingSelector, pairs: list[tuple[socket.socket, socket.socket]]
) -> None:
    streams(looked, pairs)
    pairs[0][1].send(b"a")
    assert ready(looked, 10.0) == [0]
    pairs[0][0].recv(9)
    began = time.monotonic()

    pairs[1][1].send(b"b")
    pairs[2][1].send(b"c")

    assert ready(looked) == []
    assert ready(looked, None) == [1, 2]
    assert time.monotonic() - began > INTERVAL / 2


def test_a_socket_that_is_not_coalesced_is_ready_at_once_while_others_wait(
    looked: CoalescingSelector, pairs: list[tuple[socket.socket, socket.socket]]
) -> None:
    streams(looked, pairs)
    near, far = socket.socketpair()
    with near, far:
        looked.register(near, selectors.EVENT_READ, 99)
        pairs[0][1].send(b"a")
        assert ready(looked, 10.0) == [0]

        far.send(b"now")

        assert ready(looked, None) == [99]


def test_with_few_streams_nothing_waits(
    looked: CoalescingSelector, pairs: list[tuple[socket.socket, socket.socket]]
) -> None:
    streams(looked, pairs[:-1])

    for _, far in pairs[:3]:
        far.send(b"a")

    assert ready(looked) == [0, 1, 2]
    assert ready(looked) == [0, 1, 2]


def test_a_timeout_that_is_shorter_than_the_interval_is_kept(
    looked: CoalescingSelector, pairs: list[tuple[socket.socket, socket.socket]]
) -> None:
    streams(looked, pairs)
    pairs[0][1].send(b"a")
    assert ready(looked, 10.0) == [0]
    began = time.monotonic()

    assert ready(looked, 0.01) == []

    assert time.monotonic() - began < within(INTERVAL)


def test_one_that_is_released_or_written_to_or_closed_no_longer_waits(
    looked: CoalescingSelector, pairs: list[tuple[socket.socket, socket.socket]]
) -> None:
    streams(looked, pairs)
    extra, far = socket.socketpair()
    with extra, far:
        looked.register(extra, selectors.EVENT_READ, 77)
        looked.coalesce(extra.fileno())
        pairs[0][1].send(b"a")
        assert ready(looked, 10.0) == [0]

        looked.release(pairs[1][0].fileno())
        looked.modify(pairs[2][0], selectors.EVENT_READ | selectors.EVENT_WRITE, 2)
        looked.unregister(extra)
        pairs[1][1].send(b"b")
        far.send(b"nobody reads this")

        assert ready(looked) == [1, 2]
        with pytest.raises(KeyError):
            looked.get_key(extra)
        assert looked.get_key(pairs[0][0]).data == 0


def test_what_is_not_registered_is_neither_coalesced_nor_released(looked: CoalescingSelector) -> None:
    for descriptor in (-1, 12345):
        looked.coalesce(descriptor)
        looked.release(descriptor)

    assert ready(looked) == []


class Talk:
    """Answers every request with numbered lines, until it is told to end."""

    def __init__(self) -> None:
        self.goes_on = True
        self.gone = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request(reader)
            writer.write(HEAD)
            number = 0
            while self.goes_on:
                writer.write(chunk(b"%d\n" % number))
                number += 1
                try:
                    await writer.drain()
                except ConnectionError:
                    self.gone += 1
                    raise
                await asyncio.sleep(0.01)
            writer.write(chunk(b"%d\n" % number) + END)


@pytest.fixture
async def coalesced() -> AsyncGenerator[CoalescingSelector, None]:
    coalesce_reads(asyncio.get_running_loop())
    found = coalescing(asyncio.get_running_loop())
    assert found is not None
    yield found
    await client().close()


async def ask(address: str) -> Response:
    return await client().post(f"http://{address}", {}, b"{}", who="acme (host)", timeouts=Timeouts())


async def lines(response: Response, *, pieces: list[int]) -> list[int]:
    parts = []
    while data := await response.read():
        parts.append(data)
        pieces.append(data.count(b"\n"))
    response.close()
    return [int(line) for line in b"".join(parts).split()]


@pytest.mark.anyio
async def test_many_answers_are_read_whole_and_in_order_and_several_pieces_at_a_time(
    coalesced: CoalescingSelector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selector, "SECONDS_PER_STREAM", 0.1)
    talk = Talk()
    pieces: list[list[int]] = [[] for _ in range(2 * FEWEST_STREAMS)]

    async with listening(talk) as address:
        responses = [await ask(address) for _ in pieces]
        reading = [
            asyncio.create_task(lines(response, pieces=brought))
            for response, brought in zip(responses, pieces, strict=True)
        ]
        await until(lambda: all(max(brought[COALESCED_AFTER + 1 :], default=0) > 2 for brought in pieces))
        talk.goes_on = False
        told = await asyncio.wait_for(asyncio.gather(*reading), PATIENCE_SECONDS)
        # The connections are used again, and the next answer over one of them is not held back.
        assert await asyncio.wait_for(lines(await ask(address), pieces=[]), PATIENCE_SECONDS) == [0]

    assert all(each == list(range(len(each))) for each in told)
    assert len(coalesced._patient.get_map()) == 0


@pytest.mark.anyio
async def test_a_stop_closes_the_connection_of_a_coalesced_answer_at_once(
    coalesced: CoalescingSelector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selector, "SECONDS_PER_STREAM", 600.0)
    monkeypatch.setattr(selector, "SECONDS_AT_MOST", 600.0)
    talk = Talk()

    async with listening(talk) as address:
        responses = [await ask(address) for _ in range(FEWEST_STREAMS)]
        reading = [asyncio.create_task(lines(response, pieces=[])) for response in responses]
        while len(coalesced._patient.get_map()) < FEWEST_STREAMS:
            await asyncio.sleep(0.01)
        for task in reading:
            task.cancel()
        for task in reading:
            with suppress(asyncio.CancelledError):
                await task

        async with asyncio.timeout(PATIENCE_SECONDS):
            while talk.gone < FEWEST_STREAMS:
                await asyncio.sleep(0.01)

    assert len(coalesced._patient.get_map()) == 0
