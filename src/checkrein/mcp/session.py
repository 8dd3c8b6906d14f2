"""The wire to an MCP server. This and its neighbour `requests` alone import the package `mcp`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

import anyio
import httpx2
import mcp
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.types import CallToolResult, Implementation, JSONRPCError, RequestParamsMeta, Tool, ToolListChangedNotification

from checkrein.calls.mcp import Answered, BrokenOff, PendingRequest, Progress
from checkrein.errors import MCPUnavailable
from checkrein.mcp import requests
from checkrein.mcp.connection import CLOSED
from checkrein.mcp.server import MCP
from checkrein.mcp.tools import Offer

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_TIMEOUT: Final = httpx2.Timeout(30.0, read=300.0)
"""As the package `mcp` has it: five minutes without a sign of life, and a server sends one every few seconds."""
_LIMITS: Final = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
"""Every call has a connection of its own, and a run must not wait for those of others."""
_UNSENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


class Http(httpx2.AsyncClient):
    """The HTTP client of one server. Remembers what went wrong last, and which requests certainly never left.

    A request that fails is answered in the server's place: the package `mcp` would otherwise take the whole session
    down, and with it the calls of every other run.
    """

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


MODE = "auto"
"""How the version of the protocol is agreed on: the newer way first."""
_MOST_PAGES: Final = 100
_LISTEN_AGAIN_SECONDS: Final = 5.0


class Session:
    """An open session. It stays usable after a call was cancelled."""

    explain: Callable[[BaseException], MCPUnavailable]
    """What an error means, in words."""

    def __init__(self, client: mcp.Client, tracker: requests.RequestTracker, http: Http | None) -> None:
        self._client = client
        self._tracker = tracker
        self._http = http

    async def offers(self) -> tuple[Offer, ...]:
        """What the server has."""
        found: list[Offer] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            found += map(_offer, page.tools)
            cursor = page.next_cursor
            if cursor is None:
                break
        return tuple(found)

    async def call(
        self, tool: str, arguments: dict[str, Any], pending: PendingRequest, show: Progress, key: str | None = None
    ) -> Answered:
        """Call a tool. Cancelled, it tells the server, and leaves the session as it is.

        `key` is the same for every attempt; a server that cares finds it in the request. Raises `BrokenOff` when there
        will be no answer.
        """

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            show(progress, total, message)

        meta = None if key is None else cast(RequestParamsMeta, {"checkrein/key": key})
        token = requests.current.set(pending)
        try:
            result = await self._client.call_tool(tool, arguments, progress_callback=on_progress, meta=meta)
        except mcp.MCPError as error:
            raise_if_broken_off(error, pending, self._http)
            return Answered(is_error=True, value=str(error))
        except (RuntimeError, ValueError) as error:  # an answer that is not what it should be
            return Answered(is_error=True, value=f"Its server's answer cannot be used: {error}")
        finally:
            pending.is_let_go = True
            requests.current.reset(token)
        return _answered(result)

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for an answer."""
        return any(not pending.is_let_go for pending in self._tracker.open.values())

    @property
    def abandoned(self) -> list[PendingRequest]:
        """Calls that were let go and have no answer."""
        return [pending for pending in self._tracker.open.values() if pending.is_let_go]

    def answer_in(self, pending: PendingRequest) -> Answered | None:
        """What the server had answered by the time its call was cancelled."""
        match pending.answer:
            case None:
                return None
            case JSONRPCError(error=error):
                return Answered(is_error=True, value=error.message)
            case answer:
                with suppress(ValueError):
                    return _answered(CallToolResult.model_validate(answer.result, by_name=False))
                return None


def raise_if_broken_off(error: mcp.MCPError, pending: PendingRequest, http: Http | None) -> None:
    """Raise `BrokenOff` if the error is not the server's word on the call, but the way to the server."""
    if http is not None and http.refusal in (401, 403):
        raise BrokenOff(f"it does not let us in (HTTP {http.refusal})", was_sent=False) from error
    if error.code == CLOSED:
        was_sent = pending.request is not None and (http is None or pending.request not in http.unsent)
        raise BrokenOff(str(error), was_sent=was_sent) from error


def _answered(result: CallToolResult) -> Answered:
    return Answered(is_error=result.is_error, value=value_of(result.content, result.structured_content))


