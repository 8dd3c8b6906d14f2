"""A run's feed: what it tells, in which order, and that it tells everything once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from checkrein.control.feed import Item, RunFeed, Ticker, items
from checkrein.control.live_text import Listeners
from checkrein.core.enums import CallKind, Outcome
from checkrein.core.events import CallFinished, CallStarted, Event, RunFinished, RunStarted
from checkrein.errors import StoreUnavailable
from checkrein.journal import Journal, Lease, MemoryJournal
from checkrein.journal.base import Chunk, Recorded
from tests.journal.build import driven, ended, new_id, permit, started
from tests.support.away import store_away
from tests.support.patience import PATIENCE_SECONDS, within

pytestmark = pytest.mark.anyio

WORDS = [f"word{n} " for n in range(30)]
TEXT = "".join(WORDS)


def pieces(stream: str, words: list[str]) -> list[Chunk]:
    at, found = 0, []
    for word in words:
        found.append(Chunk(stream, at, word))
        at += len(word)
    return found


def told(call: str, text: str) -> CallFinished:
    body = msgspec.json.encode({"message": {"type": "assistant", "text": text}, "model": "m"})
    return CallFinished(id=new_id(), at=4.0, call=call, outcome=Outcome.COMPLETED, result=msgspec.Raw(body))


def lost(call: str) -> CallFinished:
    """Of a call that its driver did not live to see the end of."""
    return CallFinished(id=new_id(), at=4.0, call=call, outcome=Outcome.FAILED, error="gone")


class World:
    """A run whose driver is the test: what it commits, what it streams, and what it writes down of that."""

    def __init__(self, journal: Journal, lease: Lease) -> None:
        self.journal = journal
        self.lease = lease
        self.listeners = Listeners()

    async def append(self, event: Event) -> None:
        seq = (await self.journal.load("r")).seq
        await self.journal.append("r", [event], after=seq, epoch=self.lease.epoch)

    async def begin_call(self, call: str) -> None:
        await self.append(permit(call, self.lease.epoch, CallKind.MODEL, name="model"))

    def stream(self, *chunks: Chunk) -> None:
        for chunk in chunks:
            self.listeners.tell("r", chunk)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with MemoryJournal() as journal:
        lease = await driven(journal)
        world = World(journal, lease)
        await world.append(started(lease.epoch))
        yield world


@asynccontextmanager
async def following(world: World, *, listens: bool = True) -> AsyncIterator[list[Item]]:
    """What a feed tells, while it follows the run."""
    heard: list[Item] = []
    listen = world.listeners.add if listens else None
    feed = RunFeed(world.journal, "r", on_record=heard.append, on_text=heard.append, listen=listen)
    running = asyncio.create_task(feed.run())
    try:
        yield heard
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(heard: list[Item], kind: type[Event], times: int = 1) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sum(isinstance(one, Recorded) and isinstance(one.event, kind) for one in heard) < times:
            await asyncio.sleep(0.01)


async def until_text(heard: list[Item], stream: str, text: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while text_of(heard, stream) != text:
            await asyncio.sleep(0.01)


def text_of(heard: list[Item], stream: str) -> str:
    """What was told of a text; the offsets must be those of the text."""
    text = ""
    for item in heard:
        if isinstance(item, Chunk) and item.call == stream:
            assert item.offset == len(text)
            text += item.text
    return text


def place(heard: list[Item], kind: type[CallStarted] | type[CallFinished], call: str) -> int:
    return next(
        n
        for n, item in enumerate(heard)
        if isinstance(item, Recorded) and isinstance(item.event, kind) and item.event.call == call
    )


async def check_order(world: World, heard: list[Item], texts: dict[str, str]) -> None:
    """Records as the journal has them; of each text everything once, between the records of its call."""
    assert [item for item in heard if isinstance(item, Recorded)] == list(await world.journal.read("r"))
    for stream, text in texts.items():
        assert text_of(heard, stream) == text
        where = [n for n, item in enumerate(heard) if isinstance(item, Chunk) and item.call == stream]
        assert place(heard, CallStarted, stream) < where[0]
        assert where[-1] < place(heard, CallFinished, stream)


@pytest.mark.parametrize("seed", range(20))
async def test_records_come_in_the_journals_order_and_text_once_between_the_records_of_its_call(
    world: World, seed: int
) -> None:
    """Pieces are streamed and written down in any order, some twice, some only here, some only there."""
    dice = random.Random(seed)
    calls = ["m1", "m2", "m3"]

    async with following(world) as heard:
        for call in calls:
            told_early = pieces(call, WORDS)[: dice.randrange(3)]
            world.stream(*told_early)  # before the record of its call
            await world.begin_call(call)
            parts = pieces(call, WORDS) + dice.choices(pieces(call, WORDS), k=10)
            dice.shuffle(parts)
            for part in parts:
                if dice.random() < 0.7:
                    world.stream(part)
                if dice.random() < 0.7:
                    await world.journal.write_chunks({"r": [part]})
                if dice.random() < 0.2:
                    await asyncio.sleep(dice.random() / 100)
            await world.append(told(call, TEXT))
            world.stream(*told_early)  # and after that of its end
        await world.append(ended())
        await until(heard, RunFinished)

    await check_order(world, heard, dict.fromkeys(calls, TEXT))


async def test_of_a_call_whose_end_does_not_tell_its_text_the_journals_chunks_come_before_its_end(world: World) -> None:
    async with following(world, listens=False) as heard:
        await world.begin_call("m1")
        await world.journal.write_chunks({"r": pieces("m1", WORDS)})
        await world.append(lost("m1"))
        await world.append(ended())
        await until(heard, RunFinished)

    await check_order(world, heard, {"m1": TEXT})


async def test_text_that_nobody_tells_is_read_while_it_is_written(world: World) -> None:
    async with following(world, listens=False) as heard:
        await world.begin_call("m1")
        await world.journal.write_chunks({"r": pieces("m1", WORDS)[:10]})
        await until_text(heard, "m1", "".join(WORDS[:10]))
        await world.journal.write_chunks({"r": pieces("m1", WORDS)[10:]})

        await until_text(heard, "m1", TEXT)


async def test_whoever_comes_late_finds_in_the_journal_what_had_streamed_before(world: World) -> None:
    await world.begin_call("m1")
    parts = pieces("m1", WORDS)
    await world.journal.write_chunks({"r": parts[:20]})

    async with following(world) as heard:
        await until_text(heard, "m1", "".join(WORDS[:20]))
        world.stream(*parts[25:])
        await world.journal.write_chunks({"r": parts[20:]})

        await until_text(heard, "m1", TEXT)


async def test_a_feed_that_failed_goes_on_where_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Item] = []
    feed = RunFeed(world.journal, "r", on_record=heard.append, on_text=heard.append, listen=world.listeners.add)
    await world.begin_call("m1")
    with monkeypatch.context() as broken:
        broken.setattr(type(world.journal), "follow", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await feed.run()
    await world.journal.write_chunks({"r": pieces("m1", WORDS)})
    await world.append(told("m1", TEXT))
    await world.append(ended())

    running = asyncio.create_task(feed.run())
    await until(heard, RunFinished)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    await check_order(world, heard, {"m1": TEXT})


async def test_items_end_with_the_run_and_raise_what_the_journal_raises(world: World) -> None:
    await world.begin_call("m1")
    await world.append(told("m1", TEXT))
    await world.append(ended())

    heard = [item async for item in items(world.journal, "r", world.listeners.add)]

    await check_order(world, heard, {"m1": TEXT})
    with pytest.raises(Exception, match="r-unknown"):
        _ = [item async for item in items(world.journal, "r-unknown")]


def _fail() -> None:
    raise ZeroDivisionError


async def test_those_who_ask_a_ticker_are_called_together_and_one_that_fails_keeps_no_other_from_it() -> None:
    called: list[str] = []
    done = asyncio.Event()
    ticker = Ticker(3600)

    ticker.soon(lambda: called.append("first"))
    ticker.soon(_fail)
    ticker.soon(done.set)
    await asyncio.wait_for(done.wait(), PATIENCE_SECONDS)
    ticker.soon(lambda: called.append("an hour later"))
    for _ in range(10):
        await asyncio.sleep(0)

    assert called == ["first"]


async def test_who_asks_a_ticker_soon_after_a_tick_is_called_at_the_next() -> None:
    ticker = Ticker(0.05)
    ticks: list[float] = []
    done = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tick() -> None:
        ticks.append(loop.time())
        if len(ticks) == 2:
            done.set()
        else:
            ticker.soon(tick)

    ticker.soon(tick)
    await asyncio.wait_for(done.wait(), PATIENCE_SECONDS)

    assert ticks[1] - ticks[0] >= 0.045


async def test_a_feed_hears_what_comes_within_a_second_of_the_return_of_a_store_that_was_away(world: World) -> None:
    assert isinstance(world.journal, MemoryJournal)
    async with following(world) as heard:
        await until(heard, RunStarted)
        with store_away(world.journal):
            await asyncio.sleep(0.5)

        back = time.monotonic()
        await world.append(ended())
        await until(heard, RunFinished)

        assert time.monotonic() - back < within(1.0)
        assert [one.seq for one in heard if isinstance(one, Recorded)] == [1, 2, 3]


async def test_a_feed_of_a_journal_that_was_closed_ends(world: World) -> None:
    feed = RunFeed(world.journal, "r", on_record=lambda record: None, on_text=lambda chunk: None)
    running = asyncio.create_task(feed.run())
    await asyncio.sleep(0.05)
    await world.journal.close()

    with pytest.raises(StoreUnavailable, match="closed"):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await running
