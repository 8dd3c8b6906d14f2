"""One race: a run that is about to end, and verbs that come at chosen moments. Afterwards everybody says what they were
told, and `referee` compares that with what happened."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from checkrein import Receipt, Run, RunFailed, Runtime, Settling
from checkrein.core.enums import Status, Undo, When
from checkrein.errors import CheckreinError, Refused
from tests.support.patience import PATIENCE_SECONDS
from tests.torture.races.moments import Gate, Moment, Rounds, Turn, from_outside
from tests.torture.races.racers import RACERS

_numbers = itertools.count(1)

Answer = Receipt | Settling | CheckreinError


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A verb, and when it comes."""

    verb: str
    moment: Moment
    undo: Undo = Undo.OPEN
    when: When = When.NOW


class Told(msgspec.Struct, kw_only=True):
    """What whoever made a move was told. `request` is the id that its `verb.accepted` has, if there is one."""

    move: Move
    request: str
    answer: Answer

    @property
    def instruction(self) -> str:
        return f"instead do {self.request}"


class Raced(msgspec.Struct, kw_only=True):
    """How it went, as those who took part were told."""

    run: str
    goal: str
    racer: str
    told: list[Told]
    result: Any
    """What `run.result()` returned, or the `RunFailed` that it raised."""
    turns: int
    """How often the driver has asked something of the journal."""


async def race(runtime: Runtime, gates: dict[str, Gate], racer: str, moves: tuple[Move, ...]) -> Raced:
    """Start a run, make the moves at their moments, and wait until everything is over."""
    goal = f"goal {next(_numbers)}"
    gate = gates[goal] = Gate()
    requests = [f"{goal}.{number}" for number in range(len(moves))]
    async with asyncio.timeout(2 * PATIENCE_SECONDS):
        meeting = [
            _outside(_meet(runtime, gate, move, request))
            for move, request in zip(moves, requests, strict=True)
            if isinstance(move.moment, Turn)
        ]
        run = await runtime.start(RACERS[racer], goal)
        result = _outside(_result(run, gate))
        coming = [
            _outside(_come(runtime, run, move, request))
            for move, request in zip(moves, requests, strict=True)
            if isinstance(move.moment, Rounds)
        ]
        told = await asyncio.gather(*meeting, *coming)
        return Raced(run=run.id, goal=goal, racer=racer, told=told, result=await result, turns=gate.count)


def _outside(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """In a task of those who steer."""
    context = contextvars.copy_context()
    context.run(from_outside.set, True)
    return asyncio.get_running_loop().create_task(work, context=context)


async def _come(runtime: Runtime, run: Run, move: Move, request: str) -> Told:
    assert isinstance(move.moment, Rounds)
    await move.moment.wait()
    answer = await _say(runtime, run.id, move, request)
    await _go_on(runtime, run.id, answer)
    return Told(move=move, request=request, answer=answer)


async def _meet(runtime: Runtime, gate: Gate, move: Move, request: str) -> Told:
    assert isinstance(move.moment, Turn)
    meeting = gate.meet(move.moment)
    await meeting.reached.wait()
    answer = await _say(runtime, gate.run, move, request)
    meeting.said.set()
    await _go_on(runtime, gate.run, answer)
    return Told(move=move, request=request, answer=answer)


async def _result(run: Run, gate: Gate) -> Any:
    try:
        return await run.result()
    except RunFailed as failed:
        return failed
    finally:
        gate.finished()


async def _go_on(runtime: Runtime, run: str, answer: Answer) -> None:
    """Resume what one has paused, unless somebody else was faster."""
    if isinstance(answer, Receipt) and answer.status is Status.PAUSED:
        with suppress(Refused):
            await runtime.control.resume(run, by="rival", wait=PATIENCE_SECONDS)


async def _say(runtime: Runtime, run: str, move: Move, request: str) -> Answer:
    control = runtime.control
    common: dict[str, Any] = {"by": "rival", "wait": PATIENCE_SECONDS}
    try:
        match move.verb:
            case "cancel":
                return await control.cancel(run, undo=move.undo, request_id=request, **common)
            case "redirect":
                return await control.redirect(
                    run, f"instead do {request}", when=move.when, request_id=request, **common
                )
            case "pause":
                return await control.pause(run, request_id=request, **common)
            case "abort":
                return await control.abort(run, "c1", **common)
            case _:
                raise AssertionError(move.verb)
    except CheckreinError as error:
        return error
