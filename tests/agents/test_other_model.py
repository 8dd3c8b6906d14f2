"""Agents are told apart by their names: that a run goes on with another model than before is said, not passed over."""

from __future__ import annotations

import asyncio
import logging

import pytest

from checkrein import Agent, Run, Runtime, Turns, tool
from checkrein.models import ScriptedModel, Turn

pytestmark = pytest.mark.anyio


@tool(effect="none")
async def look(n: int) -> int:
    return n


def one(name: str, turns: list[Turn | str]) -> Agent[str]:
    return Agent("a", model=ScriptedModel(turns, name=name), tools=[look], stop_when=Turns(1))


async def left(store: str) -> Run:
    """A run that its cap has paused after the first turn of the model `first`, in a runtime that has ended since."""
    async with Runtime(store) as runtime:
        run = await runtime.start(one("first", [Turn("Now.", calls=[("look", {"n": 1})])]), "Look.")
        while not (await run.state()).waiting():
            await asyncio.sleep(0.01)
    return run


async def flags_after(store: str, run: Run, name: str) -> list[str]:
    turns: list[Turn | str] = [Turn("Now.", calls=[("look", {"n": 1})]), "Seen."]
    async with Runtime(store, agents=[one(name, turns)]) as runtime:
        again = await runtime.get(run.id)
        await again.resume()
        await again.result()
        return [flag.what for flag in (await again.view()).flags]


async def test_a_run_that_goes_on_with_another_model_says_so_once(store: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "checkrein")
    run = await left(store)

    flags = await flags_after(store, run, "second")

    assert flags == ["goes on with second; so far it was first: agent a was changed, or is another of that name"]
    assert "goes on with second; so far it was first" in caplog.text


async def test_one_that_goes_on_with_the_same_has_nothing_to_say(store: str) -> None:
    run = await left(store)

    assert await flags_after(store, run, "first") == []
