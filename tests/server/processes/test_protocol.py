"""How a front and its drivers talk: nothing is garbled, and nobody ever waits for the other to read."""

from __future__ import annotations

import asyncio
import socket
from unittest.mock import Mock

import pytest

from checkrein.control.worker_roster import AgentCard
from checkrein.core.conditions import Cost, Turns
from checkrein.journal.base import Chunk
from checkrein.server.processes.driver_link import TELL_SECONDS_AT_MOST, Teller
from checkrein.server.processes.protocol import (
    FULL_BYTES,
    Broken,
    End,
    Hello,
    Live,
    Message,
    MessageConnection,
    packed,
)
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import until

pytestmark = pytest.mark.anyio

CARD = AgentCard(name="churn", description="Ω", tools=("a", "b"), stop_when=Turns(20) | Cost(usd=1), warnings=("w",))
MESSAGES: list[Message] = [
    Hello((CARD, AgentCard(name="plain"))),
    Live([("r-1", Chunk("c1", 0, "ä\u2028text")), ("r-2", Chunk("c9#2", 7, ""))]),
    Broken("file_broken", "crew.py, line 3: it does not end."),
    End(),
]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
async def test_messages_arrive_whole_however_they_are_cut(size: int) -> None:
    heard: list[Message] = []
    line = MessageConnection(heard.append, lambda: None)
    sent = b"".join(packed(message) for message in MESSAGES)

    for at in range(0, len(sent), size):
        line.data_received(sent[at : at + size])

    assert heard == MESSAGES


async def test_a_line_on_which_more_is_announced_than_anybody_would_say_is_closed() -> None:
    ours, theirs = socket.socketpair()
    gone = asyncio.Event()
    line = MessageConnection(lambda message: None, gone.set)
    await asyncio.get_running_loop().create_connection(lambda: line, sock=ours)

    theirs.sendall(b"GET / HTTP/1.1\r\n\r\n")
    await asyncio.wait_for(gone.wait(), PATIENCE_SECONDS)

    assert theirs.recv(1) == b""
    theirs.close()


async def test_text_that_nobody_reads_is_dropped_and_does_not_pile_up() -> None:
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    line = MessageConnection(lambda message: None, lambda: None)
    transport, _ = await loop.create_connection(lambda: line, sock=ours)
    teller = Teller(line)

    after_full = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while after_full < 30:  # what has streamed is told every few milliseconds, and it goes on though nobody reads
            for _ in range(50):
                teller.hear("r-1", Chunk("c1", after_full, "x" * 10_000))
            await asyncio.sleep(0.01)
            after_full += line.is_full

    assert line.is_full
    assert transport.get_write_buffer_size() < 2 * FULL_BYTES
    transport.abort()
    theirs.close()


async def test_what_is_said_in_one_turn_of_the_loop_goes_out_together() -> None:
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    heard: list[Message] = []
    arrived = asyncio.Event()

    def hear(message: Message) -> None:
        heard.append(message)
        arrived.set()

    line = MessageConnection(lambda message: None, lambda: None)
    mine, _ = await loop.create_connection(lambda: line, sock=ours)
    other, _ = await loop.create_connection(lambda: MessageConnection(hear, lambda: None), sock=theirs)
    teller = Teller(line)

    for n in range(3):
        teller.hear("r-1", Chunk("c1", n, "x"))
    await asyncio.wait_for(arrived.wait(), PATIENCE_SECONDS)

    assert heard == [Live([("r-1", Chunk("c1", 0, "xxx"))])]
    mine.abort()
    other.abort()


async def test_the_more_runs_stream_at_once_the_more_of_each_goes_out_together() -> None:
    """So that the front's work grows slower than the number of tokens; and nobody who reads along has to wait."""
    line = Mock(is_full=False)
    teller = Teller(line)
    loop = asyncio.get_running_loop()
    told_at: list[float] = []
    line.say.side_effect = lambda message: told_at.append(loop.time())

    async def all_say_something() -> None:
        told = len(told_at)
        for run in range(1000):
            teller.hear(f"r-{run}", Chunk("c1", told, "x"))
        await until(lambda: len(told_at) > told)

    await all_say_something()
    await all_say_something()

    assert told_at[1] - told_at[0] > TELL_SECONDS_AT_MOST / 2
    assert TELL_SECONDS_AT_MOST <= 0.1


async def test_the_end_of_the_other_side_is_heard() -> None:
    ours, theirs = socket.socketpair()
    gone = asyncio.Event()
    line = MessageConnection(lambda message: None, gone.set)
    await asyncio.get_running_loop().create_connection(lambda: line, sock=ours)

    theirs.close()
    await asyncio.wait_for(gone.wait(), PATIENCE_SECONDS)

    line.say(End())  # nobody there: no error either
