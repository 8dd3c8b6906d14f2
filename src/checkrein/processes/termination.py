"""Ending, freezing and continuing families of processes from the event loop, without ever blocking it.

What belongs to a family and in which order it is signalled is in `families`; here its steps are taken in threads, with
the waiting in between on the loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeVar

import anyio
from anyio.lowlevel import RunVar

from checkrein.asyncutil import run_to_completion, start
from checkrein.processes import families, table
from checkrein.processes.families import Family, Steps, ending, freezing
from checkrein.processes.table import ProcessInfo
from checkrein.timings import TOOL_GRACE_SECONDS

T = TypeVar("T")

_log = logging.getLogger(__name__)

_LOOKS_AT_ONCE: Final = 4
"""More threads that read the process table only take each other's time."""
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("checkrein_looks")


async def end(
    family: Family, *, grace_seconds: float = TOOL_GRACE_SECONDS, until: Callable[[], float] | None = None
) -> list[ProcessInfo]:
    """End everybody in the family, whoever they fork meanwhile included; return who could not be ended.

    Stopped processes are continued so that they hear the SIGTERM. `until` replaces the grace by a moment on the
    monotonic clock that may still change while this runs.
    """
    moment = time.monotonic() + grace_seconds
    left = await _walk(ending(family, until=until or (lambda: moment)))
    if left:
        _log.warning("These processes could not be ended: %s", ", ".join(str(one.pid) for one in left))
    return left


async def hold(family: Family) -> list[ProcessInfo]:
    """Freeze everybody in the family and return those that had been running: what `resume` takes.

    Cancelled, it lets them go on again, since nobody would know whom.
    """
    return await run_to_completion(_walk(freezing(family)), take_back=resume)


async def resume(frozen: Iterable[ProcessInfo]) -> None:
    """Continue what `hold` froze, also when cancelled. One that the tool itself had stopped before stays stopped."""
    await run_to_completion(_in_thread(lambda: [table.send(one, signal.SIGCONT) for one in frozen]))


async def kill_again(family: Family) -> list[ProcessInfo]:
    """Kill those of a family once more that could not be ended; return who lived until now."""
    return await _in_thread(partial(families.kill_again, family))


async def _walk(steps: Steps[T]) -> T:
    while True:
        wait, result = await _in_thread(partial(_step, steps))
        if wait is None:
            assert result is not None
            return result[0]
        await asyncio.sleep(wait)


def _step(steps: Steps[T]) -> tuple[float | None, tuple[T] | None]:
    # StopIteration may not pass through a future.
    try:
        return next(steps), None
    except StopIteration as end_of_steps:
        return None, (end_of_steps.value,)


async def _in_thread(function: Callable[[], T]) -> T:
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_LOOKS_AT_ONCE)
        _limiter.set(limiter)
    return await anyio.to_thread.run_sync(function, limiter=limiter)


class Exit:
    """Tells when a child of this process has ended, without reaping it: until then its pid is nobody else's.

    Use it on the event loop; `close` it, and reap the child, when done.
    """

    def __init__(self, pid: int, happened: Callable[[], None] | None = None) -> None:
        self._pid = pid
        self._tell = happened
        self._loop = asyncio.get_running_loop()
        self._happened = asyncio.Event()
        self._handle: int | None = None
        try:
            self._handle = os.pidfd_open(pid)
        except (AttributeError, OSError):
            self._task = start(self._poll())
        else:
            self._loop.add_reader(self._handle, self._note)

    def __bool__(self) -> bool:
        return self._happened.is_set()

    async def wait(self) -> None:
        await self._happened.wait()

    async def _poll(self) -> None:
        """Where there are no process handles: look now and then."""
        while (found := table.row(self._pid)) is not None and found.lives:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        self._note()

    def _note(self) -> None:
        if self._handle is not None:
            self._loop.remove_reader(self._handle)
        self._happened.set()
        if self._tell is not None:
            self._tell()

    def close(self) -> None:
        if self._handle is None:
            self._task.cancel()
        else:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None
            self._happened.set()
