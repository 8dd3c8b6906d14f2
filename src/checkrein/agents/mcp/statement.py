"""What an author says of a server's tool, and that tool as an agent sees it.

The author's word counts. What the server says of its own tools are hints of somebody who may be wrong, or may lie; they
count only where the author trusts them, and never against the author.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from checkrein.agents.tool import ApprovalRule, EffectKind
from checkrein.core.words import OnPause
from checkrein.errors import MisuseError
from checkrein.models.messages import ToolSpec, as_json
from checkrein.runtime.importable import target_of
from checkrein.runtime.loading import in_worker

if TYPE_CHECKING:
    from checkrein.agents.mcp.source import MCP

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


class Statement(msgspec.Struct, frozen=True, kw_only=True):
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


def statements(server: str, given: Mapping[str, Mapping[str, Any]]) -> dict[str, Statement]:
    """The statements on a server's tools, by the server's names. Raises `MisuseError` with what is wrong."""
    return {tool: _statement(f"MCP server {server}, tool {tool}", said) for tool, said in given.items()}


def _statement(about: str, given: Mapping[str, Any]) -> Statement:
    known = Statement.__struct_fields__
    if unknown := given.keys() - set(known):
        raise MisuseError(f"{about}: {', '.join(sorted(unknown))} means nothing here; say {', '.join(known)}.")
    said = Statement(**given)
    if said.effect not in (None, "unknown", "none", "reversible", "irreversible"):
        raise MisuseError(f"{about}: effect={said.effect!r} is not unknown, none, reversible or irreversible.")
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


_NOTHING: Final = Statement()


def _effect(hints: Offer) -> EffectKind:
    return "none" if hints.read_only else "irreversible" if hints.destructive else "unknown"


def shown_name(prefix: str, name: str) -> str:
    """The name under which a model is told of a tool: servers allow more characters than providers do."""
    return _NOT_IN_A_NAME.sub("_", prefix + name)[:_LONGEST_NAME]
