"""The provider's own record of what came and what left, by its own clock.

Times are those of `time.monotonic()`, which on one machine is the same clock in every process; `Request.wall` turns
them into the time of day.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

Wire = Literal["openai", "openai-responses", "anthropic", "gemini", ""]
How = Literal["", "completed", "disconnected", "fault", "refused", "shutdown"]

_MODEL: Final = ("assistant", "model")
_ASKS: Final = ("function_call", "custom_tool_call", "reasoning")


class Request(msgspec.Struct, kw_only=True, rename={"raw": "body"}):
    """One request and what became of it. `how` is "" while it is answered.

    completed     the whole answer was written
    disconnected  the client was gone before that
    fault         the provider broke it off, or answered with an error, because the scenario says so
    refused       the request was at fault: `status` and `error` say how
    shutdown      the provider was closed
    """

    number: int
    connection: int
    """Which connection it came over, counted from 1: requests that share one were sent over a connection kept alive."""
    wire: Wire
    method: str
    path: str
    headers: dict[str, str]
    raw: msgspec.Raw
    at: float
    wall_offset: float
    model: str = ""
    stream: bool = False
    status: int = 0
    error: str = ""
    fault: str = ""
    """The kind of fault that was played."""
    first_byte_at: float | None = None
    tokens_sent: int = 0
    token_times: list[float] = []
    tokens_after_disconnect: int = 0
    """Made for nobody, by a reply that keeps generating."""
    disconnected_at: float | None = None
    ended_at: float | None = None
    how: How = ""

    @property
    def body(self) -> Any:
        """What was sent, decoded anew each time."""
        return msgspec.json.decode(self.raw)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What it brings along of the conversation, under whichever name its wire has for that."""
        body = self.body
        found: str | list[dict[str, Any]] = next(
            body[name] for name in ("messages", "contents", "input") if name in body
        )
        return [{"role": "user", "content": found}] if isinstance(found, str) else found

    @property
    def turn(self) -> int:
        """How many messages of the assistant the request brings along."""
        said = [message.get("role") in _MODEL or message.get("type") in _ASKS for message in self.messages]
        if self.wire != "openai-responses":
            return sum(said)
        # A message of the assistant is several items there.
        return sum(now and not before for before, now in zip([False, *said], said, strict=False))

    @property
    def last_token_at(self) -> float | None:
        return self.token_times[-1] if self.token_times else None

    def tokens_since(self, moment: float) -> int:
        """How many tokens left after `moment`, such as a client's own time of its stop."""
        return sum(1 for sent in self.token_times if sent > moment)

    def wall(self, moment: float) -> float:
        """`moment` of this record as seconds since 1970."""
        return moment + self.wall_offset


class Log:
    """The requests in order, and those who wait for something to show in them."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self._offset = time.time() - time.monotonic()
        self._waiting: list[tuple[Callable[[list[Request]], object], asyncio.Future[None]]] = []
        self._looking = False

    def add(self, connection: int, method: str, path: str, headers: dict[str, str], body: bytes) -> Request:
        request = Request(
            number=len(self.requests) + 1,
            connection=connection,
            wire="",
            method=method,
            path=path,
            headers=headers,
            raw=msgspec.Raw(body),
            at=time.monotonic(),
            wall_offset=self._offset,
        )
        self.requests.append(request)
        self.changed()
        return request

    def clear(self) -> None:
        self.requests = []

    def changed(self) -> None:
        """Something in it is new: whoever waits will look, once per turn of the loop."""
        if self._waiting and not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        still = []
        for condition, future in self._waiting:
            if future.done():
                continue
            try:
                if self._holds(condition):
                    future.set_result(None)
                    continue
            except Exception as error:
                future.set_exception(error)
                continue
            still.append((condition, future))
        self._waiting = still

    def _holds(self, condition: Callable[[list[Request]], object]) -> bool:
        """Whether it does; a condition about a request that has not come yet does not."""
        try:
            return bool(condition(self.requests))
        except IndexError:
            return False

    async def until(self, condition: Callable[[list[Request]], object], timeout: float) -> None:
        """Return as soon as `condition` holds for the log; TimeoutError, with what there is, if it never does."""
        if self._holds(condition):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((condition, future))
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            seen = "; ".join(f"{one.number}: {one.how or 'at work'}, {one.tokens_sent} tokens" for one in self.requests)
            raise TimeoutError(f"Not within {timeout} s. The log has {seen or 'no requests'}.") from None

    def as_json(self, bodies: bool) -> bytes:
        if bodies:
            return msgspec.json.encode(self.requests)
        blank = msgspec.Raw(b"null")
        return msgspec.json.encode([msgspec.structs.replace(request, raw=blank) for request in self.requests])
