"""An agent that makes a draft, which can be undone, and then talks for long. Its tools keep a log of their own."""

from __future__ import annotations

import os
import time
from typing import Any

from checkrein import Agent, tool
from checkrein.models import ScriptedModel, Turn


def note(word: str) -> None:
    descriptor = os.open(os.environ["WITNESS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{time.time()} {os.getpid()} {word}\n".encode())
    os.close(descriptor)


def throw_away(call: Any) -> None:
    note("undrafted")


@tool(undo=throw_away)
def draft() -> str:
    """Make a draft."""
    note("drafted")
    return "drafted"


TURNS: list[Turn | str] = [Turn("I draft.", calls=[("draft", {})]), " ".join(f"word{n}" for n in range(20_000))]
drafter = Agent("drafter", model=ScriptedModel(TURNS, tokens_per_second=50), tools=[draft])
