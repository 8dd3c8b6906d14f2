"""One HTTP client for all model calls of an event loop: shared connections, bounded waits, and an end that is at once.

This file and `errors` are the only ones that know the HTTP library, and it is imported when the first request is
made. What is raised is a `ModelUnavailable` that says what stood in the way and what would help; nothing of the
library's comes out. It does not try again, follows no redirect and keeps no cookie.

The library is aiohttp. 200 streams of 20 tokens a second from a server in another process, Python 3.11 on 2 cores that
did nothing else, the median of three to five runs; the last column is the CPU of a whole request for 5 tokens:

    client              µs CPU a token   stop → the server sees it, p50   import   µs CPU a request
    by hand                         44                           0.3 ms        -                310
    httptools                       48                           0.2 ms     1 ms                270
    aiohttp                         61                           0.3 ms   115 ms                225
    h11                             78                           0.3 ms     8 ms                450
    httpcore                       151                           0.3 ms    25 ms                970
    httpx2                         160                           0.4 ms    40 ms              1,110
    httpx                          163                           0.4 ms    30 ms              1,190
    the openai package             266                                -   430 ms              1,970

aiohttp costs 17 µs more than the least that is possible, and brings pooling, TLS, proxies and a parser that others have
tested for years. Its own read timeout is not used: it would set a timer for every token (another 5 µs). One timer for
all streams looks after them instead.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from checkrein.errors import ModelUnavailable
from checkrein.models import prices
from checkrein.models.http.proxies import proxy_for
from checkrein.models.http.selector import coalescing

if TYPE_CHECKING:
    import aiohttp

MAX_CONNECTIONS: Final = 1000
KEEP_ALIVE_SECONDS: Final = 30.0
DNS_SECONDS: Final = 60
BUFFER_BYTES: Final = 1 << 16
"""What is kept of a stream that nobody reads; the provider has to wait once there is twice as much."""
LARGE_BODY: Final = 1 << 20
"""A larger request is sent in pieces."""
LONGEST_HEADER: Final = 1 << 15
LOOK_SECONDS: Final = 1.0
"""How often all streams are looked at for one that has stalled."""
END_SECONDS: Final = 0.25
COALESCED_AFTER: Final = 16
"""Reads of a response that has been read so often may be coalesced with others: a short answer is never held back."""


class Timeouts(msgspec.Struct, frozen=True):
    """How long to wait, in seconds. A person can stop a run at any moment; these are for when nobody looks.

    They are long, because a model may think for minutes before it says a word, and a machine may have to load it
    first. To give up too early throws away an answer that was paid for, and the next attempt would end in the same way.
    """

    connect: float = 10.0
    """For a connection, TLS included."""
    first_byte: float = 300.0
    """For an answer to begin: from the request to the headers, and from those to the first byte."""
    between_bytes: float = 120.0
    """For more of the answer."""


DEFAULT_TIMEOUTS: Final = Timeouts()


class Client:
    """The connections of one event loop. `client()` gives it."""

    def __init__(self, prepare: Callable[[], None] | None = None) -> None:
        """`prepare` is called in a thread before the first request, for whatever takes too long for an event loop."""
        self._prepare_more = prepare
        self._session: aiohttp.ClientSession | None = None
        self._keeper: AsyncGenerator[aiohttp.ClientSession, None] | None = None
        self._tls: ssl.SSLContext | None = None
        self._open: set[Response] = set()
        self._looks = False

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes, *, who: str, timeouts: Timeouts = DEFAULT_TIMEOUTS
    ) -> Response:
        """Send `body`, and return the response as soon as its headers are there, whatever its status.

        Whoever gets it must close it. Raises `ModelUnavailable`, with `who` in its sentence, if there is none. When it
        is cancelled the connection is closed, if there was one, and nothing goes on.
        """
        return await self.request("POST", url, headers, body, who=who, timeouts=timeouts)

    async def get(self, url: str, headers: Mapping[str, str], *, who: str, timeouts: Timeouts) -> Response:
        """What is at `url`, as with `post`."""
        return await self.request("GET", url, headers, None, who=who, timeouts=timeouts)

    async def delete(self, url: str, headers: Mapping[str, str], *, who: str, timeouts: Timeouts) -> Response:
        """Have what is at `url` ended, as with `post`."""
        return await self.request("DELETE", url, headers, None, who=who, timeouts=timeouts)

    async def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        who: str,
        timeouts: Timeouts,
    ) -> Response:
        """Any other request, as with `post`."""
        await _unless_cancelled()
        if "@" in url:
            url, headers = _without_login(url, headers)
        through = proxy_for(url, who)
        session = self._session or await self._start()
        options: dict[str, Any] = {"allow_redirects": False, **through.options}
        if url.startswith("https:"):
            options["ssl"] = self._tls = self._tls or await asyncio.to_thread(ssl.create_default_context)
        try:
            async with asyncio.timeout(timeouts.first_byte):
                answer = await session.request(
                    method,
                    url,
                    headers={**headers, **through.headers},
                    data=body if body is None or len(body) <= LARGE_BODY else io.BytesIO(body),
                    timeout=_timeout(timeouts.connect),
                    **options,
                )
            return self._watched(Response(self, answer, who, timeouts))
        except Exception as error:
            from checkrein.models.http.errors import not_reached

            problem = not_reached(error, who, url, timeouts.connect, timeouts.first_byte)
        # Not inside the `except`: an error of the library carries the headers of the request, and with them the key.
        raise problem

    async def close(self) -> None:
        """Close every connection. This happens by itself when the event loop is shut down."""
        if self._keeper is not None:
            await self._keeper.aclose()

    async def _start(self) -> aiohttp.ClientSession:
        # To import the library takes too long for an event loop.
        await asyncio.to_thread(importlib.import_module, "aiohttp")
        if self._prepare_more is not None:
            await asyncio.to_thread(self._prepare_more)
        if self._session is None:
            # Before it ends, an event loop closes the generators that are open on it, and so what this one holds.
            self._keeper = self._keep()
            self._session = await anext(self._keeper)
        return self._session

    async def _keep(self) -> AsyncGenerator[aiohttp.ClientSession, None]:
        session = _session()
        try:
            yield session
        finally:
            self._session = self._keeper = None
            for response in list(self._open):
                response.close()
            await session.close()

    # -- looking after streams that stall

    def _watched(self, response: Response) -> Response:
        self._open.add(response)
        if not self._looks:
            self._looks = True
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)
        return response

    def _look(self) -> None:
        for response in list(self._open):
            response.waited(LOOK_SECONDS)
        self._looks = bool(self._open)
        if self._looks:
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def forget(self, response: Response) -> None:
        self._open.discard(response)


class Response:
    """An answer that is coming in. It holds a connection until it is closed, or has come to its end."""

    __slots__ = (
        "_answer",
        "_client",
        "_coalesced",
        "_has_stalled",
        "_limit",
        "_read",
        "_reads_left",
        "_timeouts",
        "_waited",
        "_who",
        "headers",
        "status",
    )

    def __init__(self, client: Client, answer: aiohttp.ClientResponse, who: str, timeouts: Timeouts) -> None:
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers
        """In small letters or capitals."""
        self._client = client
        self._answer = answer
        self._read = answer.content.readany
        self._who = who
        self._timeouts = timeouts
        self._limit = timeouts.first_byte
        self._waited: float | None = None
        """For how long somebody has been waiting for the next byte; None while nobody is."""
        self._has_stalled = False
        self._reads_left = COALESCED_AFTER
        """How often it is read before its reads are coalesced."""
        self._coalesced: asyncio.BaseTransport | None = None

    async def read(self) -> bytes:
        """What has come since the last time, at least a byte; nothing at the end of the response.

        Raises `ModelUnavailable` if it breaks off or stalls. When it is cancelled the response is closed. One task
        reads at a time.
        """
        self._waited = 0.0
        try:
            data = await self._read()
        except asyncio.CancelledError:
            self.close()
            raise
        except Exception:
            self.close()
        else:
            self._waited = None
            self._limit = self._timeouts.between_bytes
            self._reads_left -= 1
            if not self._reads_left:
                self._coalesce()
            return data
        if self._has_stalled:
            raise stalled(self._who, self._limit)
        raise ModelUnavailable(f"{self._who} broke off in the middle of its answer.", reason="cut")

    async def beginning(self, limit: int = BUFFER_BYTES) -> bytes:
        """The first `limit` bytes of what is left, or as much of it as comes. The response is closed."""
        parts: list[bytes] = []
        size = 0
        try:
            while size < limit and (data := await self.read()):
                parts.append(data)
                size += len(data)
        except ModelUnavailable:
            pass
        finally:
            self.close()
        return b"".join(parts)[:limit]

    async def end(self) -> None:
        """The answer is complete: wait a moment for the end of the response, so that the connection can be used again.

        Where it does not come the connection is closed.
        """
        try:
            if not self._answer.content.at_eof():
                async with asyncio.timeout(END_SECONDS):
                    while await self.read():
                        pass
        except (TimeoutError, ModelUnavailable):
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Break the connection off at once, unless the response has come to its end: then it is kept for the next."""
        self._client.forget(self)
        self._waited = None
        self._release()
        _abort(self._answer.connection)
        self._answer.close()

    def _coalesce(self) -> None:
        """Have the rest of it read together with other streams, where the event loop does that."""
        connection, selector = self._answer.connection, coalescing(asyncio.get_running_loop())
        if selector is not None and connection is not None and connection.transport is not None:
            self._coalesced = connection.transport
            selector.coalesce(_descriptor(self._coalesced))

    def _release(self) -> None:
        """The next answer over this connection begins at once."""
        if self._coalesced is not None:
            transport, self._coalesced = self._coalesced, None
            selector = coalescing(asyncio.get_running_loop())
            if selector is not None and not transport.is_closing():
                selector.release(_descriptor(transport))

    def hurry(self, seconds: float) -> None:
        """From now on wait only this long for the next byte."""
        self._timeouts = msgspec.structs.replace(self._timeouts, between_bytes=seconds)
        self._limit = seconds

    def waited(self, seconds: float) -> None:
        """Time has passed. A response that has stalled is closed, and whoever reads it is told."""
        if self._waited is None:
            return
        self._waited += seconds
        self._has_stalled = self._waited > self._limit
        connection = self._answer.connection
        # The library tells nobody of a connection that it has closed because of what came over it.
        if self._has_stalled or (connection is not None and connection.closed):
            self.close()


