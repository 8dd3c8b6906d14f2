"""Pause, redirect and cancel for Python agents, where stop means stop."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from checkrein.agents.agent import Agent
    from checkrein.agents.context import Context
    from checkrein.agents.program import ProgramAgent, agent
    from checkrein.agents.questions import Answer
    from checkrein.agents.tool import Tool, tool
    from checkrein.calls.answer import Asked, WholeAnswer
    from checkrein.calls.current import Aborted, Undone, current_call
    from checkrein.client import AsyncClient, Client
    from checkrein.control.control import Settling
    from checkrein.control.view import RunEvent, RunView
    from checkrein.core.conditions import Cost, Effects, Elapsed, Repeats, Tokens, ToolCalls, Turns, Usage
    from checkrein.core.receipts import Receipt
    from checkrein.core.state import Waiting
    from checkrein.errors import CallFailed, Interrupted, RunCancelled, RunFailed
    from checkrein.mcp import MCP
    from checkrein.run import Run
    from checkrein.runtime import Runtime
    from checkrein.secrets import Secrets, Shape
    from checkrein.server.asgi import asgi
    from checkrein.server.auth.principals import Principal, Role
    from checkrein.watchers import Confession, Loops

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
    "Undone",
    # a model that somebody else asks
    "Answer",
    "Asked",
    "Usage",
    "WholeAnswer",
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
    # what a run looks like
    "RunView",
    "RunEvent",
    "Waiting",
    # the same over HTTP
    "Client",
    "AsyncClient",
    "asgi",
    "Principal",
    "Role",
    # what may be raised
    "Aborted",
    "CallFailed",
    "Interrupted",
    "RunFailed",
    "RunCancelled",
]

_HOMES = {
    "checkrein.agents.context": ("Context",),
    "checkrein.agents.agent": ("Agent",),
    "checkrein.mcp": ("MCP",),
    "checkrein.agents.program": ("ProgramAgent", "agent"),
    "checkrein.agents.questions": ("Answer",),
    "checkrein.calls.answer": ("Asked", "WholeAnswer"),
    "checkrein.agents.tool": ("Tool", "tool"),
    "checkrein.watchers": ("Confession", "Loops"),
    "checkrein.run": ("Run",),
    "checkrein.runtime": ("Runtime",),
    "checkrein.control.control": ("Settling",),
    "checkrein.core.conditions": ("Cost", "Effects", "Elapsed", "Repeats", "Tokens", "ToolCalls", "Turns", "Usage"),
    "checkrein.control.view": ("RunEvent", "RunView"),
    "checkrein.core.state": ("Waiting",),
    "checkrein.core.receipts": ("Receipt",),
    "checkrein.calls.current": ("Aborted", "Undone", "current_call"),
    "checkrein.secrets": ("Secrets", "Shape"),
    "checkrein.client": ("AsyncClient", "Client"),
    "checkrein.server.asgi": ("asgi",),
    "checkrein.server.auth.principals": ("Principal", "Role"),
    "checkrein.errors": ("CallFailed", "Interrupted", "RunCancelled", "RunFailed"),
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
