"""What goes through the gate once it is open: the body on its way in, the answer on its way out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import msgspec
from anyio import move_on_after

from checkrein.errors import AccessError, CheckreinError, RequestRefused
from checkrein.server.auth import cors
from checkrein.server.auth.request import RequestInfo

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

END_SECONDS: Final = 1.0
"""How long the end of a stream waits for a reader that does not read."""


def too_large(most: int) -> RequestRefused:
    return RequestRefused(f"The body is larger than {most} bytes.", code="too_large", status=413)


def body_missing() -> RequestRefused:
    return RequestRefused(
        "The body that this request announces did not arrive, or not all of it; nothing was done.",
        code="body_missing",
        status=400,
    )


class BodyRefused(Exception):
    """Raised inside the application while it reads; whatever it makes of that, the answer is `Body.refusal`."""


class Body:
    """Counts what is read, for bodies that do not say how long they are, or lie.

    Nothing at all is only taken for an empty body where none was announced: what a verb leaves out has a meaning.
    """

    def __init__(self, asked: RequestInfo, receive: Receive, most: int) -> None:
        self._asked = asked
        self._receive = receive
        self._read = 0
        self._most = most
        self.refusal: RequestRefused | None = None

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            if self._read > self._most:
                self._refuse(too_large(self._most))
            if not message.get("more_body", False) and self._is_short():
                self._refuse(body_missing())
        return message

    def _is_short(self) -> bool:
        if self._asked.is_safe or not self._asked.has_body:
            return False
        return self._read < self._asked.body_bytes or self._read == 0

    def _refuse(self, why: RequestRefused) -> None:
        self.refusal = why
        raise BodyRefused


class Answer:
    """The answer on its way out: it gets its headers here, whoever made it."""

    def __init__(self, asked: RequestInfo, send: Send, headers: cors.Headers) -> None:
        self._asked = asked
        self._send = send
        self._headers = headers
        self._allowing: cors.Headers = ()
        self._is_begun = False
        self._is_replaced = False
        self._is_ended = False
        self.is_stream = False

    def allow(self, headers: cors.Headers) -> None:
        self._allowing = headers

    async def pass_on(self, message: Message, body: Body) -> None:
        if self._is_replaced:
            return
        if message["type"] == "http.response.start":
            if body.refusal is not None:
                self._is_replaced = True
                await self.refuse(body.refusal)
                return
            self._is_begun = True
            headers = list(message.get("headers", ()))
            self.is_stream = any(
                name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers
            )
            message["headers"] = self._complete(headers)
        elif message["type"] == "http.response.body":
            self._is_ended = not message.get("more_body", False)
        await self._send(message)

    async def end(self) -> None:
        """Close a stream that was broken off, if its reader still reads."""
        if self._is_begun and not self._is_ended:
            self._is_ended = True
            with move_on_after(END_SECONDS):
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def refuse(self, error: CheckreinError) -> None:
        """Answer with an error, unless an answer has begun already."""
        status, more = (error.status, error.headers) if isinstance(error, AccessError) else (503, {})
        content = msgspec.json.encode({"code": error.code, "message": error.message})
        headers = [
            (b"content-type", b"application/json"),
            # What is left of the body is not worth reading.
            *([(b"connection", b"close")] if self._asked.has_body else []),
            *((name.lower().encode(), value.encode()) for name, value in more.items()),
        ]
        await self._whole(status, headers, content)

    async def empty(self) -> None:
        await self._whole(204, [], b"")

    async def _whole(self, status: int, headers: list[tuple[bytes, bytes]], content: bytes) -> None:
        if self._is_begun:
            return
        self._is_begun = True
        if status != 204:
            headers = [*headers, (b"content-length", str(len(content)).encode())]
        await self._send({"type": "http.response.start", "status": status, "headers": self._complete(headers)})
        sent = b"" if self._asked.method == "HEAD" else content
        await self._send({"type": "http.response.body", "body": sent, "more_body": False})

    def _complete(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        added = dict((*self._headers, *self._allowing))
        added[b"cross-origin-resource-policy"] = b"cross-origin" if self._allowing else b"same-origin"
        if self._asked.is_api or self._asked.path == "/enter":
            said = [value for name, value in headers if name.lower() == b"cache-control" and b"no-store" in value]
            added[b"cache-control"] = said[0] if said else b"no-store"
        varied = [value for name, value in headers if name.lower() == b"vary"]
        added[b"vary"] = b", ".join([*varied, b"Origin"])
        kept = [(name, value) for name, value in headers if name.lower() not in added]
        return [*kept, *added.items()]
