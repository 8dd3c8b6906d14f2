"""The front: the one process of a server that people talk to.

It opens the journal, keeps the drivers, and serves the API. It imports no agent's code, so nothing that an agent does
can keep it from taking a verb.

SIGTERM, Ctrl-C or a terminal that hangs up: the drivers pause what is at work, durably, and end; meanwhile verbs and
page still work. Then the streams are ended, and the front with them. A second signal ends everything now: what was at
work is then in doubt, as after a crash.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any, Final

import msgspec
import uvicorn
from fastapi import FastAPI

from checkrein.errors import WrongInput
from checkrein.journal import open_journal
from checkrein.runtime.identity import this_process
from checkrein.runtime.secrets import Secrets
from checkrein.server.front.admission import Admission, protocol_with
from checkrein.server.front.backend import FrontBackend
from checkrein.server.front.sentry import FrontControl, Sentry
from checkrein.server.front.slots import Slots, Tell

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LONG_SECONDS: Final = 10.0
"""Agents that take longer to load are worth a word."""
_GRACEFUL_SECONDS: Final = 3
"""How long requests that are being answered are waited for at the end."""

Build = Callable[[FrontBackend], FastAPI]
"""Makes the application over a backend."""


class Front:
    """One server. `command` starts a driver process, given one more argument: the descriptor of its line to here."""

    def __init__(
        self, store: str, command: Sequence[str], listening: socket.socket, build: Build, *, drivers: int, tell: Tell
    ) -> None:
        self._store = store
        self._command = command
        self._listening = listening
        self._build = build
        self._drivers = drivers
        self._tell_terminal = tell
        self._enough = asyncio.Event()
        self._now = asyncio.Event()

    async def serve(self, ready: Callable[[FrontBackend], None]) -> None:
        """Serve until a signal says that it is enough; `ready` is called once requests are answered.

        Raises `WrongInput` when no driver can begin at all, and what the store says about itself.
        """
        with self._heeding_signals():
            async with AsyncExitStack() as stack:
                backend = await self._open(stack)
                if not await self._wait_for_driver(backend):
                    return
                await self._serve(backend, ready)

    async def _open(self, stack: AsyncExitStack) -> FrontBackend:
        journal = await stack.enter_async_context(await open_journal(self._store))
        secrets = Secrets.of(None)
        owner = this_process()
        control = FrontControl(
            journal, msgspec.structs.replace(owner, process=f"{owner.process}-control"), secrets=secrets
        )
        backend = FrontBackend(journal, control, secrets)
        slots = backend.slots = Slots(self._drivers, self._command, self._tell, backend.heard)
        slots.start()
        stack.push_async_callback(self._end_drivers, slots)
        watching = asyncio.get_running_loop().create_task(Sentry(slots, journal, control).watch())
        stack.callback(watching.cancel)
        return backend

    async def _wait_for_driver(self, backend: FrontBackend) -> bool:
        """Whether there is one; False when it was enough before."""
        ready = asyncio.ensure_future(backend.slots.ready())
        loading = asyncio.get_running_loop().call_later(
            _LONG_SECONDS, self._tell, "The agents are still being loaded; the page comes up when they are."
        )
        await self._first(ready, self._enough.wait())
        loading.cancel()
        if not ready.done():
            ready.cancel()
            return False
        broken = ready.result()
        if broken is not None:
            raise WrongInput(broken.message, code=broken.code)
        return True

    async def _serve(self, backend: FrontBackend, ready: Callable[[FrontBackend], None]) -> None:
        app = self._build(backend)
        admission = Admission()
        server = _Server(
            uvicorn.Config(
                app,
                http=protocol_with(admission),
                ws="none",
                log_config=None,
                log_level="error",  # what clients send wrong they are told, and nobody else needs to read
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_GRACEFUL_SECONDS,
            )
        )
        serving = asyncio.ensure_future(server.serve(sockets=[self._listening]))
        watching = asyncio.ensure_future(admission.watch())
        try:
            await self._first(serving, server.is_up.wait())
            if not serving.done():
                ready(backend)
            await self._first(serving, self._enough.wait())
            if not serving.done():
                self._tell("Pausing what is at work; it goes on by itself at the next start. Ctrl-C again: end now.")
                await self._end_drivers(backend.slots)
                backend.control.hurry()
                await app.state.hub.close()
        finally:
            watching.cancel()
            server.should_exit = True
            server.force_exit = self._now.is_set()
            await serving

    async def _end_drivers(self, slots: Slots) -> None:
        ending = asyncio.ensure_future(slots.end())
        await self._first(ending, self._now.wait())
        if not ending.done():
            slots.kill()
        await ending

    def _tell(self, sentence: str) -> None:
        with suppress(OSError):  # the terminal may be gone; the server is not
            self._tell_terminal(sentence)

    async def _first(self, one: asyncio.Future[Any], other: Awaitable[object]) -> None:
        """Return when one of both has happened; `one` is left as it is."""
        waiting = asyncio.ensure_future(other)
        try:
            await asyncio.wait([one, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    @contextmanager
    def _heeding_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        # One that is ignored stays so: `nohup` means it.
        heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        for number in heeded:
            loop.add_signal_handler(number, self._heed)
        try:
            yield
        finally:
            for number in heeded:
                loop.remove_signal_handler(number)

    def _heed(self) -> None:
        if self._enough.is_set():
            self._now.set()
        self._enough.set()


class _Server(uvicorn.Server):
    """uvicorn without signal handlers of its own."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
