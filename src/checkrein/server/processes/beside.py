"""The page beside a program in a terminal: the runs of its store, served by the process that drives it.

The program is a process of its own, so nothing that it does can keep a verb of the page waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, NoReturn

from checkrein.control.fork import ForkRun
from checkrein.control.start import StartRun
from checkrein.control.worker_roster import AgentCard
from checkrein.errors import MisuseError, WrongInput
from checkrein.journal import MEMORY
from checkrein.runtime import Runtime
from checkrein.server.backend import RuntimeBackend
from checkrein.server.processes.front import HttpServer, ServerAccess, listen

_log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
PORT: Final = 8420
NOT_HERE: Final = "A program is started in a terminal: checkrein exec -- COMMAND."


class ProgramBackend(RuntimeBackend):
    """The runtime of a program: its runs are seen and stopped, and none is begun."""

    def agents(self) -> Mapping[str, AgentCard]:
        return {}

    async def start(self, wanted: StartRun) -> NoReturn:
        raise MisuseError(NOT_HERE, agent=wanted.agent)

    async def fork(self, wanted: ForkRun) -> NoReturn:
        raise MisuseError(NOT_HERE)


class PageAccess:
    """Who may see the page of a store. Raises `WrongInput`, before anything is started, as `ServerAccess` does, and for
    a store in memory."""

    def __init__(self, store: str) -> None:
        if store == MEMORY:
            raise WrongInput("A page needs a store that is kept; name a file with --store.", code="usage")
        self._access = ServerAccess(store, HOST)

    @asynccontextmanager
    async def served(self, runtime: Runtime, run: str) -> AsyncIterator[str]:
        """Serve it while this lasts; the link that lets a browser in, once, to the page of `run`."""
        try:
            listening = listen(HOST, PORT)
        except WrongInput as error:
            _log.info("another port is looked for: %s", error)
            listening = listen(HOST, 0)
        with listening:
            app = self._access.application(ProgramBackend(runtime))
            server = HttpServer(app)
            serving = asyncio.ensure_future(server.serve(sockets=[listening]))
            try:
                await server.is_up.wait()
                yield await self._access.link(listening.getsockname()[1], run)
            finally:
                await app.state.hub.close()
                server.should_exit = True
                await serving
