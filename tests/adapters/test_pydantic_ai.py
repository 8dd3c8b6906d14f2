"""What only Pydantic AI has: its own limit of requests, and what its tools may return."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent

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
