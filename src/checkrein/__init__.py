"""Pause, redirect and cancel for Python agents, where stop means stop."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkrein.agents.context import Context
    from checkrein.agents.loop import Agent
    from checkrein.agents.mcp import MCP
    from checkrein.agents.program import ProgramAgent, agent
    from checkrein.agents.tool import Tool, tool
    from checkrein.agents.watchers import Confession, Loops
    from checkrein.control.runs import Run, Runtime
    from checkrein.control.verbs import Settling
    from checkrein.core.conditions import Cost, Effects, Elapsed, Repeats, Tokens, ToolCalls, Turns
    from checkrein.core.receipts import Receipt
    from checkrein.errors import CallFailed, Interrupted, RunFailed
    from checkrein.runtime.call import Aborted, current_call
    from checkrein.runtime.secrets import Secrets, Shape
    from checkrein.server.asgi import asgi
    from checkrein.server.auth.principals import Principal, Role

__all__ = [
    "Agent",
    "agent",
    "Context",
    "ProgramAgent",
    "Runtime",
    "Run",
    "tool",
    "Tool",
    "MCP",
    "current_call",
    # when a run has done enough
    "Turns",
    "ToolCalls",
    "Tokens",
    "Cost",
    "Elapsed",
    "Effects",
    "Repeats",
    # what reads along
    "Confession",
    "Loops",
    # what nobody is to see
    "Secrets",
    "Shape",
    # what a verb answers
    "Receipt",
    "Settling",
    # the same over HTTP
    "asgi",
    "Principal",
    "Role",
    # what may be raised
    "Aborted",
    "CallFailed",
    "Interrupted",
    "RunFailed",
]

_HOMES = {
    "checkrein.agents.context": ("Context",),
    "checkrein.agents.loop": ("Agent",),
    "checkrein.agents.mcp": ("MCP",),
    "checkrein.agents.program": ("ProgramAgent", "agent"),
    "checkrein.agents.tool": ("Tool", "tool"),
    "checkrein.agents.watchers": ("Confession", "Loops"),
    "checkrein.control.runs": ("Run", "Runtime"),
    "checkrein.control.verbs": ("Settling",),
    "checkrein.core.conditions": ("Cost", "Effects", "Elapsed", "Repeats", "Tokens", "ToolCalls", "Turns"),
    "checkrein.core.receipts": ("Receipt",),
    "checkrein.runtime.call": ("Aborted", "current_call"),
    "checkrein.runtime.secrets": ("Secrets", "Shape"),
    "checkrein.server.asgi": ("asgi",),
    "checkrein.server.auth.principals": ("Principal", "Role"),
    "checkrein.errors": ("CallFailed", "Interrupted", "RunFailed"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """A name is imported when it is used: `import checkrein` itself costs next to nothing."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'checkrein' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
