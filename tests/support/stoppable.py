"""Work that ticks in its own log until somebody lets it end, in every form that a verb may meet.

A log has `begun`, `tick` again and again, `ended` if it came to its end; and `next` when the model is asked for what
comes after.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from checkrein import Interrupted, tool
from checkrein.agents.context import Context
from checkrein.agents.program import ContextAgent
from checkrein.calls.base import CallRequest, Permit
from checkrein.calls.executor import mark_of
from checkrein.calls.process import Command, ProcessExecution
from checkrein.core.enums import CallKind
from checkrein.driver.program_api import ProgramApi
from checkrein.models import Request, ScriptedModel, Turn
from checkrein.models.base import Delta, TextDelta
from tests.support.witness import note

QUESTION = "How far are you?"


def tick(log: str, file: str) -> str:
    note(log, "begun")
    while not Path(file).exists():
        note(log, "tick")
        time.sleep(0.03)
    note(log, "ended")
    return "ended"


async def tick_async(log: str, file: str) -> None:
    note(log, "begun")
    while not Path(file).exists():
        note(log, "tick")
        await asyncio.sleep(0.03)
    note(log, "ended")


finishes = tool(name="finishes")(tick)
aborts = tool(name="aborts", on_pause="abort", idempotent=True)(tick)
holds = tool(name="holds", on_pause="hold")(tick)


@tool(on_pause="hold")
def idle(until: str) -> None:
    """Does nothing, and leaves no trace, until there is such a file."""
    while not Path(until).exists():
        time.sleep(0.02)


async def tick_while_discarding(call: Any) -> None:
    await tick_async(call.arguments["log"], call.arguments["file"])


@tool(undo=tick_while_discarding)
async def draft(log: str, file: str) -> None:
    note(log, "draft")
    await asyncio.sleep(3600)


def script(log: str, file: str) -> list[str]:
    """The same as a program that knows nothing of Checkrein, in a child of its own session."""
    ticks = "import sys; from tests.support.stoppable import tick; tick(*sys.argv[1:])"
    return ["/bin/sh", "-c", 'setsid "$@" & wait', "sh", sys.executable, "-c", ticks, log, file]


class Shell(ContextAgent):
    """A program in a process, with a model that is asked beside it, again and again, as long as it lives."""

    replays = False

    def __init__(self, arguments: Sequence[str]) -> None:
        # Its questions are many while its process begins on a busy machine: the cap that everybody has would pause it.
        super().__init__("shell", stop_when=None)
        self._arguments = arguments

    async def play(self, driver: ProgramApi) -> None:
        request = CallRequest(kind=CallKind.PROCESS, name="ticks", perform=partial(self._perform, driver))
        lives = asyncio.ensure_future(driver.call(request))
        asked = Context(self, driver)
        while not lives.done():
            with suppress(Interrupted):  # by a redirect, which the next question carries
                await asked.model("What next?", model=ScriptedModel(lambda request: "Go on."))
            await asyncio.wait([lives], timeout=0.05)
        await lives

    def _perform(self, driver: ProgramApi, permit: Permit) -> ProcessExecution:
        command = Command(file=self._arguments[0], arguments=self._arguments, environment=os.environ)
        mark = mark_of(permit.key, permit.call, permit.attempt)
        return ProcessExecution(command, runtime=driver.executor.runtime, mark=mark)


class Provider(ScriptedModel):
    """Asks for `name` first, or itself takes long to say something; then it only says that it was asked what is next.

    One that asks for `idle` does so for ever, so that its run does not end. It keeps its own log of what it streams.
    """

    def __init__(self, log: str, file: str, name: str | None = None, arguments: Any = None) -> None:
        super().__init__(self._play)
        self._log, self._file = log, file
        self._idles = name == "idle"
        self._first = None if name is None else Turn("Working.", calls=[(name, arguments or {})])

    def _play(self, request: Request) -> Turn | str:
        is_first = self.requests == 1 and self._first is not None
        if not is_first:
            note(self._log, "next")
        if self._idles:
            return Turn("Idling.", calls=[("idle", {"until": f"{self._file}.idle{self.requests}"})])
        return self._first if is_first and self._first is not None else "Done."

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        is_long = QUESTION in str(request.messages[-1]) or (self._first is None and self.requests == 0)
        if not is_long:
            async for delta in super().stream(request):
                yield delta
            return
        self.requests += 1
        note(self._log, "begun")
        while not Path(self._file).exists():
            note(self._log, "tick")
            yield TextDelta("word ")
            await asyncio.sleep(0.03)
        note(self._log, "ended")
