"""One client's connection: its requests, one after the other, and the moment when it is gone.

Reading never stops while an answer is sent, so that a client that closes its connection is noticed at once and not when
the next token finds nobody.

Which address is for what: the wires, the lists of models, counts of tokens, and the provider's own log.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import msgspec

from checkrein.errors import MisuseError
from checkrein.testing.provider import anthropic, anthropic_rules, gemini, openai, openai_responses, openai_rules
from checkrein.testing.provider.http import CONTINUE, BadRequest, Incoming, Reader, head
from checkrein.testing.provider.log import Log, Request, Wire
from checkrein.testing.provider.playback import Playing, ended, send_problem
from checkrein.testing.provider.scenario import Fault, Reply, Scenario, Script
from checkrein.testing.provider.wire import BYTES_PER_TOKEN, Answer, Problem, Refused, Terms, problem


class Service:
    """What all connections of one provider share: its terms, what it plays, and its log."""

    def __init__(self, script: Script, terms: Terms) -> None:
        self.terms = terms
        self.scenario = Scenario(script)
        self.log = Log()
        self.failures: list[Exception] = []
        """What a scenario that is a function raised."""

    def play(self, script: Script) -> None:
        """Answer requests from now on by another scenario."""
        self.scenario = Scenario(script)


ASIDE: Final = "/_"
"""How addresses begin that no real provider has."""


class Route(msgspec.Struct, frozen=True):
    """How a request is judged and answered; `aside`: how it is answered where no model is asked."""

    wire: Wire
    refuse: Callable[[Incoming, Any, Terms], None]
    answer: Callable[[Reply, dict[str, Any], int], Answer]
    problem: Callable[[Fault, str], Problem]
    aside: Callable[[Service, Incoming], Problem] | None = None
    adds: dict[str, Any] | None = None
    """What this wire says in the address and others in the body."""


OPENAI: Final = Route("openai", openai_rules.refuse, openai.answer, openai.fault_problem)
RESPONSES: Final = Route("openai-responses", openai_responses.refuse, openai_responses.answer, openai.fault_problem)
ANTHROPIC: Final = Route("anthropic", anthropic_rules.refuse, anthropic.answer, anthropic.fault_problem)
GEMINI: Final = Route("gemini", gemini.refuse, gemini.answer, gemini.fault_problem)

GENERATE: Final = re.compile(r"/v1(?:alpha|beta)?/models/([^/:]+):(generateContent|streamGenerateContent)")


def find_route(request: Incoming) -> Route:
    path = request.path.rstrip("/")
    if path.startswith(ASIDE):
        return msgspec.structs.replace(OPENAI, aside=_own)
    if "upgrade" in request.headers:
        return msgspec.structs.replace(OPENAI, aside=_no_upgrade)
    if request.method == "POST" and (path in COUNTS or path.endswith(":countTokens")):
        return msgspec.structs.replace(OPENAI, aside=_count)
    if request.method == "POST" and (found := GENERATE.fullmatch(path)):
        return msgspec.structs.replace(GEMINI, adds={"model": found[1], "stream": found[2] != "generateContent"})
    if request.method == "POST" and path in ("/v1/responses", "/api/v1/responses"):
        return RESPONSES
    if request.method == "POST" and path in ("/v1/chat/completions", "/api/v1/chat/completions"):
        return OPENAI
    if request.method == "POST" and path == "/v1/messages":
        return ANTHROPIC
    return msgspec.structs.replace(OPENAI, aside=_models if request.method == "GET" else _nowhere)


def _good(body: object) -> Problem:
    return problem(200, {}, body, "")


def _own(service: Service, request: Incoming) -> Problem:
    """The provider's own addresses: its log, and what it plays."""
    match request.method, request.path:
        case "GET", "/_log":
            encoded = service.log.as_json(bodies=request.query != "bodies=0")
            return Problem(200, {"content-type": "application/json"}, encoded, "")
        case "DELETE", "/_log":
            service.log.clear()
            return _good({})
        case "PUT", "/_scenario":
            try:
                replies = msgspec.json.decode(request.body, type=list[Reply])
                service.play(replies)
            except (msgspec.MsgspecError, MisuseError) as error:
                return problem(400, {}, {"error": str(error)}, str(error))
            return _good({})
    return _nowhere(service, request)


def _models(service: Service, request: Incoming) -> Problem:
    of_anthropic = "anthropic-version" in request.headers
    path = request.path.removeprefix("/api").rstrip("/")
    rules, wire = (anthropic_rules, anthropic) if of_anthropic else (openai_rules, openai)
    try:
        rules.refuse_key(request, service.terms)
    except Refused as refused:
        return refused.problem
    if path == "/v1/models" or path.startswith("/v1/models/"):
        name = path.removeprefix("/v1/models").lstrip("/")
        found = wire.models(service.terms, name)
        return _good(found) if found is not None else rules.unknown_model(name)
    return _nowhere(service, request)


COUNTS: Final = frozenset({"/v1/messages/count_tokens"})


def _count(service: Service, request: Incoming) -> Problem:
    """How many tokens a request has; nothing is asked of a model."""
    of_anthropic = request.path.rstrip("/") in COUNTS
    try:
        (anthropic_rules if of_anthropic else gemini).refuse_key(request, service.terms)
    except Refused as refused:
        return refused.problem
    tokens = max(1, len(request.body) // BYTES_PER_TOKEN)
    return _good({"input_tokens": tokens} if of_anthropic else {"totalTokens": tokens})


def _no_upgrade(service: Service, request: Incoming) -> Problem:
    """Nothing here speaks WebSocket. Clients that hear so take HTTP instead."""
    message = "Upgrade Required: this provider speaks HTTP only."
    return problem(426, {"connection": "keep-alive"}, openai.error(message, "invalid_request_error"), message)


def _nowhere(service: Service, request: Incoming) -> Problem:
    if "anthropic-version" in request.headers:
        return anthropic.problem_of(404, "not_found_error", "Not Found")
    message = f"Invalid URL ({request.method} {request.path})"
    return problem(404, openai.headers(), openai.error(message, "invalid_request_error"), message)


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
            self._aside(route.aside(self._service, incoming), with_body=incoming.method != "HEAD")
        else:
            self._ask(incoming, route)

    def _aside(self, problem: Problem, *, with_body: bool) -> None:
        """Something that is not for a model and leaves no record."""
        headers = {**problem.headers, "content-length": str(len(problem.body))}
        self.send(head(problem.status, headers) + (problem.body if with_body else b""))
        self.released()

    def _ask(self, incoming: Incoming, route: Route) -> None:
        body, raw = _decoded(incoming.body)
        if route.adds and isinstance(body, dict):
            body |= route.adds
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
