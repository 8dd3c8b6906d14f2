"""Which address is for what: the two wires, the lists of models, and the provider's own log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from checkrein.errors import MisuseError
from checkrein.testing.provider import anthropic, anthropic_rules, openai, openai_rules
from checkrein.testing.provider.http import Incoming
from checkrein.testing.provider.scenario import Fault, Reply
from checkrein.testing.provider.service import Service
from checkrein.testing.provider.wire import Answer, Problem, Refused, Terms, problem

ASIDE: Final = "/_"
"""How addresses begin that no real provider has."""


class Route(msgspec.Struct, frozen=True):
    """How a request is judged and answered; `aside`: how it is answered where no model is asked."""

    wire: Literal["openai", "anthropic", ""]
    refuse: Callable[[Incoming, Any, Terms], None]
    answer: Callable[[Reply, dict[str, Any], int], Answer]
    problem: Callable[[Fault, str], Problem]
    aside: Callable[[Service, Incoming], Problem] | None = None


OPENAI: Final = Route("openai", openai_rules.refuse, openai.answer, openai.fault_problem)
ANTHROPIC: Final = Route("anthropic", anthropic_rules.refuse, anthropic.answer, anthropic.fault_problem)


def find_route(request: Incoming) -> Route:
    path = request.path.rstrip("/")
    if path.startswith(ASIDE):
        return msgspec.structs.replace(OPENAI, aside=_own)
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


def _nowhere(service: Service, request: Incoming) -> Problem:
    if "anthropic-version" in request.headers:
        return anthropic.problem_of(404, "not_found_error", "Not Found")
    message = f"Invalid URL ({request.method} {request.path})"
    return problem(404, openai.headers(), openai.error(message, "invalid_request_error"), message)