_CLIENTS: Final[dict[asyncio.AbstractEventLoop, Client]] = {}


def client() -> Client:
    """The client of the running event loop, the same for everybody on it."""
    loop = asyncio.get_running_loop()
    found = _CLIENTS.get(loop)
    if found is None:
        for other in [other for other in _CLIENTS if other.is_closed()]:
            del _CLIENTS[other]
        found = _CLIENTS[loop] = Client(prices.prepare)  # the first answer will ask for them
    return found


def stalled(who: str, seconds: float) -> ModelUnavailable:
    """An answer that does not go on, for all that can be seen."""
    return ModelUnavailable(
        f"{who} said nothing more for {seconds:g} s.",
        reason="stalled",
        remedy="Resume to ask again. Where a model needs longer than that, raise the `timeouts` of the model.",
    )


async def _unless_cancelled() -> None:
    """A task that was cancelled before it could ask learns it here, before anything is sent."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        await asyncio.sleep(0)


def _without_login(url: str, headers: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Name and password of an address go into a header, unless there is a key that goes there."""
    parts = urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    if login and "authorization" not in {name.lower() for name in headers}:
        headers = {**headers, "authorization": f"Basic {b64encode(unquote(login).encode()).decode()}"}
    return parts._replace(netloc=host).geturl(), headers


