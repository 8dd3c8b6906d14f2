"""The provider as a server: its address, its log and its end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Collection
from typing import Final, Self

from checkrein.errors import MisuseError
from checkrein.testing.provider.connection import Connection
from checkrein.testing.provider.log import Request
from checkrein.testing.provider.scenario import Script
from checkrein.testing.provider.service import Service
from checkrein.testing.provider.wire import Terms

KEY: Final = "test-key"
HOST: Final = "127.0.0.1"


class Provider:
    """A server on 127.0.0.1 for as long as the `async with` lasts. It needs asyncio.

    `scenario` is a Reply, a list of them (in the order of requests, the last one repeated), or a function from a
    Request to a Reply, async if it likes. `key` is the only one accepted, None accepts anybody. `models` are the names,
    or patterns such as `gpt-*`, of the models it has; all others are unknown to it. With `ssl` it speaks TLS.
    """

    def __init__(
        self,
        scenario: Script,
        *,
        key: str | None = KEY,
        models: Collection[str] | None = None,
        port: int = 0,
        ssl: ssl.SSLContext | None = None,
    ) -> None:
        self.key = key or ""
        self.port = port
        self._ssl = ssl
        self._service = Service(scenario, Terms(key, models))
        self._server: asyncio.Server | None = None
        self._open: set[Connection] = set()

    @property
    def url(self) -> str:
        if self._server is None:
            raise MisuseError("The provider has no address yet: use it inside `async with`.")
        return f"{'http' if self._ssl is None else 'https'}://{HOST}:{self.port}"

    @property
    def openai_url(self) -> str:
        """For OPENAI_BASE_URL."""
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        """For ANTHROPIC_BASE_URL."""
        return self.url

    @property
    def log(self) -> list[Request]:
        """Every request there was for a model, in order; it grows and changes as things happen."""
        return self._service.log.requests

    @property
    def connections(self) -> int:
        """How many connections have been made so far."""
        return self._service.log.connections

    async def until(self, condition: Callable[[list[Request]], object], timeout: float = 30.0) -> None:
        """Wait until `condition` holds for the log. TimeoutError, with what is in it, if it does not in time."""
        await self._service.log.until(condition, timeout)

    def play(self, scenario: Script) -> None:
        """Answer requests from now on by another scenario."""
        self._service.play(scenario)

    def clear(self) -> None:
        """Forget all requests in the log."""
        self._service.log.clear()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._service, self._open), HOST, self.port, ssl=self._ssl, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        """Nobody can connect any more, and every connection has been broken off. Raises what the scenario raised."""
        assert self._server is not None
        self._server.close()
        leaving = [connection.shut() for connection in list(self._open)]
        if leaving:
            await asyncio.wait(leaving)
        await self._server.wait_closed()
        self._server = None
        if self._service.failures and kind is None:
            raise self._service.failures[0]
