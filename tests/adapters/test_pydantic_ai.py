"""What only Pydantic AI has: its own limit of requests, and what its tools may return."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent, ToolReturn

from checkrein import Runtime, Turns
from checkrein.adapters.pydantic_ai import Rules, interruptible
from checkrein.testing.provider import Provider, Reply
from tests.adapters.contract.test_drills import use
from tests.adapters.frameworks.pydantic_ai import model
from tests.adapters.tools import quickly
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio


async def test_caps_are_those_of_checkrein_and_not_its_limit_of_fifty_requests(
    provider: Provider, witness: Witness
) -> None:
    """D24: a run that may have sixty turns has them."""
    provider.play([*[use(("quickly", {"log": witness.log, "word": "x"}))] * 55, Reply("Done.")])
    theirs = Agent(model(provider.openai_url, str(provider.key)), name="long", tools=[quickly])
    agent = interruptible(theirs, stop_when=Turns(60), tools={"quickly": Rules(effect="none")})
    async with Runtime("memory:", agents=[agent]) as runtime:
        assert await (await runtime.start(agent, "Go.")).result() == "Done."

    assert len(witness.lines()) == 55


def tells(log: str) -> ToolReturn:
    """Return more than a value."""
    return ToolReturn(return_value="short", content=["at length"])


async def tells_untold(log: str) -> Any:
    """The same, without a word about it."""
    return ToolReturn(return_value="short", content=["at length"])


@pytest.mark.parametrize("tool", [tells, tells_untold])
async def test_a_tool_may_return_more_than_a_value(tool: Any, provider: Provider, witness: Witness) -> None:
    """Also from a worker process: their model reads both, as without Checkrein."""
    provider.play([use((tool.__name__, {"log": witness.log})), Reply("Done.")])
    agent = interruptible(Agent(model(provider.openai_url, str(provider.key)), name="tells", tools=[tool]))
    async with Runtime("memory:", agents=[agent]) as runtime:
        assert await (await runtime.start(agent, "Go.")).result() == "Done."

    said = {one["role"]: str(one["content"]) for one in provider.log[1].messages}
    assert said["tool"] == "short"
    assert "at length" in said["user"]


async def test_doctor_says_where_to_say_what_a_tool_does() -> None:
    agent = interruptible(Agent("test", name="quick", tools=[quickly]))

    (warning,) = agent.tools["quickly"].warnings()

    assert 'Say it in interruptible(agent, tools={"quickly": Rules(…)}).' in warning.why
