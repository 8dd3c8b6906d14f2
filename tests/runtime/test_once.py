"""What comes once: everybody who waits gets it, whoever else gave up."""

from __future__ import annotations

import asyncio

import pytest

from checkrein.runtime.once import Once

pytestmark = pytest.mark.anyio


async def test_everybody_who_waits_gets_it_and_so_does_whoever_comes_later():
    once: Once[int] = Once()
    waiting = [asyncio.ensure_future(once.get()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not once.done()

    once.set(7)

    assert await asyncio.gather(*waiting) == [7, 7, 7]
    assert await once.get() == 7


async def test_the_first_word_stands():
    once: Once[int] = Once()

    once.set(1)
    once.set(2)

    assert await once.get() == 1


async def test_one_who_gives_up_disturbs_nobody_else():
    once: Once[int] = Once()
    patient, impatient = asyncio.ensure_future(once.get()), asyncio.ensure_future(once.get())
    await asyncio.sleep(0)

    impatient.cancel()
    await asyncio.sleep(0)
    once.set(7)

    assert impatient.cancelled()
    assert await patient == 7


async def test_nothing_is_a_value_too():
    once: Once[None] = Once()

    once.set(None)

    assert once.done()
    async with asyncio.timeout(5):
        await once.get()
