"""Examples that the frameworks publish themselves, under `interruptible` and otherwise as they are.

They are code of others: `make test-newest` has pip fetch them into its environment, and names their folder.
"""

from __future__ import annotations

import gc
import importlib
import os
import sqlite3
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import agents
import pytest

from checkrein import Runtime
from checkrein.testing.provider import Provider, Reply
from tests.adapters import clients
from tests.adapters.contract.test_drills import SLOW, use
from tests.support.runs import asked, result

pytestmark = [pytest.mark.anyio, pytest.mark.newest]


@pytest.fixture(autouse=True)
def published(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Examples can be imported, and ask the provider of the test, as they would ask OpenAI's."""
    folder = os.environ.get("CHECKREIN_PUBLISHED_EXAMPLES")
    if not folder:
        pytest.skip("needs the published examples that `make test-newest` fetches")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OPENAI_BASE_URL", provider.openai_url)
    monkeypatch.setenv("OPENAI_API_KEY", str(provider.key))
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    # By itself the SDK keeps one client for the whole process, and with it the event loop of the test before.
    agents.set_default_openai_client(clients.client(provider.openai_url, str(provider.key)), use_for_tracing=False)
    for name in [one for one in sys.modules if one.split(".")[0] in ("examples", "pydantic_ai_examples")]:
        monkeypatch.delitem(sys.modules, name)  # our own folder of examples has the same name as theirs
    yield
    with warnings.catch_warnings():  # their clients are nobody's to close
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def example(name: str) -> Any:
    """A module of theirs, made anew; a skip where this release has it no more, or it needs what is not here."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        pytest.skip(f"{name} cannot be had: {missing}")


async def paused_and_taken_up(make: Any, goal: str, store: str, provider: Provider) -> Any:
    """Its result, after a pause in the middle of its last answer and a restart."""
    agent = make()
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, goal)
        await provider.until(lambda log: bool(log) and log[-1].tokens_sent >= 3 and log[-1].how != "completed")
        await run.pause()
    agent = make()
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.get(run.id)
        await run.resume()
        return await result(run)


# -- Pydantic AI


async def test_the_bank_support_of_pydantic_ai(provider: Provider) -> None:
    from checkrein.adapters.pydantic_ai import interruptible

    bank = example("pydantic_ai_examples.bank_support")
    answer = {"support_advice": "Hello John.", "block_card": False, "risk": 1}
    provider.play([use(("customer_balance", {})), Reply("", calls=[("final_result", answer)])])
    with sqlite3.connect(":memory:") as connection:
        bank.cur = connection.cursor()
        bank.cur.execute("CREATE TABLE customers(id, name, balance)")
        bank.cur.execute("INSERT INTO customers VALUES (123, 'John', 123.45)")
        deps = bank.SupportDependencies(customer_id=123, db=bank.DatabaseConn(sqlite_conn=connection))
        agent = interruptible(bank.support_agent, name="bank", deps=deps)
        async with Runtime("memory:", agents=[agent]) as runtime:
            assert await result(await runtime.start(agent, "What is my balance?")) == bank.SupportOutput(**answer)

    assert "$123.45" in str(provider.log[1].body)
    assert "John" in str(provider.log[0].body)


async def test_the_delegation_of_pydantic_ai(provider: Provider) -> None:
    """Its tools run other agents: each is one opaque call."""
    from checkrein.adapters.pydantic_ai import interruptible

    medical = example("pydantic_ai_examples.medical_agent_delegation")
    report = {
        "diagnosis": ["cold"],
        "differential": [],
        "recommended_tests": [],
        "immediate_actions": ["rest"],
        "estimated_time_minutes": 5,
    }
    provider.play(
        [
            use(("consult_specialist", {"specialty": "general", "question": "A cold?"})),
            Reply("", calls=[("final_result", report)]),
            Reply("", calls=[("final_result", {"final_status": "resolved_by_specialist", "final_report": report})]),
        ]
    )
    patient = medical.PatientInfo(patient_id="7", age=40, known_conditions=[])
    agent = interruptible(medical.triage_agent, name="triage", deps=patient)
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "I sneeze.")
        assert (await result(run)).final_report.diagnosis == ["cold"]
        assert "consult_specialist" in [call.name for call in (await run.view()).calls]

    assert len(provider.log) == 3


# -- the OpenAI Agents SDK


async def test_the_tools_of_openai_agents_after_a_pause_and_a_restart(provider: Provider, store: str) -> None:
    from checkrein.adapters.openai_agents import interruptible

    tools = example("examples.basic.tools")
    provider.play([use(("get_weather", {"city": "Tokyo"})), SLOW, Reply("Sunny.")])

    said = await paused_and_taken_up(lambda: interruptible(tools.agent), "Weather?", store, provider)

    assert said == "Sunny."
    assert len(provider.log) == 3
    assert "temperature_range='14-20C'" in str(provider.log[-1].body), "their model reads what it reads without us"


async def test_the_agents_as_tools_of_openai_agents(provider: Provider) -> None:
    """D22: each translator is a sub-run."""
    from checkrein.adapters.openai_agents import interruptible

    translators = example("examples.agent_patterns.agents_as_tools")
    provider.play([use(("translate_to_french", {"input": "Hello"})), Reply("Bonjour."), Reply("Here: Bonjour.")])
    agent = interruptible(translators.orchestrator_agent)
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Translate Hello.")
        assert await result(run) == "Here: Bonjour."
        assert len(await runtime.runs()) >= 1
        assert [call.run for call in (await run.view()).calls if call.run], "a sub-run of its own"


async def test_the_routing_of_openai_agents_after_a_pause_and_a_restart(provider: Provider, store: str) -> None:
    from checkrein.adapters.openai_agents import interruptible

    routing = example("examples.agent_patterns.routing")
    provider.play([use(("transfer_to_french_agent", {})), SLOW, Reply("Bonsoir.")])

    said = await paused_and_taken_up(lambda: interruptible(routing.triage_agent), "Bonsoir?", store, provider)

    assert said == "Bonsoir."
    assert "You only speak French" in str(provider.log[-1].body)


async def test_the_person_in_the_loop_of_openai_agents(provider: Provider) -> None:
    """D37: its approval depends on the arguments."""
    from checkrein.adapters.openai_agents import interruptible

    loop = example("examples.agent_patterns.human_in_the_loop")
    provider.play(
        [
            use(("get_temperature", {"city": "Bern"})),
            use(("get_temperature", {"city": "Oakland"})),
            Reply("20 degrees."),
        ]
    )
    agent = interruptible(loop.agent)
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Temperature?")
        call = await asked(run)
        assert [one.arguments for one in (await run.view()).approvals] == [{"city": "Oakland"}]
        await run.approve(call)
        assert await result(run) == "20 degrees."


async def test_the_customer_service_of_openai_agents(provider: Provider) -> None:
    """Handoffs in a ring, a hook of a handoff, and a tool that writes into the context."""
    from checkrein.adapters.openai_agents import interruptible

    service = example("examples.customer_service.main")
    provider.play(
        [
            use(("transfer_to_seat_booking_agent", {})),
            use(("update_seat", {"confirmation_number": "A1", "new_seat": "12C"})),
            Reply("Booked 12C."),
        ]
    )
    made: list[Any] = []

    def context() -> Any:
        made.append(service.AirlineAgentContext())
        return made[-1]

    agent = interruptible(service.triage_agent, deps=context)
    async with Runtime("memory:", agents=[agent]) as runtime:
        assert await result(await runtime.start(agent, "Seat 12C, please.")) == "Booked 12C."

    assert made[-1].seat_number == "12C"


async def test_the_guardrail_of_openai_agents(provider: Provider) -> None:
    from checkrein import RunFailed
    from checkrein.adapters.openai_agents import interruptible

    guarded = example("examples.agent_patterns.output_guardrails")
    said = '{"reasoning": "none", "response": "%s", "user_name": null}'
    provider.play([Reply([said % "Sacramento"]), Reply([said % "Call 650 1234"])])
    agent = interruptible(guarded.agent)
    async with Runtime("memory:", agents=[agent]) as runtime:
        assert (await result(await runtime.start(agent, "The capital?"))).response == "Sacramento"
        with pytest.raises(RunFailed, match="OutputGuardrailTripwireTriggered"):
            await result(await runtime.start(agent, "Where do I live?"))
