"""Finishing what was begun, also when whoever waits for it is cancelled.

A shield of anyio holds against anyio's own cancellations only. `Task.cancel`, which asyncio's timeouts and task groups
and `asyncio.run` use, goes right through it; and a thread whose task was cancelled goes on, and its result is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from anyio import CancelScope

T = TypeVar("T")


async def surely(
    work: Coroutine[Any, Any, T], *, take_back: Callable[[T], Coroutine[Any, Any, object]] | None = None
) -> T:
    """Do `work` to its end, in a task of its own. A cancellation that comes meanwhile is raised afterwards.

    `take_back` is then given what `work` returned, since nobody else will be. For what ends by itself, and soon.
    """
    task = asyncio.get_running_loop().create_task(work)
    cancelled = await _over(task)
    if cancelled is None:
        return task.result()
    if not task.cancelled() and task.exception() is None and take_back is not None:
        await _over(asyncio.get_running_loop().create_task(take_back(task.result())))
    raise cancelled


async def _over(task: asyncio.Task[Any]) -> asyncio.CancelledError | None:
    """Wait until `task` is over; return the latest cancellation that came meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    with CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
    return cancelled
