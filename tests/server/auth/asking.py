"""Asking an application without a server in between: every header goes in exactly as a test writes it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

HOST = "127.0.0.1:8420"
OWN = f"http://{HOST}"

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


class Reply(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    is_complete: bool
    """Whether the application said that this was all."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["code"])

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    def one(self, name: str) -> str | None:
        found = self.all(name)
        assert len(found) < 2, f"{name} was sent {len(found)} times"
        return found[0] if found else None

    @property
    def cookie(self) -> str:
        """The cookie it sets, as a browser sends it back."""
        return str(self.one("set-cookie")).partition(";")[0]


async def ask(
    app: Any,
    method: str,
    path: str,
    headers: Headers = (),
    *,
    body: bytes | list[bytes] = b"",
    json_body: Any = None,
    token: str | None = None,
    cookie: str | None = None,
    origin: str | None = None,
    host: str | None = HOST,
    scheme: str = "http",
    peer: str = "127.0.0.1",
    root: str = "",
) -> Reply:
    """One request. A list of bytes as its body comes in pieces, and without a length."""
    sent = list(headers.items() if isinstance(headers, Mapping) else headers)
    if host is not None:
        sent.insert(0, ("host", host))
    if json_body is not None:
        body = json.dumps(json_body).encode()
        sent.append(("content-type", "application/json"))
    sent += [("authorization", f"Bearer {token}")] if token else []
    sent += [("cookie", cookie)] if cookie else []
    sent += [("origin", origin)] if origin else []
    if isinstance(body, list):
        sent.append(("transfer-encoding", "chunked"))
    elif body:
        sent.append(("content-length", str(len(body))))
    where, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": scheme,
        "path": root + unquote(where),
        "raw_path": (root + where).encode(),
        "root_path": root,
        "query_string": query.encode(),
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in sent],
        "client": (peer, 4711),
        "server": ("127.0.0.1", 8420),
        "state": {},
    }
    pieces = body if isinstance(body, list) else [body]
    waiting = [
        {"type": "http.request", "body": piece, "more_body": n + 1 < len(pieces)} for n, piece in enumerate(pieces)
    ]
    answered: list[Any] = []

    async def receive() -> Any:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        answered.append(message)

    await app(scope, receive, send)
    starts = [message for message in answered if message["type"] == "http.response.start"]
    assert len(starts) == 1, answered
    return Reply(
        starts[0]["status"],
        [(name.decode().lower(), value.decode()) for name, value in starts[0]["headers"]],
        b"".join(message.get("body", b"") for message in answered if message["type"] == "http.response.body"),
        answered[-1]["type"] == "http.response.body" and not answered[-1].get("more_body", False),
    )
