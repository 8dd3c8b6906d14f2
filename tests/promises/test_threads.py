"""A thread belongs to its owner. The witness is the model: what it was shown."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from checkrein import Agent, Run, Runtime
from checkrein.models import ScriptedModel, Turn
from checkrein.models.messages import Request
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

PAIRS = 100
OWNERS = ("ada", "bob")


async def test_owners_who_use_one_name_at_the_same_moment_never_see_or_steer_each_others_runs(runtime: Runtime) -> None:
    shown: list[str] = []

    def says(request: Request) -> Turn:
        shown.append(str(request.messages))
        return Turn("Done.")

    agent = Agent("quick", model=ScriptedModel(says))

    async def start(owner: str, number: int, if_busy: Literal["queue", "redirect"]) -> Run:
        return await runtime.start(
            agent, f"for {owner} alone", thread=f"daily-{number}", owner=owner, if_busy=if_busy, by=owner
        )

    async with asyncio.timeout(2 * PATIENCE_SECONDS):
        runs = {owner: list[Run]() for owner in OWNERS}
        for number in range(PAIRS):
            if_busy: Literal["queue", "redirect"] = "redirect" if number % 2 else "queue"
            first = await asyncio.gather(*(start(owner, number, "queue") for owner in OWNERS))
            second = await asyncio.gather(*(start(owner, number, if_busy) for owner in OWNERS))
            for owner, *of_owner in zip(OWNERS, first, second, strict=True):
                runs[owner] += of_owner
        for owner in OWNERS:
            for run in runs[owner]:
                await run.result()

    for owner in OWNERS:
        assert {(await run.state()).owner for run in runs[owner]} == {owner}
    assert len(shown) >= 2 * PAIRS
    assert not [one for one in shown if "for ada" in one and "for bob" in one]
    assert any(one.count("for ada alone") > 1 for one in shown), "a thread still goes on from its own past"


async def test_a_run_waits_only_for_runs_of_its_own_owner(runtime: Runtime) -> None:
    slow = Agent("slow", model=ScriptedModel(lambda _: Turn("word " * 5_000), tokens_per_second=5.0))
    quick = Agent("quick", model=ScriptedModel(lambda _: Turn("Done.")))
    hers = await runtime.start(slow, "long", thread="t", owner="ada")

    his = await runtime.start(quick, "short", thread="t", owner="bob", if_busy="refuse")
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await his.result() == "Done."

    assert not (await hers.state()).is_finished
    await hers.cancel()
