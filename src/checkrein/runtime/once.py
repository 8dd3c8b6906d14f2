"""Something that comes once, and that many may wait for."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """A value that is given once and never changes. Cancelling somebody who waits for it disturbs nobody else.

    A future would be cancelled with the first who waits, and a shield around it costs a turn of the event loop.
    """

    def __init__(self) -> None:
        self._given: list[T] = []
        self._waiting: list[asyncio.Future[None]] = []

    def done(self) -> bool:
        return bool(self._given)

    def set(self, value: T) -> None:
        """Give it, unless it was given already."""
        if not self._given:
            self._given.append(value)
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    async def get(self) -> T:
        """Return it as soon as it is there."""
        if not self._given:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        return self._given[0]
