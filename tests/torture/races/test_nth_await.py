"""The cutting itself: it reaches every await, in every way, and sees what is swallowed or never ends."""

from __future__ import annotations

import asyncio

import pytest

from tests.torture.races import nth_await
from tests.torture.races.nth_await import Cut, How, at_every_await

pytestmark = pytest.mark.anyio


async def test_a_coroutine_is_cancelled_at_each_of_its_awaits_in_every_way():
    reached: list[list[str]] = []

    async def three_awaits(seen: list[str]) -> None:
        for name in ("first", "second", "third"):
            seen.append(name)
            await asyncio.sleep(0.01 if name == "second" else 0)

    async def scene(cut: Cut) -> None:
        seen: list[str] = []
        reached.append(seen)
        await cut.run(three_awaits(seen))

    awaits = await at_every_await(scene)

    assert awaits == 3
    every = [["first"], ["first", "second"], ["first", "second", "third"], ["first", "second", "third"]]
    assert reached == every * 3


@pytest.mark.parametrize("offset", range(6))
@pytest.mark.parametrize("awaits", [1, 2, 7])
async def test_a_sample_of_cuts_is_never_empty_and_leaves_most_of_them_out(awaits: int, offset: int):
    made: list[tuple[int, How]] = []

    async def some_awaits() -> None:
        for _ in range(awaits):
            await asyncio.sleep(0)

    async def scene(cut: Cut) -> None:
        await cut.run(some_awaits())
        if cut.was_reached:
            made.append((cut.number, cut.how))

    await at_every_await(scene, stride=3, offset=offset)

    assert made
    assert len(set(made)) == len(made) <= awaits * len(How) // 3 + 1


async def test_whoever_waits_long_is_also_cancelled_in_the_middle_of_it():
    began: list[str] = []

    async def begin() -> None:
        began.append("it")
        await asyncio.sleep(1)

    async def wait() -> None:
        await asyncio.wait([asyncio.ensure_future(begin())])

    cut = Cut(1, How.MIDWAY)
    await cut.run(wait())

    assert cut.was_made
    assert began == ["it"]


async def test_an_answer_that_has_come_is_lost_to_whoever_is_cancelled_then():
    given: list[str] = []

    async def give() -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def come() -> None:
            given.append("it")
            answer.set_result("it")

        asyncio.get_running_loop().call_soon(come)
        return await answer

    assert await Cut(1, How.ANSWERED).run(give()) is None
    assert given == ["it"]


async def test_a_cancellation_that_is_swallowed_is_seen():
    async def swallow() -> str:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            return "all is well"
        return "done"

    with pytest.raises(AssertionError, match="swallowed"):
        await Cut(1, How.AT_ONCE).run(swallow())


async def test_one_that_does_not_end_is_seen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(nth_await, "PATIENCE_SECONDS", 0.1)
    stop = asyncio.Event()

    async def go_on() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            await stop.wait()

    with pytest.raises(AssertionError, match="did not end"):
        await Cut(1, How.AT_ONCE).run(go_on())


async def test_the_place_of_the_cut_is_named():
    async def inner() -> None:
        await asyncio.sleep(0)

    async def outer() -> None:
        await inner()

    cut = Cut(1, How.AT_ONCE)
    await cut.run(outer())

    assert "outer" in cut.place
    assert "inner" in cut.place
