"""Requests to one server: what is sent, when it is sent again, and which error an answer is.

A request is sent again only if that cannot do a thing twice: it reads, or it carries an id by which a repeat is known,
or nothing of it was taken for certain. The token is in no sentence, repr or log, and no error of the HTTP library,
which would carry it, comes out.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from checkrein import errors
from checkrein.errors import (
    AccessError,
    CheckreinError,
    Forbidden,
    JournalError,
    MisuseError,
    ModelUnavailable,
    Refused,
    RequestRefused,
    ServerUnavailable,
    Unauthorised,
    WrongInput,
)
from checkrein.models.http.client import Client as Http
from checkrein.models.http.client import Response, Timeouts

_log = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_SECONDS: Final = 10.0
QUIET_SECONDS: Final = 60.0
"""A server says something on every stream four times as often as this."""
LARGEST_ANSWER: Final = 256 * 1024 * 1024
RETRY_SECONDS: Final = 0.25
RETRY_SECONDS_MOST: Final = 5.0

_UNSENT: Final = frozenset({"dns", "refused", "unreachable", "tls", "proxy"})
"""Reasons for which no byte of a request can have reached a server."""

# fmt: off
_REMEDIES: Final = {
    "refused":     "Start it with `checkrein serve`, or correct the address.",
    "dns":         "Check the address and the network.",
    "unreachable": "Check the address and the network.",
    "tls":         "Check the address; if the certificate is your own, set SSL_CERT_FILE to that of its authority.",
    "proxy":       "Correct HTTP_PROXY and HTTPS_PROXY, or name the host in NO_PROXY.",
    "malformed":   "Check that the address is that of a Checkrein server.",
}
# fmt: on


class _Hidden(str):
    """A text that a person who debugs does not get to see by chance."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'…'"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `may_repeat`: to send it twice does the same as to send it once."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    may_repeat: bool = True
    wait: float = 0.0
    """How long the server may take by itself before it answers."""


class Transport:
    """The connections to one server, in one event loop."""

    def __init__(self, url: str, token: str, headers: Mapping[str, str], *, timeout: float, retries: int) -> None:
        self.url = url
        self._timeout = timeout
        self._retries = retries
        self._headers = {name.lower(): _Hidden(value) for name, value in headers.items()}
        if token:
            self._headers["authorization"] = _Hidden(f"Bearer {token}")
        self._http = Http()

    async def close(self) -> None:
        await self._http.close()

    async def ask(self, request: Request) -> tuple[int, bytes]:
        """The status and the body of a good answer. Raises the error that a bad one is, or `ServerUnavailable`."""
        for tried in range(self._retries + 1):
            try:
                return await self._ask_once(request)
            except (ServerUnavailable, JournalError, RequestRefused) as error:
                pause = self._pause_before_repeat(error, request, tried)
                if pause is None:
                    raise
                _log.info("the server is asked again, after %.2f s: %s", pause, error)
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _pause_before_repeat(self, error: CheckreinError, request: Request, tried: int) -> float | None:
        """How long to wait before the request is sent again; None: it is not."""
        is_away, is_unsent, named = _is_away(error)
        if not is_away or tried == self._retries or not (request.may_repeat or is_unsent):
            return None
        return max(backoff(tried), min(named, RETRY_SECONDS_MOST))

    async def _ask_once(self, request: Request) -> tuple[int, bytes]:
        response = await self.open(request)
        try:
            body = await self._whole(response)
        finally:
            response.close()
        if response.status >= 300:
            raise self.error_of(response, body)
        return response.status, body

    async def open(self, request: Request, headers: Mapping[str, str] | None = None) -> Response:
        """The answer as soon as its head is there, whatever its status. Whoever gets it closes it."""
        url = self.url + request.path + (f"?{urlencode(request.query)}" if request.query else "")
        sent = {"accept": "application/json", **self._headers, **(headers or {})}
        if request.body is not None:
            sent["content-type"] = "application/json"
        timeouts = Timeouts(CONNECT_SECONDS, self._timeout + request.wait, max(self._timeout, QUIET_SECONDS))
        try:
            if request.method == "POST":
                return await self._http.post(url, sent, request.body or b"{}", who=self._who, timeouts=timeouts)
            send = self._http.delete if request.method == "DELETE" else self._http.get
            return await send(url, sent, who=self._who, timeouts=timeouts)
        except ModelUnavailable as error:
            problem = self.unavailable(error, request)
        raise problem

    async def _whole(self, response: Response) -> bytes:
        parts: list[bytes] = []
        size = 0
        while data := await self.piece(response):
            parts.append(data)
            size += len(data)
            if size > LARGEST_ANSWER:
                raise ServerUnavailable(f"{self._who} answers more than is read.", url=self.url, reason="oversized")
        return b"".join(parts)

    async def piece(self, response: Response) -> bytes:
        """More of an answer; nothing at its end."""
        try:
            return await response.read()
        except ModelUnavailable as error:
            problem = self.unavailable(error, None)
        raise problem

    # -- errors

    @property
    def _who(self) -> str:
        return f"The Checkrein server at {self.url}"

    def unavailable(self, error: ModelUnavailable, request: Request | None) -> ServerUnavailable:
        is_unsent = error.reason in _UNSENT
        told = error.message
        if request is not None and not request.may_repeat and not is_unsent:
            told += " Whether it has done what was asked is not known: look before you ask again."
        elif error.reason in _REMEDIES:
            told += f" {_REMEDIES[error.reason]}"
        return ServerUnavailable(told, url=self.url, reason=error.reason, is_unsent=is_unsent)

    def malformed(self) -> ServerUnavailable:
        told = f"{self._who} answers something that cannot be read. {_REMEDIES['malformed']}"
        return ServerUnavailable(told, url=self.url, reason="malformed")

    def error_of(self, response: Response, body: bytes) -> CheckreinError:
        """The error that an answer is."""
        if 300 <= response.status < 400:
            to = urlsplit(response.headers.get("location", ""))
            where = f" to {to.scheme}://{to.netloc.rpartition('@')[2]}" if to.netloc else ""
            told = f"{self._who} sends its clients elsewhere{where}; give that address."
            return ServerUnavailable(told, url=self.url, reason="malformed", is_unsent=True)
        try:
            told_of = msgspec.json.decode(body, type=_ErrorBody)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Not one of ours: something that stands between, or another server altogether.
            reason = "fault" if response.status >= 500 else "malformed"
            told = f"{self._who} answered {response.status}, and not as Checkrein does. {_REMEDIES['malformed']}"
            return ServerUnavailable(told, url=self.url, reason=reason)
        return _error(told_of, response.status, _seconds(response.headers.get("retry-after")), self.url)


