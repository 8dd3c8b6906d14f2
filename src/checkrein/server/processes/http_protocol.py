"""What one connection may take before anybody has looked at its request: bytes, time, requests ahead, a descriptor.

Behind a proxy hardly any of this is ever needed. A server that is reached directly keeps no place, and no memory, for a
connection that does not say what it wants, says more than a request needs, or asks without reading the answers.

    head        64 KiB, within 10 s                                      431 too_large · closed
    body        within 10 s of its head; how long it may be, the gate    408 body_late
    trailers    64 KiB, and none is heard: a header after the body has passed neither the gate nor a proxy
    Upgrade     is not offered here: such a request is read, with its body, as one without
    pipelining  a few requests ahead                                     cut off
    connections as many as there are descriptors, less some for the stores and processes of the server itself: then
                the oldest that has shown no good token or session makes room for the next, and before it one that is
                over and does not read what it was told last
"""

from __future__ import annotations

import asyncio
import logging
import resource
from functools import partial
from typing import Any, Final, Literal

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from checkrein.server.auth.gate import ADMITTED, Admitted
from checkrein.server.streaming.rate_limit import asks_for_stream
from checkrein.server.streaming.sse import WRITE_NOW

_log = logging.getLogger(__name__)

HEAD_BYTES: Final = 64 * 1024
"""How long the head of a request may be, and what follows its body."""
HEAD_SECONDS: Final = 10.0
"""How long a connection may take to say what it wants. One that never does would keep its place for ever."""
BODY_SECONDS: Final = 10.0
"""How long the body may take after its head."""
MOST_AHEAD: Final = 8
"""So many requests may wait for the answers of those before them. No browser sends any ahead."""
MOST_DESCRIPTORS: Final = 65_536
"""More than this is of no use to one process."""
KEPT_BACK: Final = 128
"""Descriptors that no connection keeps: for stores, drivers, and whoever comes with a verb while all are taken."""
MOST_AT_ONCE: Final = 16
"""So many connections are taken in one turn of the event loop: those that make room for them are closed in the next
ones, and before that descriptors must not run out."""
_END_SECONDS: Final = 1.0
"""A peer that does not read may miss what it was told last."""


def _error(code: str, message: str) -> bytes:
    return msgspec.json.encode({"code": code, "message": message})


_NOT_HTTP: Final = b"400 Bad Request", _error("not_http", "This cannot be read as an HTTP request.")
_TOO_LONG: Final = (
    b"431 Request Header Fields Too Large",
    _error("too_large", "The headers of this request are too long."),
)
_LATE: Final = (
    b"408 Request Timeout",
    _error("body_late", f"The body did not come within {BODY_SECONDS:.0f} s of its head; nothing was done."),
)
_OTHER_HOST: Final = (
    b"400 Bad Request",
    _error("wrong_host", "The address of this request names another host than its Host header."),
)

Phase = Literal["idle", "head", "body"]


