"""The wire to an MCP server. This and its neighbours `taps` and `http` import the package `mcp`; nothing else does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

import anyio
import mcp
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.types import (
    CallToolResult,
    Implementation,
    JSONRPCError,
    RequestParamsMeta,
    Tool,
    ToolListChangedNotification,
)

from checkrein.agents.mcp import taps
from checkrein.agents.mcp.answers import value_of
from checkrein.agents.mcp.http import Http
from checkrein.agents.mcp.source import MCP
from checkrein.agents.mcp.statement import Offer
from checkrein.agents.mcp.tickets import Answered, BrokenOff, Progress, Ticket
from checkrein.agents.mcp.trouble import CLOSED
from checkrein.errors import MCPUnavailable

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

__all__ = ["Http", "Session", "answer_in", "opened"]

MODE = "auto"
"""How the version of the protocol is agreed on: the newer way first."""
_MOST_PAGES: Final = 100
_LISTEN_AGAIN_SECONDS: Final = 5.0


class Session:
    """An open session. It stays usable after a call was cancelled."""

    explain: Callable[[BaseException], MCPUnavailable]
    """What an error means, in words."""

    def __init__(self, client: mcp.Client, desk: taps.Desk, http: Http | None) -> None:
        self._client = client
        self._desk = desk
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
        self,
        tool: str,
        arguments: dict[str, Any],
        ticket: Ticket,
        show: Progress,
        key: str | None = None,
    ) -> Answered:
        """Call a tool. Cancelled, it tells the server, and leaves the session as it is.

        `key` is the same for every attempt; a server that cares finds it in the request. Raises `BrokenOff` when there
        will be no answer.
        """

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            show(progress, total, message)

        meta = None if key is None else cast(RequestParamsMeta, {"checkrein/key": key})
        token = taps.current.set(ticket)
        try:
            result = await self._client.call_tool(tool, arguments, progress_callback=on_progress, meta=meta)
        except mcp.MCPError as error:
            raise_if_broken_off(error, ticket, self._http)
            return Answered(is_error=True, value=str(error))
        except (RuntimeError, ValueError) as error:  # an answer that is not what it should be
            return Answered(is_error=True, value=f"Its server's answer cannot be used: {error}")
        finally:
            ticket.is_let_go = True
            taps.current.reset(token)
        return _answered(result)

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for an answer."""
        return any(not ticket.is_let_go for ticket in self._desk.open.values())

    @property
    def abandoned(self) -> list[Ticket]:
        """Calls that were let go and have no answer."""
        return [ticket for ticket in self._desk.open.values() if ticket.is_let_go]


def raise_if_broken_off(error: mcp.MCPError, ticket: Ticket, http: Http | None) -> None:
    """Raise `BrokenOff` if the error is not the server's word on the call, but the way to the server."""
    if http is not None and http.refusal in (401, 403):
        raise BrokenOff(f"it does not let us in (HTTP {http.refusal})", was_sent=False) from error
    if error.code == CLOSED:
        was_sent = ticket.request is not None and (http is None or ticket.request not in http.unsent)
        raise BrokenOff(str(error), was_sent=was_sent) from error


def answer_in(ticket: Ticket) -> Answered | None:
    """What the server had answered by the time its call was cancelled."""
    match ticket.answer:
        case None:
            return None
        case JSONRPCError(error=error):
            return Answered(is_error=True, value=error.message)
        case answer:
            with suppress(ValueError):
                return _answered(CallToolResult.model_validate(answer.result, by_name=False))
            return None


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

    desk = taps.Desk()
    streams = _streams(source, marks, errors, http)
    streams = _tapped(streams, desk, lost)
    client = mcp.Client(streams, mode=MODE, cache=None, message_handler=hear, client_info=_US)
    async with client, anyio.create_task_group() as beside:
        beside.start_soon(_listen, client, changed)
        try:
            yield Session(client, desk, http)
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
async def _tapped(streams: Any, desk: taps.Desk, lost: Callable[[], None]) -> AsyncIterator[TransportStreams]:
    async with streams as (read, write):
        yield taps.Reads(read, desk, lost), taps.Writes(write, desk)


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
