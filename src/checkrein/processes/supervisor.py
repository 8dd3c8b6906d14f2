"""The small process beside a runtime: it outlives the runtime's death by kill -9, and is its one watchdog.

What it does, and what is watched, is in `supervisor_main`. Here are the runtime's side, which answers for its event
loop with a heartbeat, and `tell_stop_waits`: how anybody who has accepted a stop has the process watched that should
carry it out.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import anyio

from checkrein.asyncutil import run_to_completion
from checkrein.journal.base import Owner
from checkrein.processes import ipc, supervisor_main, table
from checkrein.processes.identity import this_process
from checkrein.processes.termination import Exit

MARK: Final = "CHECKREIN_SUPERVISOR"
"""On the supervisor's child alone: by it, and by its parent, it is found."""

_READY_SECONDS: Final = 20.0
_LEAVE_SECONDS: Final = 2.0
_RESTART_SECONDS: Final = 1.0
_TOLD_SECONDS: Final = 0.5
"""So long a process need not be told again: once told, it is watched for longer."""

_log = logging.getLogger(__name__)


class Supervisor:
    """Watches this process from outside. Belongs to one event loop; if it is itself killed, another takes its place.

    From `start` until `close`, when this process dies, however it dies, every process that carries the mark
    `CHECKREIN_RUNTIME=<mark>` or comes from one that does is ended with SIGKILL. While a stop waits, this process is
    itself killed when its event loop gives no heartbeat within the grace.
    """

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._exit: Exit | None = None
        self._loop = asyncio.get_running_loop()
        self.has_waiting_stop: Callable[[], bool] = lambda: False
        """Asked with every heartbeat: for so long as a stop waits here, the next one is asked for."""
        self._parent = ""
        self._store = ""
        self._restarting: asyncio.Task[None] | None = None
        self._is_open = True
        _OWN[mark] = self

    @classmethod
    async def start(cls, mark: str) -> Supervisor:
        """Start one; on return it watches. Raises `OSError` if it cannot be started. Cancelled, it leaves none."""
        supervisor = cls(mark)
        await run_to_completion(supervisor._start(), take_back=lambda _: supervisor.close())
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
        except OSError:  # it is late, or was ended before it could answer
            ready = b""
        if not ready:
            process.kill()
            await self._exit.wait()
            self._bury()
            raise OSError("the supervisor process did not start")
        self._loop.add_reader(line, self._hear, line)
        for said in (self._parent, self._store):
            if said:
                self._say(said)

    async def close(self) -> None:
        """End it: this runtime has ended its tools by itself. Cancelling this does not keep it."""
        await run_to_completion(self._close())

    async def _close(self) -> None:
        self._is_open = False
        _OWN.pop(self.mark, None)
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
            _log.warning("The supervisor process %d does not end by itself, and is killed.", self._process.pid)
            self._process.kill()
            await self._exit.wait()
        self._bury()

    # -- its own death

    def _died(self) -> None:
        if self._is_open and self._restarting is None:
            _log.warning("The supervisor process has died; another one takes its place.")
            self._restarting = self._loop.create_task(self._restart(), context=contextvars.Context())

    async def _restart(self) -> None:
        try:
            while self._is_open:
                self._bury()
                try:
                    return await self._start()
                except OSError as error:
                    _log.warning("No supervisor process could be started; it is tried again: %s", error)
                await asyncio.sleep(_RESTART_SECONDS)
        finally:
            self._restarting = None

    def _bury(self) -> None:
        if self._exit is not None:
            self._exit.close()
        if self._line is not None:
            self._loop.remove_reader(self._line)
            self._line.close()
        if self._process is not None:
            self._process.wait()
        self._process = self._line = self._exit = None

    # -- the process that this one belongs to

    def end_with(self, parent: table.ProcessInfo, *, grace_seconds: float) -> None:
        """From when `parent` is gone this process has so long to end by itself; then it is killed."""
        self._parent = f"parent {parent.pid} {parent.started!r} {grace_seconds}"
        self._say(self._parent)

    # -- the watchdog

    def heed_halts(self, store: str) -> None:
        """Have halts of this store looked for from outside, by flag and, in a file, by fence. A password is not told:
        of a database only its name counts there."""
        place, at, where = store.rpartition("@")
        store = f"{place.partition('://')[0]}://{where}" if at and store.startswith("postgres") else store
        self._store = f"store {os.path.abspath(path)}" if (path := _path(store)) else f"store {store}"
        self._say(self._store)

    def stop_waits(self) -> None:
        """Have this process watched until the stop is carried out. May be called from any thread."""
        self._say("stop")

    def _hear(self, line: socket.socket) -> None:
        try:
            asked = line.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            asked = b""
        if not asked:
            self._loop.remove_reader(line)  # it is gone: `_died` sees to it
            return
        self._say("heartbeat stop waits" if self.has_waiting_stop() else "heartbeat")

    def _say(self, word: str) -> None:
        # One that does not read any more must not block us; if it is gone, `_died` sees to it.
        if self._line is not None:
            with suppress(OSError):
                self._line.send(word.encode("utf-8", "surrogateescape") + b"\n")


