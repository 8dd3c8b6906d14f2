"""The tools that the MCP servers of an agent lend to one run.

They are asked for when a turn goes live, and never while a run is played again: what is recorded needs no server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from checkrein.agents.mcp.source import MCP
from checkrein.agents.mcp.statement import MCPTool, Offer
from checkrein.core.events import Need
from checkrein.errors import MCPUnavailable
from checkrein.models.messages import ToolSpec
from checkrein.runtime.driver import Driver


class Supply:
    """`taken` are the names that the agent uses for other tools."""

    def __init__(self, driver: Driver, sources: Sequence[MCP], taken: Collection[str]) -> None:
        self._driver = driver
        self._sources = sources
        self._taken = taken
        self._lock = asyncio.Lock()
        self.tools: dict[str, MCPTool] = {}
        self.specs: tuple[ToolSpec, ...] = ()
        self._seen: list[tuple[Offer, ...]] = []

    async def renew(self) -> None:
        """Have the tools as the servers offer them now. A server that cannot be used pauses the run: *needs you*."""
        if not self._sources:
            return
        async with self._lock:
            while True:
                try:
                    self._take(await self._offered())
                except MCPUnavailable as unavailable:
                    await self._need(unavailable)
                else:
                    return

    async def get(self, name: str) -> MCPTool | None:
        """The tool that a model asks for by this name; None when there is none."""
        if not self._seen:
            await self.renew()
        return self.tools.get(name)

    async def _offered(self) -> list[tuple[Offer, ...]]:
        connections = [source.connection(self._driver.stage) for source in self._sources]
        if len(connections) == 1:
            return [await connections[0].offers()]
        return await asyncio.gather(*(connection.offers() for connection in connections))

    def _take(self, offered: list[tuple[Offer, ...]]) -> None:
        if offered == self._seen:
            return
        tools: dict[str, MCPTool] = {}
        for source, offers in zip(self._sources, offered, strict=True):
            for tool in source.chosen(offers):
                if tool.name in self._taken or tool.name in tools:
                    raise _clash(tool, tools.get(tool.name))
                tools[tool.name] = tool
        self.tools, self.specs, self._seen = tools, tuple(tool.spec for tool in tools.values()), offered

    async def _need(self, unavailable: MCPUnavailable) -> None:
        what = self._driver.secrets.text(unavailable.message)
        await self._driver.need(Need(code=unavailable.code, what=what, remedy=unavailable.remedy))
        for source in self._sources:
            source.connection(self._driver.stage).forgive()


def _clash(tool: MCPTool, other: MCPTool | None) -> MCPUnavailable:
    whose = "has the agent itself" if other is None else f"has the MCP server {other.source.name}"
    return MCPUnavailable(
        f"The MCP server {tool.source.name} has a tool {tool.name}, and so {whose}.",
        remedy=f'Give it a prefix, such as MCP("{tool.source.name}", prefix="{tool.source.name}_", …), then resume.',
        server=tool.source.name,
    )