def _offer(tool: Tool) -> Offer:
    hints = tool.annotations
    return Offer(
        name=tool.name,
        description=tool.description or tool.title or "",
        schema=tool.input_schema,
        read_only=hints is not None and hints.read_only_hint is True,
        idempotent=hints is not None and hints.idempotent_hint is True,
        destructive=hints is not None and hints.destructive_hint is True,
    )


# -- opening


@asynccontextmanager
async def opened(
    source: MCP,
    marks: Mapping[str, str],
    errors: TextIO,
    http: Http | None,
    *,
    lost: Callable[[], None],
    changed: Callable[[], None],
) -> AsyncIterator[Session]:
    """A session with the server. On leaving, a server that was started here has been told to end, and made to."""

    async def hear(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed()

    tracker = requests.RequestTracker()
    streams = _streams(source, marks, errors, http)
    streams = _tapped(streams, tracker, lost)
    client = mcp.Client(streams, mode=MODE, cache=None, message_handler=hear, client_info=_US)
    async with client, anyio.create_task_group() as beside:
        beside.start_soon(_listen, client, changed)
        try:
            yield Session(client, tracker, http)
        finally:
            beside.cancel_scope.cancel()


_US: Final = Implementation(name="checkrein", version=version("checkrein"))


def _streams(source: MCP, marks: Mapping[str, str], errors: TextIO, http: Http | None) -> Any:
    if source.url is not None:
        return streamable_http_client(source.url, http_client=http)
    assert source.command is not None
    program, *arguments = source.command
    parameters = mcp.StdioServerParameters(command=program, args=arguments, env={**source.env, **marks}, cwd=source.cwd)
    return mcp.stdio_client(parameters, errlog=errors)


@asynccontextmanager
async def _tapped(
    streams: Any, tracker: requests.RequestTracker, lost: Callable[[], None]
) -> AsyncIterator[TransportStreams]:
    async with streams as (read, write):
        yield requests.Reads(read, tracker, lost), requests.Writes(write, tracker)


async def _listen(client: mcp.Client, changed: Callable[[], None]) -> None:
    """Be told when the list of tools changes. Older servers tell without being asked, some never do."""
    tools = client.server_capabilities.tools
    if tools is None or not tools.list_changed:
        return
    while True:
        try:
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    changed()
        except SubscriptionLost:
            changed()  # perhaps
        except Exception:  # it does not tell, then
            return
        await anyio.sleep(_LISTEN_AGAIN_SECONDS)


WRAPPED = "result"
"""Under this name a server puts what is no object, because a structured result had to be one."""


def value_of(content: Sequence[Any], structured: Any) -> Any:
    """What a server answered, as one JSON value for both forms. Where they say the same it is said once."""
    texts = [shown(block) for block in content]
    text = "\n".join(texts)
    if structured is None:
        return text
    value = structured[WRAPPED] if isinstance(structured, dict) and structured.keys() == {WRAPPED} else structured
    if not texts or value in (text, _parsed(text), texts, [_parsed(one) for one in texts]):
        return value
    return {"text": text, "structured": structured}


def shown(block: Any) -> str:
    """A piece of content in words. Only text is passed on; the rest would not fit what a model is told in a result."""
    match block.type:
        case "text":
            return str(block.text)
        case "image" | "audio":
            return f"[{block.type} {block.mime_type}, {_decoded_size(block.data)} bytes, not shown]"
        case "resource_link":
            kind = f", {block.mime_type}" if block.mime_type else ""
            size = f", {block.size} bytes" if block.size is not None else ""
            return f"[resource {block.name} at {block.uri}{kind}{size}]"
        case "resource":
            return _embedded(block.resource)
        case other:
            return f"[{other}, not shown]"


def _embedded(resource: Any) -> str:
    kind = f" {resource.mime_type}" if resource.mime_type else ""
    text = getattr(resource, "text", None)
    size = _decoded_size(resource.blob) if text is None else len(text.encode("utf-8", "surrogatepass"))
    return f"[resource{kind} at {resource.uri}, {size} bytes, not shown]"


def _decoded_size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _parsed(text: str) -> Any:
    with suppress(ValueError):
        return json.loads(text)
    return text
