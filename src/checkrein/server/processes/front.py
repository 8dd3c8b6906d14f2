"""The front: the one process of a server that people talk to.

It opens the journal, keeps the drivers, and serves the API. It imports no agent's code, so nothing that an agent does
can keep it from taking a verb. It serves from its first moment: a verb needs no driver, so pages and verbs wait neither
for agents that load slowly nor for thousands of runs to be taken up. Nothing it says is waited for (`logs.LineWriter`).

SIGTERM, Ctrl-C or a terminal that hangs up: the drivers pause what is at work, durably, and end; meanwhile verbs and
page still work. Then the streams are ended, and the front with them. A second signal ends everything now: what was at
work is then in doubt, as after a crash.

Who may come in: the server's own token, the names it goes by, and the address that lets a browser in once.

The socket that a server listens on, and what is said when there is none to be had.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import uvicorn
from fastapi import FastAPI

from checkrein.control.control import Control
from checkrein.control.evidence.keys import signing_key
from checkrein.control.evidence.signer import Signer
from checkrein.core.enums import AT_WORK, CallKind
from checkrein.core.escape import one_line
from checkrein.core.transitions import Fate, Stop
from checkrein.core.wording import shutting_down
from checkrein.errors import CheckreinError, StoreUnavailable, WrongInput
from checkrein.journal import open_journal
from checkrein.journal.address import SQLITE, file_of, is_postgres, password_of
from checkrein.journal.base import Journal
from checkrein.journal.sqlite.database import shared_folder
from checkrein.processes.identity import in_role, this_process
from checkrein.secrets import Secrets
from checkrein.server.app import create_app
from checkrein.server.auth.guard import Guard
from checkrein.server.auth.halt_token import halt_token
from checkrein.server.auth.key_store import key_store
from checkrein.server.auth.policy import EVERYWHERE, Policy, check_exposure
from checkrein.server.auth.token_store import DRAW, OPERATOR, TOKEN, VARIABLE, access_folder, server_token
from checkrein.server.backend import Backend
from checkrein.server.processes.backend import FrontBackend
from checkrein.server.processes.drivers import DriverSlots, Tell, refusal_of
from checkrein.server.processes.halt_poll import heeded_halts
from checkrein.server.processes.http_protocol import (
    MOST_AT_ONCE,
    HttpProtocol,
    most_connections,
    raise_descriptor_limit,
)
from checkrein.server.processes.protocol import Broken, WorkerOptions
from checkrein.server.processes.signals import EndSignals
from checkrein.server.streaming.sse import Limits
from checkrein.timings import SHUT_DOWN_SECONDS

_log = logging.getLogger(__name__)

_LONG_SECONDS: Final = 10.0
"""Agents that take longer to load are worth a word."""
_GRACEFUL_SECONDS: Final = 3
"""How long requests that are being answered are waited for at the end."""

DRIVEN_ELSEWHERE: Final = "Ending. What is at work goes on at its workers."
NOT_KEPT: Final = "Stopping what is at work; nothing of it is kept. Ctrl-C again: end now."

Build = Callable[[FrontBackend], FastAPI]
"""Makes the application over a backend."""
Ready = Callable[[FrontBackend], Awaitable[None]]


async def told_at_shutdown(journal: Journal) -> str:
    """What somebody is told who ends the server: which tools it waits for, and for how long."""
    try:
        rows = await journal.runs(status=AT_WORK, limit=1_000)
        states = [await journal.load(row.id) for row in rows]
    except CheckreinError as error:
        _log.warning("What is at work could not be read: %s", error)
        states = []
    live = [call for state in states for call in state.live.values() if call.kind is CallKind.TOOL]
    names = [one_line(call.name, 60) for call in live if call.fate(Stop.PAUSE) is Fate.FINISH]
    return shutting_down(names, SHUT_DOWN_SECONDS)


class Front:
    """One server. `command` starts a driver process, given one more argument: the descriptor of its line to here.

    `secrets`, by name, are taken out of all that agents see and say, besides those of the environment.
    """

    is_kept = True
    """False: the store is removed once this has ended, and whoever ends it is told so."""

    def __init__(
        self,
        store: str,
        command: Sequence[str],
        listening: socket.socket,
        build: Build,
        *,
        drivers: int,
        tell: Tell,
        secrets: Mapping[str, str] | None = None,
        beside: Callable[[FrontBackend], AbstractAsyncContextManager[object]] | None = None,
        listen_store: str | None = None,
    ) -> None:
        """`beside` is open while it serves."""
        passwords = {"CHECKREIN_STORE": password_of(store), "CHECKREIN_LISTEN_STORE": password_of(listen_store or "")}
        self._secrets = {**(secrets or {}), **{name: one for name, one in passwords.items() if len(one) >= 8}}
        self._beside = beside
        self._key = signing_key(access_folder(store))
        self._store = store
        self._listen_store = listen_store
        self._command = command
        self._listening = listening
        self._build = build
        self._drivers = drivers
        self._tell_terminal = tell
        self._signals = EndSignals()
        self._refused: Broken | None = None

    async def serve(self, ready: Ready) -> None:
        """Serve until a signal says that it is enough.

        `ready` is called, once, when the agents are known, or when that takes long. Raises `WrongInput` when no driver
        can load them at the first start, and what the store says about itself; once all has ended in order,
        `StoreTooNew` when a later version has migrated it meanwhile, `NameTaken` when an operator has buried a driver.
        """
        raise_descriptor_limit()
        asyncio.get_running_loop().set_exception_handler(_note_failure)
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        with self._signals.heeded():
            async with AsyncExitStack() as stack:
                backend = await self._open(stack)
                await self._serve(backend, ready)
        if self._refused is not None:
            raise refusal_of(self._refused)

    async def _open(self, stack: AsyncExitStack) -> FrontBackend:
        journal = await stack.enter_async_context(await open_journal(self._store, listen=self._listen_store))
        secrets = Secrets.from_environment(also=self._secrets)
        owner = this_process()
        control = Control(journal, in_role(owner, "control"), secrets=secrets)
        backend = FrontBackend(journal, control, secrets, store=self._store)
        slots = backend.slots = DriverSlots(
            self._drivers,
            self._command,
            self._tell,
            backend.heard,
            store=self._store,
            listen_store=self._listen_store,
            secrets=self._secrets,
            worker=WorkerOptions(name=f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}"),
        )
        slots.on_refused = self._retire
        if is_postgres(self._store):
            await stack.enter_async_context(heeded_halts(journal, self._store, slots.pids))
        slots.start()
        stack.push_async_callback(self._end_drivers, slots)
        if self._beside is not None:
            await stack.enter_async_context(self._beside(backend))
        if self._key is not None:
            backend.signing_key = self._key
            signing = asyncio.create_task(Signer(journal, self._key, time.time).run())
            stack.callback(signing.cancel)
        return backend

    async def _serve(self, backend: FrontBackend, ready: Ready) -> None:
        app = self._build(backend)
        server = HttpServer(app)
        serving = asyncio.ensure_future(server.serve(sockets=[self._listening]))
        try:
            await self._first(serving, server.is_up.wait())
            if not serving.done():
                await self._until_loaded(backend, ready)
            await self._first(serving, self._signals.enough.wait())
            backend.is_ending = True
            if not serving.done():
                self._tell(await self._told_at_shutdown(backend))
                await self._end_drivers(backend.slots)
                backend.control.hurry()
                await app.state.hub.close()
        except WrongInput:
            await app.state.hub.close()  # nobody is kept waiting by a server that has nothing to serve
            raise
        finally:
            server.should_exit = True
            server.force_exit = self._signals.now.is_set()
            await serving

    async def _told_at_shutdown(self, backend: FrontBackend) -> str:
        if backend.is_alone:
            return DRIVEN_ELSEWHERE
        return await told_at_shutdown(backend.journal) if self.is_kept else NOT_KEPT

    async def _until_loaded(self, backend: FrontBackend, ready: Ready) -> None:
        """Wait until the agents are known, or it is enough. Raises `WrongInput` if they cannot be loaded."""
        loaded = asyncio.ensure_future(backend.slots.loaded())
        enough = asyncio.ensure_future(self._signals.enough.wait())
        try:
            await asyncio.wait([loaded, enough], timeout=_LONG_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            is_late = not loaded.done() and not enough.done()
            if is_late:
                self._tell("The agents are still being loaded; page and verbs work already.")
                await ready(backend)
                await asyncio.wait([loaded, enough], return_when=asyncio.FIRST_COMPLETED)
            if loaded.done() and (broken := loaded.result()) is not None:
                raise WrongInput(broken.message, code=broken.code)
            if loaded.done() and not is_late:
                await ready(backend)
        finally:
            loaded.cancel()
            enough.cancel()

    async def _end_drivers(self, slots: DriverSlots) -> None:
        ending = asyncio.ensure_future(slots.end())
        await self._first(ending, self._signals.now.wait())
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

    def _retire(self, said: Broken) -> None:
        """No driver may drive here any more: what is at work has been handed over, or is now, and this ends."""
        self._refused = said
        self._signals.enough.set()


def _note_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """One line, and not a stack trace for each, about connections that came faster than descriptors are free."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        _log.warning("A connection has to wait: %s", error)
    else:
        loop.default_exception_handler(context)


