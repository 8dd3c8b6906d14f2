"""What an author says of a server's tool, and that tool as an agent sees it.

The author's word counts. What the server says of its own tools are hints of somebody who may be wrong, or may lie; they
count only where the author trusts them, and never against the author.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from checkrein.calls.base import ApprovalRule, EffectKind, approval_of, effect_of, flag_of, timeout_of
from checkrein.calls.imports import in_worker, target_of
from checkrein.core.enums import OnPause
from checkrein.core.events import Need
from checkrein.driver.program_api import ProgramApi
from checkrein.errors import MCPUnavailable, MisuseError
from checkrein.models.messages import ToolSpec, as_json

if TYPE_CHECKING:
    from checkrein.mcp.server import MCP

_LONGEST_NAME: Final = 64
"""What every provider takes as the name of a tool, in letters, digits, `_` and `-`."""
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as its server describes it."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = False


class ToolClaims(msgspec.Struct, frozen=True, kw_only=True):
    """What an author says of one tool; None where nothing is said."""

    effect: EffectKind | None = None
    idempotent: bool | None = None
    approval: ApprovalRule | bool | None = None
    """False: nobody is asked, whatever the effect."""
    undo: Callable[..., Any] | None = None
    verify: Callable[..., Any] | None = None
    timeout: float | None = None
    on_pause: str | None = None
    description: str | None = None


def statements(server: str, given: Mapping[str, Mapping[str, Any]]) -> dict[str, ToolClaims]:
    """The statements on a server's tools, by the server's names. Raises `MisuseError` with what is wrong."""
    return {tool: _statement(f"MCP server {server}, tool {tool}", said) for tool, said in given.items()}


def _statement(about: str, given: Mapping[str, Any]) -> ToolClaims:
    known = ToolClaims.__struct_fields__
    if unknown := given.keys() - set(known):
        raise MisuseError(f"{about}: {', '.join(sorted(unknown))} means nothing here; say {', '.join(known)}.")
    said = ToolClaims(**given)
    if said.effect is not None:
        effect_of(about, said.effect)
    if said.idempotent is not None:
        flag_of(about, "idempotent", said.idempotent)
    approval_of(about, said.approval)
    timeout_of(about, said.timeout)
    if said.effect == "none" and said.undo is not None:
        raise MisuseError(f"{about} has an undo and says effect='none'. Leave one of them out.")
    if said.on_pause not in (None, OnPause.FINISH, OnPause.ABORT):
        raise MisuseError(f"{about}: on_pause={said.on_pause!r} cannot be; a server's tool cannot be held.")
    if said.on_pause == OnPause.ABORT and not (said.idempotent and said.effect == "none"):
        raise MisuseError(
            f"{about} says on_pause='abort', which needs idempotent=True and effect='none': it can only be told to "
            "stop, so it might still be at work when it is tried again. Use on_pause='finish'."
        )
    if not in_worker():
        for other in (said.undo, said.verify):
            if other is not None and not inspect.iscoroutinefunction(other):
                target_of(other)
    return said


class MCPTool:
    """One tool of an MCP server, with what is known of it."""

    def __init__(self, source: MCP, offer: Offer) -> None:
        said = source.statements.get(offer.name, _NOTHING)
        hints = offer if source.trust_annotations else Offer(name=offer.name)
        self.source = source
        self.server_name = source.name
        self.on_server = offer.name
        """Its name there."""
        self.name = shown_name(source.prefix, offer.name)
        self.description = said.description or offer.description
        self.schema = offer.schema
        self.effect: EffectKind = said.effect or _effect(hints)
        self.idempotent = hints.idempotent if said.idempotent is None else said.idempotent
        self.undo = said.undo
        self.verify = said.verify
        self.timeout_seconds = said.timeout
        self.on_pause = OnPause(said.on_pause or OnPause.FINISH)
        self._approval = said.approval

    def __repr__(self) -> str:
        return f"<MCPTool {self.name}>"

    @property
    def has_effect(self) -> bool:
        return self.undo is not None or self.effect != "none"

    @property
    def approval(self) -> str | None:
        """Whether a person is asked first. What cannot be undone asks, unless told otherwise."""
        if self._approval is None:
            return "block" if self.effect == "irreversible" else None
        return "block" if self._approval is True else self._approval or None

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, as_json(self.schema))


_NOTHING: Final = ToolClaims()


def _effect(hints: Offer) -> EffectKind:
    return "none" if hints.read_only else "irreversible" if hints.destructive else "unknown"


def shown_name(prefix: str, name: str) -> str:
    """The name under which a model is told of a tool: servers allow more characters than providers do."""
    return _NOT_IN_A_NAME.sub("_", prefix + name)[:_LONGEST_NAME]


class OfferedTools:
    """The tools that the MCP servers of an agent lend to one run. `taken` are the names of its other tools.

    They are asked for when a turn goes live, and never while a run is played again: what is recorded needs no server.
    """

    def __init__(self, driver: ProgramApi, sources: Sequence[MCP], taken: Collection[str]) -> None:
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
        connections = [source.connection(self._driver.executor) for source in self._sources]
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
            source.connection(self._driver.executor).forgive()


def _clash(tool: MCPTool, other: MCPTool | None) -> MCPUnavailable:
    whose = "has the agent itself" if other is None else f"has the MCP server {other.source.name}"
    return MCPUnavailable(
        f"The MCP server {tool.source.name} has a tool {tool.name}, and so {whose}.",
        remedy=f'Give it a prefix, such as MCP("{tool.source.name}", prefix="{tool.source.name}_", …), then resume.',
        server=tool.source.name,
    )
