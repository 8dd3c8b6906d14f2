"""The small process beside a runtime that outlives its death by kill -9, and kills it when its event loop hangs.

What it does is in `watch`; this is the runtime's side of it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio

from checkrein.journal.surely import surely
from checkrein.runtime import table, watch
from checkrein.runtime.loading import refuse_in_worker
from checkrein.runtime.processes import Exit
from checkrein.runtime.tracking import outside

_READY_SECONDS: Final = 20.0
_LEAVE_SECONDS: Final = 2.0
_PINGS: Final = 4
"""How often the watchdog is pinged within the time that it allows."""
_RESTART_SECONDS: Final = 1.0


class Supervisor:
    """Watches this process from outside. Belongs to one event loop; if it is itself killed, another takes its place.

    From `start` until `close`, when this process dies, however it dies, every process that carries the mark
    `CHECKREIN_RUNTIME=<mark>` or comes from one that does is ended with SIGKILL.
    """

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._exit: Exit | None = None
        self._loop = asyncio.get_running_loop()
        self._armed: dict[object, float] = {}
        self._parent = ""
        self._timer: asyncio.TimerHandle | None = None
        self._restarting: asyncio.Task[None] | None = None
        self._is_open = True

    @classmethod
    async def start(cls, mark: str) -> Supervisor:
        """Start one; on return it watches. Raises `OSError` if it cannot be started. Cancelled, it leaves none."""
        refuse_in_worker()
        supervisor = cls(mark)
        await surely(supervisor._start(), take_back=lambda _: supervisor.close())
        return supervisor

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def _start(self) -> None:
        process, line = await anyio.to_thread.run_sync(_popen, self.mark)
        self._process, self._line = process, line
        self._exit = Exit(process.pid, self._died)
        try:
            async with asyncio.timeout(_READY_SECONDS):
                ready = await self._loop.sock_recv(line, 16)
        except TimeoutError:
            ready = b""
        if not ready:
            process.kill()
            await self._exit.wait()
            self._bury()
            raise OSError("the supervisor process did not start")
        self._say_armed()
        if self._parent:
            self._say(self._parent)

    async def close(self) -> None:
        """End it: this runtime has ended its tools by itself. Cancelling this does not keep it."""
        await surely(self._close())

    async def _close(self) -> None:
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        if self._restarting is not None:
            with suppress(OSError):
                await self._restarting
        if self._process is None or self._exit is None:
            return
        self._say("bye")
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._exit.wait()
        if not self._exit:
            self._process.kill()
            await self._exit.wait()
        self._bury()

    # -- its own death

    def _died(self) -> None:
        if self._is_open and self._restarting is None:
            self._restarting = self._loop.create_task(self._restart(), context=outside())

    async def _restart(self) -> None:
        try:
            while self._is_open:
                self._bury()
                with suppress(OSError):
                    await self._start()
                    return
                await asyncio.sleep(_RESTART_SECONDS)
        finally:
            self._restarting = None

    def _bury(self) -> None:
        if self._exit is not None:
            self._exit.close()
        if self._line is not None:
            self._line.close()
        if self._process is not None:
            self._process.wait()
        self._process = self._line = self._exit = None

    # -- the process that this one belongs to

    def end_with(self, parent: table.Row, *, grace_seconds: float) -> None:
        """From when `parent` is gone this process has so long to end by itself; then it is killed."""
        self._parent = f"parent {parent.pid} {parent.started!r} {grace_seconds}"
        self._say(self._parent)

    # -- the watchdog

    @asynccontextmanager
    async def watchdog(self, seconds: float) -> AsyncIterator[None]:
        """Inside the block this process is killed, and its tools with it, if its event loop does not come round for so
        many seconds. Blocks may overlap: the shortest time counts."""
        block = object()
        self._armed[block] = seconds
        self._say_armed()
        try:
            yield
        finally:
            del self._armed[block]
            self._say_armed()

    def _say_armed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._armed:
            seconds = min(self._armed.values())
            self._say(f"arm {seconds}")
            self._timer = self._loop.call_later(seconds / _PINGS, self._ping, seconds / _PINGS)
        else:
            self._say("disarm")

    def _ping(self, every: float) -> None:
        self._say("ping")
        self._timer = self._loop.call_later(every, self._ping, every)

    def _say(self, word: str) -> None:
        # One that does not read any more must not block us; if it is gone, `_died` sees to it.
        if self._line is not None:
            with suppress(OSError):
                self._line.send(word.encode() + b"\n")


def _popen(mark: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        program = Path(watch.__file__)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(program), str(os.getpid()), repr(table.row_of_self().started), mark],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours
