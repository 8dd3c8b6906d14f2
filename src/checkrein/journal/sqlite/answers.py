"""Handing answers from a thread to the tasks that wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

Waiter = asyncio.Future[Any]
Answer = tuple[Waiter | None, Any]
"""Whoever waits, if anybody does, and what it is told; an exception is raised there."""


def tell_all(answers: Iterable[Answer]) -> None:
    """Give everybody their answer, waking each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[Waiter, Any]]] = {}
    for future, answer in answers:
        if future is not None:
            loops.setdefault(future.get_loop(), []).append((future, answer))
    for loop, told in loops.items():
        with suppress(RuntimeError):  # the loop has ended, and with it everybody who waited
            loop.call_soon_threadsafe(settle, told)


def settle(told: Iterable[tuple[Waiter, Any]]) -> None:
    """Give answers to tasks of the event loop that this is called from."""
    for future, answer in told:
        if future.done():
            continue  # its task was cancelled; what was done stands
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
