"""Who races: agents so small that their end and a verb can meet, and their own word on what they did.

Each race has a goal of its own, and everybody keeps their log by goal. It is written by the tools, the undos and the
model themselves, never by the runtime: `did X`, `undo X`, `asked`, `heard <instruction>`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from checkrein import Agent, tool
from checkrein.calls.base import CallRequest, Execution, Perform, UndoneCall
from checkrein.core.effects import Effect
from checkrein.core.enums import CallKind
from checkrein.driver.program_api import Program, ProgramApi
from checkrein.errors import Interrupted
from checkrein.models import Assistant, Request, ScriptedModel, Turn, User
from tests.support.driver_harness import Outside, Scripted

RESULT: Final = "done"

LOG: Final[defaultdict[str, list[str]]] = defaultdict(list)


LINGER_SECONDS: ContextVar[float] = ContextVar("linger", default=0.0)
"""How long a tool takes before and after it has done something, for rivals that need longer than a few rounds."""


async def _a_moment() -> None:
    """Long enough to be met in the middle."""
    for _ in range(3):
        await asyncio.sleep(LINGER_SECONDS.get())


# -- agents: tools with an undo, and a model


async def release(call: Any) -> None:
    LOG[call.arguments["goal"]].append(f"undo {call.arguments['what']}")


@tool(undo=release)
async def reserve(goal: str, what: str) -> str:
    """Reserve something."""
    await _a_moment()
    LOG[goal].append(f"did {what}")
    await _a_moment()
    return what


def _answer(request: Request, reserves: Sequence[str]) -> Turn | str:
    """Reserve everything in the first turn, then be done. What people say in between is only written down."""
    goal, *said = [message.text for message in request.messages if isinstance(message, User)]
    LOG[goal] += ["asked", *(f"heard {text}" for text in said)]
    has_answered = any(isinstance(message, Assistant) and message.calls for message in request.messages)
    if has_answered or not reserves:
        return RESULT
    return Turn("Reserving.", calls=[("reserve", {"goal": goal, "what": what}) for what in reserves])


def _agent(name: str, *reserves: str) -> Agent:
    model = ScriptedModel(lambda request: _answer(request, reserves), strict=False)
    return Agent(name, model=model, tools=[reserve] if reserves else [], stop_when=None)


# -- programs without either


class Idler(Program):
    """Ends at once, without a single call."""

    name = "idler"

    async def play(self, driver: ProgramApi) -> bytes | None:
        return msgspec.json.encode(RESULT)

    def undo(self, effect: Effect, call: UndoneCall, driver: ProgramApi) -> Execution:
        goal = driver.state.goal

        async def undo() -> None:
            LOG[goal].append("undo it")

        return Scripted(undo, Outside(), "undo")

    def check(self, call: UndoneCall, driver: ProgramApi) -> Execution | None:
        return None

    def answer(self, question: str, driver: ProgramApi) -> Perform:
        raise AssertionError("nobody asks")


class Player(Idler):
    """Makes one call, with an effect that can be undone."""

    name = "player"

    async def play(self, driver: ProgramApi) -> bytes | None:
        goal = driver.state.goal

        async def work() -> str:
            await _a_moment()
            LOG[goal].append("did it")
            await _a_moment()
            return "it"

        spec = CallRequest(
            kind=CallKind.TOOL,
            name="it",
            perform=lambda permit: Scripted(work, Outside(), "it"),
            effect="it",
            undo="undo:it",
        )
        with suppress(Interrupted):
            await driver.call(spec)
        return msgspec.json.encode(RESULT)


RACERS: Final[dict[str, Program]] = {
    "idler": Idler(),
    "player": Player(),
    "talker": _agent("talker"),
    "booker": _agent("booker", "room"),
    "couple": _agent("couple", "room", "flight"),
}
"""No call; one call without a model; one model call; a tool with an undo; two of them at the same time."""
