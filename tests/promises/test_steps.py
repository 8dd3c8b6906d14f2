"""What a step of a run costs beside the work it does, counted and not timed: commits, and who is woken by them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from checkrein import Agent, Runtime, tool
from checkrein.journal import subscriptions
from checkrein.journal.sqlite import writer
from checkrein.models import ScriptedModel, Turn

pytestmark = pytest.mark.anyio

STEPS = 30
SPARE = 8
"""For the beginning and the end of a run."""


@tool(effect="none")
async def nothing() -> int:
    """Do nothing."""
    return 1


def agent() -> Agent:
    turns: list[Any] = [Turn(calls=[("nothing", {})]) for _ in range(STEPS)]
    return Agent("stepper", model=ScriptedModel([*turns, Turn("Done.")]), tools=[nothing])


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, store: str) -> Counter[str]:
    if not store.startswith("sqlite:"):
        pytest.skip("the commits of SQLite's writer are counted")
    count: Counter[str] = Counter()
    keep, keep_every, commit = (
        subscriptions.RunSubscription.keep,
        subscriptions.AllRunsSubscription.keep,
        writer.Writer._commit,
    )

    def keeping(bell: subscriptions.RunSubscription, news: Any) -> bool:
        count["told"] += 1
        is_woken = keep(bell, news)
        count["woken"] += is_woken
        return is_woken

    def keeping_every(bell: subscriptions.AllRunsSubscription, news: Any) -> bool:
        count["woken"] += 1
        return keep_every(bell, news)

    def committing(of: writer.Writer, *args: Any, **kwargs: Any) -> None:
        count["commits"] += 1
        commit(of, *args, **kwargs)

    monkeypatch.setattr(subscriptions.RunSubscription, "keep", keeping)
    monkeypatch.setattr(subscriptions.AllRunsSubscription, "keep", keeping_every)
    monkeypatch.setattr(writer.Writer, "_commit", committing)
    return count


@pytest.mark.parametrize("at_once_seconds", [60.0, -1.0], ids=["in the event loop", "in the writer's thread"])
async def test_a_step_takes_two_commits_and_wakes_nobody_who_knows_already(
    runtime: Runtime, counted: Counter[str], monkeypatch: pytest.MonkeyPatch, at_once_seconds: float
):
    """Neither its driver, which has made them, nor whoever waits for the result, nor the engine that drives the run."""
    monkeypatch.setattr(writer, "AT_ONCE_SECONDS", at_once_seconds)
    run = await runtime.start(agent(), "Go.")

    assert await run.result() == "Done."

    assert 2 * STEPS < counted["commits"] < 3 * STEPS, "leases are renewed now and then, too"
    assert counted["told"] >= 2 * STEPS, "otherwise nobody would have been asked"
    assert counted["woken"] <= SPARE


async def test_the_result_of_a_run_that_ended_long_ago_is_still_there(runtime: Runtime):
    run = await runtime.start(agent(), "Go.")
    await run.result()

    again = await runtime.get(run.id)

    assert await again.result() == "Done."
