"""Tools for the screen to show, which keep a log of their own."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from checkrein import tool
from tests.support.agent_tools import note


async def discard_slowly(call: Any) -> None:
    note(call.arguments["log"], "discarding")
    await asyncio.sleep(60)


@tool(undo=discard_slowly)
async def make_lasting_draft(log: str) -> str:
    """Make a draft whose undo takes for ever."""
    note(log, "draft")
    return "draft-8"


@tool(effect="none")
async def block_everything(log: str) -> str:
    """What an async tool must not do: block the event loop."""
    note(log, "blocking")
    time.sleep(300)  # noqa: ASYNC251
    return "never"