def _abort(connection: aiohttp.connector.Connection | None) -> None:
    """The other side learns it now. The event loop closes the socket a round later, and a busy one takes its time."""
    transport = connection.transport if connection is not None else None
    if transport is None:
        return
    with suppress(OSError, TypeError):  # gone already, or not a socket that can be told
        transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
    # `close` would first send what is left of the request, to a server that may not be reading it.
    transport.abort()


def _descriptor(transport: asyncio.BaseTransport) -> int:
    """The number of its socket; -1 where there is none."""
    found = transport.get_extra_info("socket")
    return -1 if found is None else int(found.fileno())


def _timeout(connect: float) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=None, sock_connect=connect)


def _session() -> aiohttp.ClientSession:
    import aiohttp

    class Answer(aiohttp.ClientResponse):
        """One that is also aborted, and not just closed, when it is cancelled before its headers are there."""

        async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
            try:
                return await super().start(connection)
            except BaseException:
                _abort(connection)
                raise

    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=MAX_CONNECTIONS,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            ttl_dns_cache=DNS_SECONDS,
            resolver=aiohttp.ThreadedResolver(),
        ),
        response_class=Answer,
        cookie_jar=aiohttp.DummyCookieJar(),
        # A stream of small events gains nothing from being compressed, and a compressor may hold them back.
        headers={"accept-encoding": "identity", "user-agent": "checkrein"},
        read_bufsize=BUFFER_BYTES,
        max_line_size=LONGEST_HEADER,
        max_field_size=LONGEST_HEADER,
    )