def _path(store: str) -> str:
    return "" if store.startswith(("postgres", "memory")) else os.path.expanduser(store.removeprefix("sqlite:///"))


def _popen(mark: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    with ipc.socket_pair() as (ours, theirs):
        program = Path(supervisor_main.__file__)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(program), str(os.getpid()), repr(table.row_of_self().started), mark],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=_stderr(),
            start_new_session=True,
            cwd="/",
            env={**os.environ, MARK: mark},
        )
    return process, ours


def _stderr() -> int:
    """Where a person reads that this process was killed: also while what tools print goes elsewhere."""
    try:
        return subprocess.DEVNULL if sys.__stderr__ is None else sys.__stderr__.fileno()
    except (OSError, ValueError):
        return subprocess.DEVNULL


async def tell_stop_waits(owners: Iterable[Owner], *, is_halt: bool = False) -> None:
    """Have each of these processes watched, as a stop waits for it: one that gives no heartbeat within the grace dies.

    Reaches processes of this host and this user; one elsewhere finds the stop when it renews its leases.
    """
    host, now = this_process().host, time.monotonic()
    for process in [process for process, at in _told_at.items() if now - at > _TOLD_SECONDS]:
        _told_at.pop(process, None)
    for owner in owners:
        own = _OWN.get(owner.process)
        if own is not None:  # no need to look for it among all processes
            own.stop_waits()
        elif owner.host == host and owner.pid > 0 and owner.process not in _told_at:
            _told_at[owner.process] = now
            await anyio.to_thread.run_sync(_signal_supervisor_of, owner, is_halt)


def tell_halt_waits(pid: int) -> None:
    """The same of a halt, for a child process of which only the number is known."""
    name = frozenset({MARK})
    children = [one for one in table.children(pid) if one.parent == pid and one.session == one.pid]
    for found in children:
        if MARK in table.marks(found.pid, name) and not table.send(found, supervisor_main.HALT_WAITS):
            _log.warning("The supervisor of process %d could not be told that a halt waits for it.", pid)


_OWN: Final[WeakValueDictionary[str, Supervisor]] = WeakValueDictionary()
"""The supervisors of this process itself, by their marks."""

_told_at: Final[dict[str, float]] = {}
"""Owners that were told, and when: many stops at once are one stop to a supervisor."""


def _signal_supervisor_of(owner: Owner, is_halt: bool) -> None:
    # A list of children that is read while some of them end may lack others: then everybody is looked at.
    found = _supervisor(owner, table.children(owner.pid)) or _supervisor(owner, next(table.looks()).values())
    if found is None:  # not every owner has one: control itself holds a lease for a moment
        _log.debug("Process %d has no supervisor that could be told that a stop waits for it.", owner.pid)
    elif not table.send(found, supervisor_main.HALT_WAITS if is_halt else supervisor_main.STOP_WAITS):
        _log.warning("The supervisor of process %d could not be told that a stop waits for it.", owner.pid)


def _supervisor(owner: Owner, among: Iterable[table.ProcessInfo]) -> table.ProcessInfo | None:
    name = frozenset({MARK})
    children = (found for found in among if found.parent == owner.pid and found.session == found.pid)
    return next((found for found in children if table.marks(found.pid, name).get(MARK) == owner.process), None)
