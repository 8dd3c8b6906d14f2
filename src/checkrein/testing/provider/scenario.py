"""What a provider shall say, and how it shall fail. Data only, so that a scenario fits in a JSON file."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from checkrein.errors import MisuseError
from checkrein.testing.provider.log import Request

MEBIBYTE: Final = 1024 * 1024
ARGUMENT_PIECE: Final = 8
"""Characters of a call's arguments that are sent as one token."""

_WORD: Final = re.compile(r"\s*\S+|\s+")


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the provider says that the answer used. `cache_read` and `cache_write` are parts of `input`."""

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How an answer goes wrong. One of these, counted in tokens from the beginning of the answer:

    `status`                  an error instead of an answer, with the provider's own body unless `body` is given
    `never_answers`           the request is read and the connection held, without a byte
    `cut_after_tokens`        the connection breaks: reset, or closed without the end of the answer (`cut="close"`)
    `stall_after_tokens`      silence on an open connection, or nothing but keep-alives every `pings_every` seconds
    `stall_before_end`        the same after everything but the very last event
    `malformed_after_tokens`  an event whose JSON breaks off; then the answer goes on
    `oversized_after_tokens`  an event of `oversized_bytes`; then the answer goes on
    `error_after_tokens`      an error inside the stream, of the kind that `status` (529) would have; the answer ends

    With `times` only the first so many requests for this reply fail, and the next one gets the reply as it is.
    """

    status: int | None = None
    retry_after: float | str | None = None
    """Seconds, or a date in the form of HTTP."""
    body: str | dict[str, Any] | None = None
    headers: dict[str, str] = {}
    never_answers: bool = False
    cut_after_tokens: int | None = None
    cut: Literal["reset", "close"] = "reset"
    stall_after_tokens: int | None = None
    stall_before_end: bool = False
    pings_every: float | None = None
    malformed_after_tokens: int | None = None
    oversized_after_tokens: int | None = None
    oversized_bytes: int = 8 * MEBIBYTE
    error_after_tokens: int | None = None
    times: int | None = None

    def __post_init__(self) -> None:
        kinds = self._kinds()
        if len(kinds) != 1:
            raise MisuseError(f"A Fault is of one kind, but this one says {' and '.join(kinds) or 'nothing'}.")

    def _kinds(self) -> list[str]:
        kinds = [kind for kind in _AT_A_TOKEN if getattr(self, f"{kind}_after_tokens") is not None]
        kinds += [kind for kind in ("never_answers", "stall_before_end") if getattr(self, kind)]
        if self.status is not None and "error" not in kinds:
            kinds.append("status")
        return kinds

    @property
    def kind(self) -> str:
        """status, never_answers, cut, stall, stall_before_end, malformed, oversized or error."""
        return self._kinds()[0]

    @property
    def after(self) -> int | None:
        """After how many tokens it happens, where that is said."""
        tokens: int | None = getattr(self, f"{self.kind}_after_tokens", None)
        return tokens


_AT_A_TOKEN: Final = ("cut", "stall", "malformed", "oversized", "error")


class Reply(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One answer. A token of `text` and `thinking` is a word; a list of strings is taken as the tokens themselves."""

    text: str | Sequence[str] = ""
    thinking: str | Sequence[str] = ""
    calls: Sequence[tuple[str, Any]] = ()
    """Names and arguments. Arguments that are a string are sent as they are, valid or not."""
    tokens_per_second: float | None = None
    """None: as fast as the connection takes them."""
    first_byte_after: float = 0.0
    finish: str | None = None
    """Why it ended, in the words of either wire; None: what follows from the reply."""
    usage: bool | Usage = True
    """False: say nothing about it, as some compatible servers do. True: the tokens as they are counted here."""
    fault: Fault | None = None
    call_ids: Sequence[str] = ()
    """Ids for the calls, where made-up ones will not do."""
    reasoning_field: str = "reasoning_content"
    """Under which name thinking goes over the OpenAI wire: servers differ."""
    shred: int | None = None
    """Send the answer in pieces of so many bytes, whatever they cut in two."""
    keeps_generating: bool = False
    """Go on making (and counting) tokens when the client is gone, as a provider may."""


Choose = Callable[[Request], "Reply | str | Awaitable[Reply | str]"]
Script = Reply | str | Sequence[Reply | str] | Choose


def tokens_of(text: str | Sequence[str]) -> list[str]:
    """`text` in the pieces in which it is sent; joined they are the text."""
    return _WORD.findall(text) if isinstance(text, str) else list(text)


def argument_tokens(arguments: str) -> list[str]:
    return [arguments[at : at + ARGUMENT_PIECE] for at in range(0, len(arguments), ARGUMENT_PIECE)]


def by_turn(replies: Sequence[Reply | str]) -> Choose:
    """The reply for the n-th turn of a conversation, told by its history alone: for many conversations at a time.

    The turn is the number of the assistant's messages in the request. The last reply is repeated.
    """

    def choose(request: Request) -> Reply | str:
        return replies[min(request.turn, len(replies) - 1)]

    return choose


class Scenario:
    """Chooses the reply for a request, and knows which faults have been used up."""

    def __init__(self, script: Script) -> None:
        self._replies: Sequence[Reply | str] = ()
        self._choose: Choose = self._in_order
        self._next = 0
        self._failed: dict[int, tuple[Reply, int]] = {}  # by identity; holding the reply keeps its identity its own
        if callable(script):
            self._choose = script
        else:
            self._replies = [script] if isinstance(script, Reply | str) else list(script)
            if not self._replies:
                raise MisuseError("A scenario needs at least one Reply.")

    def choose(self, request: Request) -> Reply | Awaitable[Reply]:
        """The reply for `request`, with its fault left out when that has happened often enough."""
        chosen = self._choose(request)
        if isinstance(chosen, Reply | str):
            return self._count(chosen)
        return self._later(chosen)

    async def _later(self, chosen: Awaitable[Reply | str]) -> Reply:
        return self._count(await chosen)

    def _in_order(self, request: Request) -> Reply | str:
        """Replies in the order in which requests come; the last one is repeated."""
        reply = self._replies[min(self._next, len(self._replies) - 1)]
        if not (isinstance(reply, Reply) and self._fails_again(reply)):
            self._next += 1
        return reply

    def _fails_again(self, reply: Reply) -> bool:
        fault = reply.fault
        return fault is not None and fault.times is not None and self._failures(reply) < fault.times

    def _failures(self, reply: Reply) -> int:
        return self._failed.get(id(reply), (reply, 0))[1]

    def _count(self, chosen: Reply | str) -> Reply:
        if isinstance(chosen, str):
            return Reply(chosen)
        if chosen.fault is None or chosen.fault.times is None:
            return chosen
        if not self._fails_again(chosen):
            return replace(chosen, fault=None)
        self._failed[id(chosen)] = (chosen, self._failures(chosen) + 1)
        return chosen
