"""One client's connection: its requests, one after the other, and the moment when it is gone.

Reading never stops while an answer is sent, so that a client that closes its connection is noticed at once and not when
the next token finds nobody.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable
from typing import Any, Final, cast

import msgspec

from checkrein.testing.provider.http import CONTINUE, BadRequest, Incoming, Reader, head
from checkrein.testing.provider.log import Request
from checkrein.testing.provider.playing import Playing, ended, send_problem
from checkrein.testing.provider.routes import Route, find_route
from checkrein.testing.provider.scenario import Fault, Reply
from checkrein.testing.provider.service import Service
from checkrein.testing.provider.wire import Answer, Problem, Refused

LET_GO: Final = struct.pack("ii", 1, 0)
"""Linger for no time at all: closing the socket resets the connection."""


class Connection(asyncio.Protocol):
    """One client. Requests are served one after the other over it."""

    def __init__(self, service: Service, open: set[Connection]) -> None:
        self._service = service
        self._log = service.log
        self._open = open
        self._reader = Reader()
        self._number = 0
        self._busy = False
        self._keep_alive = True
        self._playing: Playing | None = None
        self._choosing: asyncio.Task[None] | None = None
        self._request: Request | None = None
        self.full = False
        self._gone = asyncio.get_running_loop().create_future()

    # -- from the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # Nothing is kept back here: what counts as sent has been taken by the operating system.
        self._transport.set_write_buffer_limits(high=0)
        self._log.connections += 1
        self._number = self._log.connections
        self._open.add(self)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        if not self._busy:
            self._serve()

    def eof_received(self) -> bool:
        self._client_gone()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._client_gone()
        if self._playing is None:
            self._open.discard(self)
        if not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        if self._playing is not None:
            self._playing.room()

    def _client_gone(self) -> None:
        if self._choosing is not None:
            self._choosing.cancel()
        if self._playing is not None:
            self._playing.gone()
        elif self._request is not None and not self._request.how:
            self._request.disconnected_at = time.monotonic()
            ended(self._request, self._log, "disconnected")

    # -- to the socket

    def send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def cut(self, reset: bool) -> None:
        self._keep_alive = False
        if reset:
            found = self._transport.get_extra_info("socket")
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LET_GO)
            self._transport.abort()
        else:
            self._transport.close()

    def released(self) -> None:
        self._busy = False
        self._playing = None
        self._request = None
        if self._gone.done():
            self._open.discard(self)
        elif not self._keep_alive:
            self._transport.close()
        elif not self._transport.is_closing():
            # Not from within: whoever called may still be in the middle of something.
            asyncio.get_running_loop().call_soon(self._serve)

    def shut(self) -> asyncio.Future[None]:
        """End it from this side; the future is done when it is gone."""
        if self._choosing is not None:
            self._choosing.cancel()
        if self._playing is not None:
            self._playing.shut()
        elif self._request is not None and not self._request.how:
            ended(self._request, self._log, "shutdown")
        self._request = self._playing = None
        self._transport.abort()
        return self._gone

    # -- serving

    def _serve(self) -> None:
        if self._busy or self._transport.is_closing():
            return
        try:
            incoming = self._reader.next()
        except BadRequest as error:
            self.send(head(400, {"content-length": "0", "connection": "close"}))
            refused = self._log.add(self._number, "", "", {}, msgspec.json.encode(str(error)))
            refused.status, refused.error = 400, str(error)
            ended(refused, self._log, "refused")
            self._transport.close()
            return
        if incoming is None:
            if self._reader.wants_permission:
                self.send(CONTINUE)
            return
        self._busy = True
        self._keep_alive = incoming.keep_alive
        route = find_route(incoming)
        if route.aside is not None:
            self._aside(route.aside(self._service, incoming))
        else:
            self._ask(incoming, route)

    def _aside(self, problem: Problem) -> None:
        """Something that is not for a model and leaves no record."""
        headers = {**problem.headers, "content-length": str(len(problem.body))}
        self.send(head(problem.status, headers) + problem.body)
        self.released()

    def _ask(self, incoming: Incoming, route: Route) -> None:
        body, raw = _decoded(incoming.body)
        request = self._log.add(self._number, incoming.method, incoming.path, incoming.headers, raw)
        self._request = request
        request.wire = route.wire
        if isinstance(body, dict):
            request.model = str(body.get("model", ""))
            request.stream = bool(body.get("stream"))
        try:
            route.refuse(incoming, body, self._service.terms)
        except Refused as refused:
            send_problem(self, request, self._log, refused.problem, "refused")
            return
        except (AttributeError, LookupError, TypeError):
            # Something in it is of a kind that no rule has thought of.
            send_problem(self, request, self._log, route.problem(Fault(status=400), ""), "refused")
            return
        try:
            chosen = self._service.scenario.choose(request)
        except Exception as error:
            self._scenario_failed(request, route, error)
            return
        if isinstance(chosen, Reply):
            self._answer(request, route, chosen, body)
        else:
            self._choosing = asyncio.get_running_loop().create_task(self._answer_later(request, route, chosen, body))

    async def _answer_later(
        self, request: Request, route: Route, chosen: Awaitable[Reply], body: dict[str, Any]
    ) -> None:
        try:
            reply = await chosen
        except Exception as error:
            self._scenario_failed(request, route, error)
        else:
            self._choosing = None
            self._answer(request, route, reply, body)

    def _scenario_failed(self, request: Request, route: Route, error: Exception) -> None:
        """The client gets an answer all the same; whoever wrote the scenario hears of it when the provider closes."""
        self._service.failures.append(error)
        problem = route.problem(Fault(status=500, body={"error": {"message": repr(error)}}), request.model)
        send_problem(self, request, self._log, problem, "fault")

    def _answer(self, request: Request, route: Route, reply: Reply, body: dict[str, Any]) -> None:
        fault = reply.fault
        answer: Answer | Problem
        if fault is not None and (fault.kind == "status" or (fault.kind == "error" and not request.stream)):
            answer = route.problem(fault, request.model)
        else:
            answer = route.answer(reply, body, len(bytes(request.raw)))
        self._playing = Playing(self, request, self._log, reply, answer)
        self._playing.begin()


def _decoded(body: bytes) -> tuple[Any, bytes]:
    """The body, and its bytes as they go into the log: as a string where they are no JSON. None: it is no JSON."""
    try:
        return msgspec.json.decode(body), body
    except msgspec.DecodeError:
        return None, msgspec.json.encode(body.decode(errors="replace"))
