"""Completion against a cancel that comes from another process, which has nothing but the journal's file."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import pytest

from checkrein import Run, RunFailed, Runtime
from checkrein.core.enums import Undo
from checkrein.errors import Refused
from tests.torture.races.meeting import Score
from tests.torture.races.moments import Aim, Rounds
from tests.torture.races.race import Answer, Move, Raced, Told
from tests.torture.races.racers import LINGER_SECONDS, LOG, RACERS
from tests.torture.races.referee import Foul, Referee
from tests.torture.races.rival import Order, Reply

pytestmark = pytest.mark.anyio

ROOT: Final = Path(__file__).parents[3]
SLOW_ENOUGH: Final = ("player", "booker", "couple")
"""Another process needs some milliseconds, so only those take part that do too."""
AT_ONCE: Final = 4


class Rival:
    """The other process, as seen from this one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[str, asyncio.Future[Reply]] = {}

    async def cancel(self, order: Order) -> Reply:
        assert self._process.stdin is not None
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[order.request] = reply
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        async with asyncio.timeout(120):
            return await reply

    async def listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            reply = msgspec.json.decode(line, type=Reply)
            self._waiting.pop(reply.request).set_result(reply)


@asynccontextmanager
async def rival_on(database: Path) -> AsyncIterator[Rival]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.torture.races.rival", str(database), stdin=pipe, stdout=pipe, cwd=ROOT
    )
    rival = Rival(process)
    listening = asyncio.create_task(rival.listen())
    try:
        yield rival
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        await listening


class Contest:
    def __init__(self, runtime: Runtime, rival: Rival, seed: int) -> None:
        self._runtime = runtime
        self._rival = rival
        self._dice = Random(f"{seed} across")
        self._aims = {name: Aim(self._dice, 0.02) for name in SLOW_ENOUGH}
        self._numbers = itertools.count(1)
        self.score = Score()

    async def hold(self, races: int) -> Score:
        places = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            async with places:
                await self._race(self._dice.choice(SLOW_ENOUGH), f"across {next(self._numbers)}")

        await asyncio.gather(*(one() for _ in range(races)))
        return self.score

    async def _race(self, racer: str, goal: str) -> None:
        aim, undo = self._aims[racer], self._dice.choice(list(Undo))
        run = await self._runtime.start(RACERS[racer], goal)
        order = Order(run=run.id, request=goal, seconds=aim.moment(), undo=undo)
        reply, result = await asyncio.gather(self._rival.cancel(order), _result(run))
        told = Told(move=Move(verb="cancel", moment=Rounds(0), undo=undo), request=goal, answer=_as_told(reply, run.id))
        raced = Raced(run=run.id, goal=goal, racer=racer, told=[told], result=result, turns=0)
        await self._judge(raced, was_late=reply.receipt is None)
        aim.learn(was_late=reply.receipt is None)

    async def _judge(self, raced: Raced, *, was_late: bool) -> None:
        journal, score = self._runtime.journal, self.score
        score.races += 1
        score.verb_won += not was_late
        score.end_won += was_late
        try:
            Referee(raced, await journal.read(raced.run), await journal.effects(raced.run), LOG[raced.goal]).judge()
        except Foul as foul:
            score.fouls.append(str(foul))


async def _result(run: Run) -> Any:
    try:
        return await run.result()
    except RunFailed as failed:
        return failed


def _as_told(reply: Reply, run: str) -> Answer:
    if reply.receipt is not None:
        return reply.receipt
    return Refused(reply.message, code=reply.code, run=run)


async def contest(folder: Path, races: int, seed: int, tell: Callable[..., None]) -> Score:
    LOG.clear()
    database, agents = folder / "runs.db", list(RACERS.values())
    lingering = LINGER_SECONDS.set(0.002)
    try:
        async with Runtime(f"sqlite:///{database}", agents=agents) as runtime, rival_on(database) as rival:
            score = await Contest(runtime, rival, seed).hold(races)
    finally:
        LINGER_SECONDS.reset(lingering)
    tell(f"cancel against completion, from another process: {score}", **score.counts())
    assert not score.fouls, f"{score}\n\n{score.fouls[0]}"
    return score


async def test_completion_and_a_cancel_from_another_process_have_one_winner(
    tmp_path: Path, seed: int, tell: Callable[..., None]
) -> None:
    """D7 D27: whoever cancels needs neither the agent nor its process."""
    score = await contest(tmp_path, 40, seed, tell)

    assert score.verb_won
    assert score.end_won


@pytest.mark.torture
async def test_the_same_five_hundred_times(tmp_path: Path, seed: int, tell: Callable[..., None]) -> None:
    """D7"""
    score = await contest(tmp_path, 500, seed, tell)

    assert min(score.verb_won, score.end_won) >= 25, f"no race: {score}"