class _ErrorBody(msgspec.Struct, frozen=True):
    """`server.errors.ErrorBody`, read without what a server is made of."""

    code: str
    message: str
    run: str | None = None
    status: str | None = None
    agent: str | None = None
    call: str | None = None
    known: tuple[str, ...] = ()


_BY_CODE: Final = {
    kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CheckreinError)
}
_BY_STATUS: Final[Mapping[int, type[CheckreinError]]] = {401: Unauthorised, 403: Forbidden, 409: Refused}
_TOO_EARLY: Final = frozenset({"agents_loading", "busy"})
"""Codes of requests that were refused before anything of them was done, and may be sent again in a moment."""


def _error(told: _ErrorBody, http_status: int, retry_after: float, url: str) -> CheckreinError:
    kind = _BY_CODE.get(told.code) or _BY_STATUS.get(http_status)
    if kind is None and http_status >= 500 and told.code not in _TOO_EARLY:
        return ServerUnavailable(told.message, code=told.code, url=url, reason="fault")
    if kind is None or issubclass(kind, AccessError):
        headers = {"Retry-After": f"{retry_after:g}"} if retry_after else {}
        values = {"agent": told.agent or "", "call": told.call or "", "known": told.known}
        made = kind or RequestRefused
        return made(told.message, code=told.code, status=http_status, headers=headers, **values)
    said = {"run": told.run or "", "status": told.status, "agent": told.agent or "", "call": told.call or ""}
    values = {name: value for name, value in said.items() if hasattr(kind, name) and value}
    return kind(told.message, code=told.code, **values)


def _is_away(error: CheckreinError) -> tuple[bool, bool, float]:
    """Whether the same request may be answered later, whether nothing of it was done, and after how long to ask."""
    if isinstance(error, ServerUnavailable):
        return error.reason not in ("tls", "malformed", "oversized"), error.is_unsent, 0.0
    if isinstance(error, AccessError):
        is_early = error.code in _TOO_EARLY
        return is_early, is_early, _seconds(error.headers.get("Retry-After"))
    return error.code == errors.StoreUnavailable.code, False, 0.0


def may_come_back(error: CheckreinError) -> bool:
    """Whether a stream that ended with this is worth opening again."""
    return _is_away(error)[0]


def backoff(tried: int) -> float:
    """Longer each time, and never the same for all who wait."""
    return min(RETRY_SECONDS_MOST, RETRY_SECONDS * 2.0 ** min(tried, 10)) * random.uniform(0.5, 1.0)


def _seconds(text: str | None) -> float:
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        return 0.0


def address(url: str) -> str:
    """`url` as the beginning of every address of a server. Raises `WrongInput` for one that is none."""
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise WrongInput(
            "The address of a server begins with http:// or https://, as in http://127.0.0.1:8700.",
            code="server_address",
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise WrongInput(
            f"The address of a server is like {parts.scheme}://host:port and perhaps a path; a token is given as such.",
            code="server_address",
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def checked_token(token: str) -> str:
    """`token`, which must fit a header. The sentence does not repeat it."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise MisuseError("This is no token: it has spaces, line ends or characters that no token has.")
    return token


def path_of(*parts: str) -> str:
    """The path of something: each part as it is, whatever is in it."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def decoded(transport: Transport, body: bytes, kind: type[T]) -> T:
    """An answer as the type that it is of."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        _log.warning("an answer of the server is no %s", kind)
    raise transport.malformed()


def get(*parts: str) -> Request:
    return Request(method="GET", path=path_of(*parts))
