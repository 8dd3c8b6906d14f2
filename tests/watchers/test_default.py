"""Every agent is paused when its model goes round in circles, and goes on when a person says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from checkrein import Agent, Confession, Loops, Runtime
from checkrein.core.enums import Status
from checkrein.core.events import WatcherFlagged
from checkrein.errors import CheckreinError
from checkrein.models import ScriptedModel
from tests.support.runs import until_status

pytestmark = pytest.mark.anyio

CIRCLE = "What's the topic? What's the topic? I'm here to help. "


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    async with Runtime("memory:") as runtime:
        yield runtime


async def test_an_agent_that_says_nothing_of_watchers_is_paused_in_a_loop(runtime: Runtime) -> None:
    """D10."""
    model = ScriptedModel([CIRCLE * 500], tokens_per_second=500)
    run = await runtime.start(Agent("small", model=model), "Talk to me.")

    state = await until_status(run, Status.PAUSED)

    assert state.needs is not None
    assert state.needs.code == "flagged"
    assert "repeats itself" in state.needs.what
    assert model.live == 0
    assert model.tokens < 2_500, "it was stopped long before its end"
    await run.cancel()


async def test_a_person_who_has_looked_can_let_it_go_on(runtime: Runtime) -> None:
    story = "It was late when the train came in. She stood on the platform, and nobody was there to meet her."
    model = ScriptedModel([CIRCLE * 12 + story], tokens_per_second=60)
    run = await runtime.start(Agent("small", model=model), "Talk to me.")
    pauses = 0
    while True:
        state = await until_status(run, Status.PAUSED, Status.COMPLETED)
        if state.status is Status.COMPLETED:
            break
        pauses += 1
        await run.resume()

    records = await runtime.journal.read(run.id)
    flags = [record.event.offset for record in records if isinstance(record.event, WatcherFlagged)]
    assert story in await run.result()
    assert 1 <= pauses <= 3, "it pauses for what was said since, not again for what a person has seen"
    assert len(flags) == pauses


async def test_it_can_be_switched_off(runtime: Runtime) -> None:
    model = ScriptedModel([CIRCLE * 50])
    run = await runtime.start(Agent("small", model=model, loops=False), "Talk to me.")

    assert await run.result() == CIRCLE * 50


def test_another_one_takes_its_place() -> None:
    own = Loops(5, action="flag")

    assert Agent("a", model="none:x", watchers=[own]).watchers == (own,)
    assert Agent("a", model="none:x", watchers=[Confession()]).watchers == (Confession(), Loops())
    assert Agent("a", model="none:x").watchers == (Loops(),)
    assert Agent("a", model="none:x", loops=False).watchers == ()


@pytest.mark.parametrize(
    ("options", "about"),
    [
        ({"loops": "no"}, "neither True nor False"),
        ({"loops": None}, "neither True nor False"),
        ({"loops": Loops(5)}, "neither True nor False"),
        ({"watchers": Loops()}, "watchers is a list"),
        ({"watchers": "loops"}, "watchers is a list"),
        ({"watchers": ["loops"]}, "is no watcher"),
        ({"watchers": [Loops]}, "is no watcher"),
        ({"watchers": [None]}, "is no watcher"),
    ],
)
def test_a_setting_of_another_type_is_refused(options: dict[str, Any], about: str) -> None:
    with pytest.raises(CheckreinError, match=about):
        Agent("a", model="none:x", **options)
