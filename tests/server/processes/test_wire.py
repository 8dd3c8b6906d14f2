"""How a front and its drivers talk: nothing is garbled, and nobody ever waits for the other to read."""

from __future__ import annotations

import asyncio
import socket

import pytest

from checkrein.core.conditions import Cost, Turns
from checkrein.journal.contract import Chunk
from checkrein.server.backend import AgentCard
from checkrein.server.front.driving import Teller
from checkrein.server.front.wire import FULL_BYTES, Broken, End, Hello, Line, Live, Message, Ping, Pong, packed

pytestmark = pytest.mark.anyio

CARD = AgentCard(name="churn", description="Ω", tools=("a", "b"), stop_when=Turns(20) | Cost(usd=1), warnings=("w",))
MESSAGES: list[Message] = [
    Hello((CARD, AgentCard(name="plain"))),
    Live([("r-1", Chunk("c1", 0, "ä\u2028text")), ("r-2", Chunk("c9#2", 7, ""))]),
    Ping(3),
    Pong(3),
    Broken("file_broken", "crew.py, line 3: it does not end."),
    End(),
]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
async def test_messages_arrive_whole_however_they_are_cut(size: int) -> None:
    heard: list[Message] = []
    line = Line(heard.append, lambda: None)
    sent = b"".join(packed(message) for message in MESSAGES)

    for at in range(0, len(sent), size):
        line.data_received(sent[at : at + size])

    assert heard == MESSAGES


async def test_text_that_nobody_reads_is_dropped_and_does_not_pile_up() -> None:
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    line = Line(lambda message: None, lambda: None)
    transport, _ = await loop.create_connection(lambda: line, sock=ours)
    teller = Teller(line)

    for n in range(2000):
        teller.hear("r-1", Chunk("c1", n, "x" * 10_000))
        await asyncio.sleep(0)

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

    line = Line(lambda message: None, lambda: None)
    mine, _ = await loop.create_connection(lambda: line, sock=ours)
    other, _ = await loop.create_connection(lambda: Line(hear, lambda: None), sock=theirs)
    teller = Teller(line)

    for n in range(3):
        teller.hear("r-1", Chunk("c1", n, "x"))
    await asyncio.wait_for(arrived.wait(), 10)

    assert heard == [Live([("r-1", Chunk("c1", n, "x")) for n in range(3)])]
    mine.abort()
    other.abort()


async def test_the_end_of_the_other_side_is_heard() -> None:
    ours, theirs = socket.socketpair()
    gone = asyncio.Event()
    line = Line(lambda message: None, gone.set)
    await asyncio.get_running_loop().create_connection(lambda: line, sock=ours)

    theirs.close()
    await asyncio.wait_for(gone.wait(), 10)

    line.say(Ping(1))  # nobody there: no error either
