"""`surely`: what was begun is finished, and whoever waited is cancelled all the same."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from anyio.lowlevel import checkpoint

from checkrein.asyncutil import run_to_completion

pytestmark = pytest.mark.anyio


async def work(done: list[str], seconds: float = 0.01) -> str:
    await asyncio.sleep(seconds)
    done.append("done")
    return "result"


async def is_cancelled(waiting: asyncio.Task[str], times: int = 1) -> None:
    """Cancel whoever waits, so often, and have them hear of it."""
    for _ in range(times):
        await asyncio.sleep(0.001)
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_it_gives_the_result():
    assert await run_to_completion(work([])) == "result"


async def test_it_raises_what_the_work_raises():
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await run_to_completion(fail())


@pytest.mark.parametrize("times", [1, 3])
async def test_whoever_is_cancelled_hears_of_it_when_the_work_is_over(times: int):
    done: list[str] = []
    waiting = asyncio.create_task(run_to_completion(work(done)))

    await is_cancelled(waiting, times)

    assert done == ["done"]


async def test_what_nobody_is_there_to_take_is_taken_back():
    taken_back: list[str] = []

    async def take_back(result: str) -> None:
        await asyncio.sleep(0)
        taken_back.append(result)

    waiting = asyncio.create_task(run_to_completion(work([]), take_back=take_back))

    await is_cancelled(waiting)

    assert taken_back == ["result"]


async def test_what_was_taken_is_not_taken_back():
    async def take_back(result: str) -> None:
        raise AssertionError("it was taken")

    assert await run_to_completion(work([]), take_back=take_back) == "result"


async def test_a_scope_of_anyio_is_waited_out_too():
    done: list[str] = []

    with anyio.move_on_after(0.005) as scope:
        await run_to_completion(work(done, 0.05))
        await checkpoint()
        done.append("went on")

    assert scope.cancelled_caught
    assert done == ["done"]