def _is_news(record: logging.LogRecord) -> bool:
    """That requests are cut off when a server ends is no mistake of anybody's, and worth no stack trace."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


class HttpServer(uvicorn.Server):
    """uvicorn without signal handlers of its own. Whoever ends it closes the hub of `app` first."""

    def __init__(self, app: FastAPI) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=HttpProtocol,
                ws="none",
                backlog=MOST_AT_ONCE,
                # The hub is closed by hand. A lifespan would be cut off, with a stack trace, by a second signal.
                lifespan="off",
                log_config=None,
                log_level="error",  # what clients send wrong they are told, and nobody else needs to read
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_GRACEFUL_SECONDS,
            )
        )
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(BACKLOG)  # what the event loop takes at once is not what may wait
        self.is_up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ServerAccess:
    """The keys to one store, and a guard that knows them.

    Raises `WrongInput` for a token that is too short or, over a store that is not a file, was not given; for keys that
    others may read; and for a host beyond loopback that was not asked for in so many words: with a token that was
    given, and the names that others use.
    """

    def __init__(
        self,
        store: str,
        host: str,
        names: Sequence[str] = (),
        *,
        proxies: Sequence[str] = (),
        frame_ancestors: Sequence[str] = (),
        token_file: Path | None = None,
    ) -> None:
        hosts = check_exposure(host, token=os.environ.get(VARIABLE) or token_file, names=names)
        self._store = file_of(store)
        self._journal: Journal | None = None
        self._token = server_token(store, token_file)
        self._keys = key_store(store, self._opened)
        self._keys.trust(self._token, OPERATOR)
        policy = Policy(hosts=hosts, proxies=proxies, frame_ancestors=frame_ancestors)
        self._guard = Guard(self._keys, policy=policy, halt_token=halt_token(self._token))
        shown = (hosts[0] if hosts else "127.0.0.1") if host in EVERYWHERE else host
        self._shown = f"[{shown}]" if ":" in shown else shown

    @property
    def secrets(self) -> dict[str, str]:
        """What opens this server: no agent is to see it, nor to say it."""
        return {VARIABLE: self._token}

    @property
    def warnings(self) -> list[str]:
        """What to tell whoever starts this server about its store and its token."""
        shared = None if self._store is None else shared_folder(access_folder(SQLITE + self._store))
        return [one for one in (shared, self._about_token()) if one is not None]

    def _about_token(self) -> str | None:
        if self._token.startswith(TOKEN):
            return None
        return (
            f"The server's token does not begin with {TOKEN}: this server keeps it from its agents, but a log, a "
            f"scanner or a run of another process does not know it for a secret. Draw one with {DRAW}."
        )

    def application(self, backend: Backend) -> FastAPI:
        """The API and the page, behind the guard."""
        self._journal = backend.journal
        return create_app(backend, self._guard, limits=Limits(streams=min(Limits().streams, most_connections() // 2)))

    def address(self, port: int) -> str:
        """Where it is reached, as far as it knows."""
        return f"http://{self._shown}:{port}"

    async def link(self, port: int, run: str = "") -> str:
        """An address that opens the page, or that of a run, once, within a few minutes."""
        to = f"&run={run}" if run else ""
        return f"{self.address(port)}/enter?code={await self._keys.new_code(self._token)}{to}"

    def _opened(self) -> Journal:
        if self._journal is None:
            raise StoreUnavailable("This server has not opened its store yet; ask again soon.")
        return self._journal


BACKLOG: Final = 2048


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 chooses a free one. Raises `WrongInput` with what would help."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise WrongInput(
            f"{host} is not an address of this machine; leave --host out to be reached from here only.",
            code="host_name",
        ) from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _refused(host, port, error) from None
    listening.setblocking(False)
    return listening


def _refused(host: str, port: int, error: OSError) -> WrongInput:
    if error.errno == errno.EADDRINUSE:
        return WrongInput(
            f"Port {port} of {host} is taken, perhaps by another `checkrein serve`; choose another one with --port, or "
            "let one be found with --port 0.",
            code="port_taken",
        )
    if error.errno == errno.EACCES:
        return WrongInput(
            f"Port {port} may not be used by you; choose one above 1023, such as --port 8420.", code="port_taken"
        )
    return WrongInput(
        f"Nothing can listen on {host}, port {port}: {error.strerror or error}. Leave --host out to be reached from "
        "here only.",
        code="host_name",
    )
