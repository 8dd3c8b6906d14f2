"""What the wires have in common: the parts of an answer, the bytes it becomes, and a refusal."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import msgspec

from checkrein.testing.provider.scenario import Fault, Reply, Usage, argument_tokens, tokens_of

ALPHABET: Final = string.ascii_letters + string.digits
BYTES_PER_TOKEN: Final = 4

ERROR_STATUS: Final = 529
"""What an error is like whose status the scenario leaves open: overloaded."""
RETRY: Final = frozenset({408, 409, 429})
"""Statuses below 500 after which the same request may succeed."""


class Problem(msgspec.Struct, frozen=True):
    """An error as a whole response."""

    status: int
    headers: dict[str, str]
    body: bytes
    message: str


class Refused(Exception):
    """The request is at fault; `problem` is the answer."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Terms(msgspec.Struct, frozen=True):
    """Whom the provider serves and with what. `key` None: anybody. `models` are names or patterns such as `gpt-*`."""

    key: str | None
    models: Collection[str] | None

    def has(self, model: str, by_default: Collection[str]) -> bool:
        return any(fnmatchcase(model, pattern) for pattern in self.models or by_default)

    def listed(self, by_default: Collection[str]) -> list[str]:
        return [name for name in self.models or by_default if "*" not in name]


class Part(msgspec.Struct, frozen=True):
    """A stretch of an answer in the tokens in which it is sent."""

    kind: Literal["thinking", "text", "call"]
    tokens: list[str]
    name: str = ""
    id: str = ""
    shown: bool = True

    @property
    def text(self) -> str:
        return "".join(self.tokens)


class Answer(msgspec.Struct, frozen=True):
    """A good answer in bytes: `whole`, or as a stream of `opening`, one piece for each token, and `closing`."""

    headers: dict[str, str]
    whole: bytes
    opening: bytes
    pieces: list[bytes]
    closing: list[bytes]
    ping: bytes
    malformed: bytes
    oversized: Callable[[int], bytes]
    """An event of at least so many bytes."""
    error: Callable[[int], bytes]
    """An error in mid-stream, of the kind that this status would have."""


def new_id(prefix: str, length: int) -> str:
    return prefix + "".join(secrets.choice(ALPHABET) for _ in range(length))


def problem(status: int, headers: Mapping[str, str], body: Any, message: str) -> Problem:
    """`body` as JSON, or as the page that a proxy in front of a provider would show."""
    if isinstance(body, str):
        return Problem(status, {"content-type": "text/html; charset=utf-8", **headers}, body.encode(), message)
    encoded = msgspec.json.encode(body)
    return Problem(status, {"content-type": "application/json", **headers}, encoded, message)


def retry_headers(fault: Fault) -> dict[str, str]:
    wait = fault.retry_after
    if wait is None:
        return {}
    if isinstance(wait, str):
        return {"retry-after": wait}
    return {"retry-after": f"{wait:g}"}


def parts_of(reply: Reply, limit: int | None, call_id: Callable[[], str]) -> tuple[list[Part], bool]:
    """What `reply` consists of, within `limit` tokens, and whether the limit cut it short."""
    parts = [Part("thinking", tokens_of(reply.thinking)), Part("text", tokens_of(reply.text))]
    for place, (name, arguments) in enumerate(reply.calls):
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        id = reply.call_ids[place] if place < len(reply.call_ids) else call_id()
        parts.append(Part("call", argument_tokens(written), name, id))
    parts = [part for part in parts if part.tokens or part.kind == "call"]
    if limit is None or sum(len(part.tokens) for part in parts) <= limit:
        return parts, False
    return _within(parts, limit), True


def _within(parts: list[Part], limit: int) -> list[Part]:
    kept = []
    for part in parts:
        if limit <= 0:
            break
        kept.append(msgspec.structs.replace(part, tokens=part.tokens[:limit]))
        limit -= len(part.tokens)
    return kept


def usage_of(reply: Reply, parts: list[Part], size: int) -> Usage:
    """What the reply says it used, or an estimate: the tokens that are sent, and a share of the request's bytes."""
    if isinstance(reply.usage, Usage):
        return reply.usage
    if reply.usage is False:
        return Usage(0, 0)
    thought = sum(len(part.tokens) for part in parts if part.kind == "thinking")
    return Usage(max(1, size // BYTES_PER_TOKEN), sum(len(part.tokens) for part in parts), reasoning=thought)
