"""The agents of `verbs_under_load`: one that talks without end, and one that waits to be cancelled."""

from __future__ import annotations

import asyncio

from checkrein import Agent, tool
from checkrein.models import ScriptedModel, Turn

TALK = " ".join(f"word{n}" for n in range(200_000))


@tool(effect="none")
async def wait() -> None:
    """Do nothing, for long."""
    await asyncio.sleep(3600)


talker = Agent("talker", model=ScriptedModel(lambda request: TALK, tokens_per_second=50), stop_when=None)
waiter = Agent("waiter", model=ScriptedModel([Turn("I wait.", calls=[("wait", {})]), "Done."]), tools=[wait])