class HttpProtocol(HttpToolsProtocol):
    """The HTTP protocol of uvicorn, with limits."""

    _phase: Phase = "idle"
    """Which part of a request is being read."""
    _deadline: asyncio.TimerHandle | None = None
    _unread = 0
    """Bytes that came since the last thing that was wholly read: a head, or a piece of a body."""
    _refusal = _NOT_HTTP
    """What is said when the parser stops."""
    _answering: RequestResponseCycle | None = None
    """The request that is being answered; `cycle` is the one that was read last."""
    _was_known = False
    _is_cut_off = False
    """It has made room, and is lost as soon as the event loop comes to it."""
    _since = 0.0

    # -- connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._expect("head")
        if len(self.connections) > most_connections():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect("idle")
        # Only the request that was read last hears of it by itself: one that is answered meanwhile must end too.
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    @property
    def is_known(self) -> bool:
        """Whether a request on this connection had a good token or session."""
        admitted = dict(self.scope or {}).get(ADMITTED)  # None before the first request
        return self._was_known or (isinstance(admitted, Admitted) and admitted.principal is not None)

    def _make_room(self) -> None:
        """Cut off the oldest connections of strangers; some at a time, as looking for them takes a while.

        First those that are over: one that does not read its last answer keeps its descriptor as long as it likes.
        """
        there = [one for one in self.connections if isinstance(one, HttpProtocol) and not one._is_cut_off]
        if len(there) <= most_connections():
            return
        over = [one for one in there if one.transport.is_closing()]
        strangers = [one for one in there if not one.transport.is_closing() and not one.is_known and one is not self]
        oldest = [*sorted(over, key=lambda one: one._since), *sorted(strangers, key=lambda one: one._since)]
        ended = oldest[: max(1, len(there) // 16)]
        for one in ended:
            one._is_cut_off = True
            one.transport.abort()
        _log.info(
            "there are %d connections; %d that are over or without a good token make room", len(there), len(ended)
        )

    # -- reading

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._unread += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse(self._refusal)
        else:
            if self._unread > HEAD_BYTES:
                self._refuse(_TOO_LONG)

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                return self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offered:
                # The parser has stopped after the head, and would never read the body: read the same request again.
                data = self._head_without_upgrade() + data[offered.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def on_message_begin(self) -> None:
        self._was_known = self.is_known
        if self._phase != "head":
            self._expect("head")
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase == "head":
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._check_head()
        if self.parser.should_upgrade():
            return
        if len(self.pipeline) >= MOST_AHEAD:
            raise ValueError("too many requests ahead")
        self._unread = 0
        self._expect("body")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._phase != "body":
            return  # an offer to upgrade: its request is read again
        self._unread = 0
        self._expect("idle")
        super().on_message_complete()

    def _check_head(self) -> None:
        """Raise, which stops the parser, for a head that is not taken; `_refusal` says why."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if method == b"CONNECT" or version not in ("1.0", "1.1"):
            raise ValueError("not for this server")
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > HEAD_BYTES:
            self._refusal = _TOO_LONG
            raise ValueError("too long")
        if not self.url.startswith((b"/", b"*")):
            named = self.url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0]
            if [named.lower()] != [value.lower() for name, value in self.headers if name == b"host"]:
                self._refusal = _OTHER_HOST
                raise ValueError("another host")

    def _head_without_upgrade(self) -> bytes:
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                kept = [one.strip() for one in value.split(b",") if one.strip().lower() not in _ABOUT_UPGRADES]
                value = b", ".join(kept)
            if name not in _ABOUT_UPGRADES and (value or name != b"connection"):
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join([*lines, b"", b""])

    # -- answering

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        if asks_for_stream(dict(cycle.scope)):
            cycle.scope[WRITE_NOW] = partial(_write_now, cycle)  # type: ignore[typeddict-unknown-key]
        super()._start_asgi_task(cycle, app)

    # -- the end of patience

    def _expect(self, phase: Phase) -> None:
        """This is read next, within its time."""
        self._phase = phase
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if phase != "idle":
            self._deadline = self.loop.call_later(HEAD_SECONDS if phase == "head" else BODY_SECONDS, self._is_late)

    def _is_late(self) -> None:
        _log.info("a connection is closed: its %s did not come in time", self._phase)
        if self._phase == "body" and self._is_unanswered():
            self._refuse(_LATE)
        else:
            self._end()

    def _is_unanswered(self) -> bool:
        """Whether the request that is being read is the one to be answered next."""
        current = self._answering
        return current is not None and current is self.cycle and not current.response_started

    def _refuse(self, refusal: tuple[bytes, bytes]) -> None:
        current = self._answering
        is_idle = current is None or current.response_complete
        if not is_idle and not (self._phase == "body" and self._is_unanswered()):
            self.transport.abort()  # whatever were said now would be taken for the answer to another request
            return
        status, body = refusal
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (status, len(body), body)
        )
        self._end()

    def _end(self) -> None:
        self.transport.close()
        self.loop.call_later(_END_SECONDS, self.transport.abort)


def _write_now(cycle: RequestResponseCycle, body: bytes) -> bool:
    """Write a piece of the body of an answer that streams. Whoever is not told so has to `send` it, and to wait."""
    if cycle.flow.write_paused or cycle.disconnected or cycle.response_complete or not cycle.chunked_encoding:
        return False
    cycle.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
    return True


_ABOUT_UPGRADES: Final = frozenset({b"upgrade", b"http2-settings"})


def raise_descriptor_limit() -> None:
    """Have as many descriptors as this process may: the usual limit is for programs that use `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:  # some systems know a lower limit than they tell
            _log.info("there are no more than %d descriptors: %s", soft, error)


def most_connections() -> int:
    """How many connections there may be at a time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, MOST_DESCRIPTORS)
    return max(most - KEPT_BACK, most // 2)
