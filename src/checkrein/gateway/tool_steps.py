"""Tool calls that answers ask a program for, as steps of its run: begun when asked for, done when the result comes.

What the program does with them is its own; all that is known here is what it says.
"""

from __future__ import annotations

import asyncio
from typing import Final

from checkrein.agents.context import Context
from checkrein.gateway.wires.base import SeenCall

LONGEST_TITLE: Final = 100


class ToolSteps:
    """The tool calls of one program that are at work."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._done: dict[str, asyncio.Event] = {}

    async def show(self, call: SeenCall) -> None:
        """A step, until the result of `call` is sent back."""
        done = self._done[call.id] = asyncio.Event()
        try:
            async with self._ctx.step(title_of(call)):
                await done.wait()
        finally:
            self._done.pop(call.id, None)

    def finished(self, call: str) -> None:
        """A request brings the result of this call along."""
        if (done := self._done.get(call)) is not None:
            done.set()


def title_of(call: SeenCall) -> str:
    title = f"{call.name} {call.arguments}".replace("\n", " ")
    return title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1]}…"
