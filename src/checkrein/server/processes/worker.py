"""A worker: what a front has for driver processes, and nothing for people.

It starts the drivers and starts them again, kills one that does not answer, and ends them in order. It imports no
agent's code, and each driver is on the roster of the store by itself. Over PostgreSQL it has the store open to read of
halts, which the supervisors of its drivers cannot (`halt_poll`); of a store that is a file they do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from checkrein.errors import WrongInput
from checkrein.journal import open_journal
from checkrein.journal.address import is_postgres, password_of
from checkrein.processes import orphans
from checkrein.server.processes.drivers import DriverSlots, Tell, refusal_of
from checkrein.server.processes.halt_poll import heeded_halts
from checkrein.server.processes.health import answer_health, keep_touched
from checkrein.server.processes.protocol import Broken, WorkerOptions
from checkrein.server.processes.signals import EndSignals

_log = logging.getLogger(__name__)


class Health(NamedTuple):
    """Where a worker says how it is; neither: nowhere."""

    file: Path | None = None
    host: str = "127.0.0.1"
    port: int | None = None


class DriverHost:
    """Drivers of the agents that `command` loads, until a signal says that it is enough."""

    def __init__(
        self,
        store: str,
        command: Sequence[str],
        options: WorkerOptions,
        *,
        drivers: int,
        tell: Tell,
        listen_store: str | None = None,
        health: Health | None = None,
    ) -> None:
        passwords = {"CHECKREIN_STORE": password_of(store), "CHECKREIN_LISTEN_STORE": password_of(listen_store or "")}
        self._store = store
        self._listen_store = listen_store
        self._tell = tell
        self._health = health or Health()
        self._signals = EndSignals()
        self._refused: Broken | None = None
        self._slots = DriverSlots(
            drivers,
            command,
            tell,
            lambda run, chunk: None,  # whoever reads along is elsewhere, and reads the store
            store=store,
            listen_store=listen_store,
            secrets={name: one for name, one in passwords.items() if len(one) >= 8},
            worker=options,
        )
        self._slots.on_refused = self._refuse

    async def run(self, ready: Callable[[Mapping[str, object]], None]) -> None:
        """Drive until it is enough. `ready` is called, once, with the agents, when the first driver drives.

        Raises `WrongInput` when no driver can load them at the first start; `NameTaken` or `StoreTooNew`, once all has
        ended in order, when this worker may not drive any more.
        """
        with self._signals.heeded():
            async with self._heeded_halts():
                self._slots.start()
                try:
                    async with self._told_of():
                        await self._drive(ready)
                finally:
                    await self._end()
        if self._refused is not None:
            raise refusal_of(self._refused)

    async def _drive(self, ready: Callable[[Mapping[str, object]], None]) -> None:
        broken = await self._unless_ended(self._slots.loaded())
        if isinstance(broken, Broken):
            raise WrongInput(broken.message, code=broken.code)
        await self._unless_ended(self._slots.ready())
        if not self._signals.enough.is_set():
            ready(self._slots.cards)
            await self._signals.enough.wait()

    async def _unless_ended(self, waited: Awaitable[object]) -> object:
        waiting, enough = asyncio.ensure_future(waited), asyncio.ensure_future(self._signals.enough.wait())
        try:
            await asyncio.wait([waiting, enough], return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        finally:
            waiting.cancel()
            enough.cancel()

    async def _end(self) -> None:
        ending, now = asyncio.ensure_future(self._slots.end()), asyncio.ensure_future(self._signals.now.wait())
        await asyncio.wait([ending, now], return_when=asyncio.FIRST_COMPLETED)
        now.cancel()
        if not ending.done():
            self._slots.kill()
        await ending

    @asynccontextmanager
    async def _heeded_halts(self) -> AsyncIterator[None]:
        if not is_postgres(self._store):
            yield
            return
        async with (
            await open_journal(self._store, listen=self._listen_store) as journal,
            heeded_halts(journal, self._store, self._slots.pids),
        ):
            yield

    def _is_ready(self) -> bool:
        """Whether some driver answers and reaches the store; never again once this has begun to end."""
        each = self._slots.each
        return not self._signals.enough.is_set() and any(one.phase == "ready" and one.is_store_well for one in each)

    @asynccontextmanager
    async def _told_of(self) -> AsyncIterator[None]:
        """Meanwhile those who watch this worker are told how it is, and orphans that come to it are reaped."""
        health, tasks = self._health, list[asyncio.Future[None]]()
        async with AsyncExitStack() as stack:
            if health.port is not None:
                await stack.enter_async_context(await answer_health(health.host, health.port, self._is_ready))
            if health.file is not None:
                tasks.append(asyncio.ensure_future(keep_touched(health.file, self._is_ready)))
            if orphans.is_first():
                tasks.append(asyncio.ensure_future(orphans.reap_for_ever(self._slots.pids)))
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _refuse(self, said: Broken) -> None:
        self._refused = said
        self._signals.enough.set()
