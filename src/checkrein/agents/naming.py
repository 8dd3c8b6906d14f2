"""What an agent may be called."""

from __future__ import annotations

from checkrein.errors import MisuseError


def agent_name(name: str) -> str:
    """`name`, or `MisuseError` where nobody could say it."""
    if not name.strip():
        raise MisuseError("An agent needs a name that is more than spaces: its runs are listed and found by it.")
    return name
