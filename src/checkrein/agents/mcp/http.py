"""The HTTP client of one MCP server.

A request that fails is answered in the server's place: the package `mcp` would otherwise take the whole session down,
and with it the calls of every other run.
"""

from __future__ import annotations

import json
from typing import Any, Final

import httpx2

from checkrein.agents.mcp.trouble import CLOSED

_TIMEOUT: Final = httpx2.Timeout(30.0, read=300.0)
"""As the package `mcp` has it: five minutes without a sign of life, and a server sends one every few seconds."""
_LIMITS: Final = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
"""Every call has a connection of its own, and a run must not wait for those of others."""
_UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


class Http(httpx2.AsyncClient):
    """Remembers what went wrong last, and which requests certainly never left."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__(headers=headers, timeout=_TIMEOUT, limits=_LIMITS)
        self.trouble: httpx2.TransportError | None = None
        self.refusal: int | None = None
        """The status with which the server has refused a request last."""
        self.unsent: set[object] = set()

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
            if response.headers.get("content-type", "").startswith("application/json"):
                await response.aread()  # or its breaking off would not be seen here
        except httpx2.TransportError as error:
            self.trouble = error
            if isinstance(error, _UNSENT) and (number := _id_of(request)) is not None:
                self.unsent.add(number)
            return _in_its_place(request, error)
        self.trouble = None
        self.refusal = response.status_code if response.status_code >= 400 else None
        return response


def _id_of(request: httpx2.Request) -> object:
    try:
        return json.loads(request.content).get("id")
    except (ValueError, AttributeError, httpx2.RequestNotRead):
        return None


def _in_its_place(request: httpx2.Request, error: httpx2.TransportError) -> httpx2.Response:
    said = {"code": CLOSED, "message": f"{type(error).__name__}: {error}"}
    return httpx2.Response(503, json={"jsonrpc": "2.0", "id": None, "error": said}, request=request)
