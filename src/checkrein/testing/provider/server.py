"""The provider as a server: its address, its log and its end.

In a process of its own its work is not counted as that of whoever is measured.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Callable, Collection, Sequence
from tempfile import NamedTemporaryFile
from typing import Any, Final, Self

import msgspec

from checkrein.asyncutil import kill
from checkrein.errors import MisuseError
from checkrein.testing.provider.connection import Connection, Service
from checkrein.testing.provider.log import Request
from checkrein.testing.provider.scenario import Reply, Script
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
    def gemini_url(self) -> str:
        """For GOOGLE_GEMINI_BASE_URL."""
        return self.url

    @property
    def log(self) -> list[Request]:
        """Every request there was for a model, in order; it grows and changes as things happen."""
        return self._service.log.requests

    @property
    def connections(self) -> int:
        """How many connections have been made so far."""
        return self._service.log.connections

    async def until(self, condition: Callable[[list[Request]], object], timeout: float = 90.0) -> None:
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


LOOK_EVERY: Final = 0.02


class Address(msgspec.Struct, frozen=True):
    """What the program prints when it is ready."""

    openai_url: str
    anthropic_url: str
    key: str
    port: int
    pid: int


class ProviderProcess:
    """`python -m checkrein.testing.provider` for as long as the `async with` lasts, and no longer than this process.

    Its clock is the same as here (`time.monotonic()`), its log is fetched over HTTP.
    """

    def __init__(
        self, scenario: Reply | Sequence[Reply], *, by_turn: bool = False, key: str = KEY, models: Collection[str] = ()
    ) -> None:
        self._scenario = [scenario] if isinstance(scenario, Reply) else list(scenario)
        self._options = ["--key", key, *(["--by-turn"] if by_turn else [])]
        for model in models:
            self._options += ["--model", model]
        self._process: asyncio.subprocess.Process | None = None
        self._address: Address | None = None

    @property
    def address(self) -> Address:
        if self._address is None:
            raise MisuseError("The provider has no address yet: use it inside `async with`.")
        return self._address

    @property
    def openai_url(self) -> str:
        return self.address.openai_url

    @property
    def anthropic_url(self) -> str:
        return self.address.anthropic_url

    @property
    def key(self) -> str:
        return self.address.key

    @property
    def pid(self) -> int:
        return self.address.pid

    async def log(self, bodies: bool = True) -> list[Request]:
        """The requests so far, as they are now."""
        answer = await self._own("GET", f"/_log?bodies={int(bodies)}")
        return msgspec.json.decode(answer, type=list[Request])

    async def until(self, condition: Callable[[list[Request]], object], timeout: float = 90.0) -> list[Request]:
        """Look at the log until `condition` holds for it, and return it."""
        async with asyncio.timeout(timeout):
            # Nothing here can tell when something happens in another process.
            while not condition(log := await self.log()):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_EVERY)
        return log

    async def clear(self) -> None:
        """Forget all requests in the log."""
        await self._own("DELETE", "/_log")

    async def play(self, scenario: Sequence[Reply]) -> None:
        """Answer requests from now on by another scenario."""
        await self._own("PUT", "/_scenario", msgspec.json.encode(list(scenario)))

    async def _own(self, method: str, target: str, body: bytes = b"") -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.address.port)
        try:
            head = f"{method} {target} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: {len(body)}"
            writer.write(head.encode() + b"\r\n\r\n" + body)
            answer = await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()
        status, _, rest = answer.partition(b"\r\n\r\n")
        if b" 200 " not in status.partition(b"\r\n")[0]:
            raise MisuseError(f"The provider refused {method} {target}: {rest.decode()}")
        return rest

    async def __aenter__(self) -> Self:
        with NamedTemporaryFile(suffix=".json") as file:
            file.write(msgspec.json.encode(self._scenario))
            file.flush()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "checkrein.testing.provider", "--scenario", file.name, "--with-stdin", *self._options),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
            assert self._process.stdout is not None
            line = await self._process.stdout.readline()
        if not line:
            await self._process.wait()
            raise MisuseError("The provider's process ended before it was ready; its complaint is on stderr.")
        self._address = msgspec.json.decode(line, type=Address)
        return self

    async def __aexit__(self, *_: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await self._process.wait()
        except TimeoutError:
            await kill(self._process)
        self._address = None
