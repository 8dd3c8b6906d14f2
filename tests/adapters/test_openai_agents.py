"""What only the OpenAI Agents SDK has: handoffs, and tools that are refused."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from agents import Agent, ComputerTool, ToolsToFinalOutputResult, function_tool, handoff

from checkrein import Runtime
from checkrein.adapters.openai_agents import interruptible
from checkrein.errors import MisuseError
from checkrein.testing.provider import Provider, Reply
from tests.adapters.contract.test_drills import SLOW, use
from tests.adapters.frameworks.openai_agents import model
from tests.adapters.tools import Place, note_down, where
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("how", ["agent", "handoff"])
async def test_a_handoff_goes_on_in_the_same_run_also_in_a_new_process(
    how: str, provider: Provider, witness: Witness, store: str
) -> None:
    """D30: the agent that it was handed to is recorded like the first."""

    def family() -> Any:
        billing = Agent(
            name="billing", model=model(provider.openai_url, str(provider.key)), tools=[function_tool(note_down)]
        )
        way: Any = billing if how == "agent" else handoff(billing)
        return interruptible(Agent(name="triage", model=model(provider.openai_url, str(provider.key)), handoffs=[way]))

    provider.play(
        [
            use(("transfer_to_billing", {})),
            use(("note_down", {"log": witness.log, "word": "paid"})),
            SLOW,
            Reply("Paid."),
        ]
    )
    agent = family()
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Pay.")
        await provider.until(lambda log: len(log) == 3 and log[2].tokens_sent >= 3, timeout=120)
        await run.pause()
    agent = family()
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.get(run.id)
        await run.resume()
        assert await run.result() == "Paid."

    assert witness.words() == ["paid"]
    assert len(provider.log) == 4


def test_a_tool_that_works_beside_every_call_is_refused() -> None:
    tool: Any = ComputerTool(computer=None)
    with pytest.raises(MisuseError, match=r"has a ComputerTool.*could not be stopped; make it a function_tool"):
        interruptible(Agent(name="mouse", tools=[tool]))


async def test_what_a_tool_returns_is_of_the_type_that_it_says(provider: Provider, witness: Witness) -> None:
    """Although it was made in a worker process: their code goes on with it as without Checkrein."""
    seen: list[Any] = []

    def ends(context: Any, results: list[Any]) -> ToolsToFinalOutputResult:
        seen.extend(one.output for one in results)
        return ToolsToFinalOutputResult(is_final_output=True, final_output=results[0].output.name)

    provider.play([use(("where", {"log": witness.log}))])
    theirs = Agent(
        name="final",
        model=model(provider.openai_url, str(provider.key)),
        tools=[function_tool(where)],
        tool_use_behavior=ends,
    )
    agent = interruptible(theirs)
    async with Runtime("memory:", agents=[agent]) as runtime:
        assert await (await runtime.start(agent, "Where?")).result() == "Bern"

    assert seen == [Place("Bern", date(1191, 1, 1))]
