"""What every adapter promises beside the drills, with the real framework."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from checkrein import RunFailed, Runtime
from checkrein.core.enums import Status
from checkrein.testing.provider import Fault, Provider, Reply
from tests.adapters.contract.test_drills import SLOW, conversation, use
from tests.support.runs import until_status
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio


def made(framework: Any, provider: Provider, witness: Witness, **options: Any) -> Any:
    return framework.adapted(provider.openai_url, provider.key, witness.log, **options)


async def test_their_approvals_are_needs_you_and_survive_two_restarts(
    framework: Any, provider: Provider, witness: Witness, store: str
) -> None:
    """D29 D37: asked once, done once."""
    provider.play([use(("publish", {"log": witness.log, "word": "memo"})), Reply("Out.")])
    agent = made(framework, provider, witness)
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Publish.")
        while not (view := await run.view()).approvals:
            await asyncio.sleep(0.02)
        assert [(one.name, one.arguments["word"]) for one in view.approvals] == [("publish", "memo")]
    agent = made(framework, provider, witness)
    async with Runtime(store, agents=[agent]) as runtime:
        assert (await (await runtime.get(run.id)).view()).approvals
    agent = made(framework, provider, witness)
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.get(run.id)
        assert witness.words() == []
        while not (view := await run.view()).approvals:
            await asyncio.sleep(0.02)
        await run.approve(view.approvals[0].call)
        assert await run.result() == "Out."

    assert witness.words() == ["published memo"]
    assert len(provider.log) == 2


async def test_what_a_person_declines_is_told_to_their_model(
    framework: Any, provider: Provider, witness: Witness
) -> None:
    provider.play([use(("publish", {"log": witness.log, "word": "memo"})), Reply("Then not.")])
    agent = made(framework, provider, witness)
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Publish.")
        while not (view := await run.view()).approvals:
            await asyncio.sleep(0.02)
        await run.deny(view.approvals[0].call, note="Not today.")
        assert await run.result() == "Then not."

    assert witness.words() == []
    assert "Not today." in str(provider.log[1].messages)


async def test_a_typed_output_is_a_value_of_that_type_also_from_the_record(
    framework: Any, provider: Provider, store: str
) -> None:
    agent, expected = framework.typed(provider.openai_url, provider.key)
    fields = {"city": "Bern", "people": 144_000}
    provider.play(framework.typed_replies(fields))
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Which city?")
        assert await run.result() == expected
    async with Runtime(store, agents=[agent]) as runtime:
        assert await (await runtime.get(run.id)).result() == expected


async def test_a_prompt_that_is_edited_between_pause_and_resume_does_not_diverge(
    framework: Any, provider: Provider, witness: Witness, store: str
) -> None:
    """D30"""
    provider.play([use(("note_down", {"log": witness.log, "word": "one"})), SLOW, Reply("Done.")])
    agent = made(framework, provider, witness)
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        await provider.until(lambda log: len(log) == 2 and log[1].tokens_sent >= 3)
        await run.pause()
    edited = made(framework, provider, witness, instructions="Help, and be brief about it.")
    async with Runtime(store, agents=[edited]) as runtime:
        run = await runtime.get(run.id)
        await run.resume()
        assert await run.result() == "Done."

    assert witness.words() == ["one"]
    assert "be brief" in str(provider.log[-1].body)


async def test_a_tool_that_takes_the_context_of_the_framework_runs_in_this_process(
    framework: Any, provider: Provider, witness: Witness
) -> None:
    provider.play(
        [use(("with_context", {"word": "x"}), ("quickly", {"log": witness.log, "word": "y"})), Reply("Done.")]
    )
    agent = made(framework, provider, witness)
    async with Runtime("memory:", agents=[agent]) as runtime:
        assert await (await runtime.start(agent, "Go.")).result() == "Done."

    assert sorted(witness.words()) == ["async y", "context x"]
    warned = [warning.why for warning in agent.tools["with_context"].warnings()]
    assert any("cannot go to a worker process" in why for why in warned), "doctor says which, and why"
    assert not any("worker process" in warning.why for warning in agent.tools["note_down"].warnings())


async def test_a_cancel_undoes_what_the_rules_say_and_keeps_what_they_used(
    framework: Any, provider: Provider, witness: Witness
) -> None:
    """D33 D25"""
    provider.play([use(("note_down", {"log": witness.log, "word": "one"})), SLOW])
    agent = made(framework, provider, witness)
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        await provider.until(lambda log: len(log) == 2 and log[1].tokens_sent >= 3)
        receipt = await run.cancel()
        view = await run.view()

    assert witness.words() == ["one", "undone one"]
    assert [(effect.what, effect.now) for effect in receipt.effects] == [("the note “one”", "undone")]
    assert view.usage.input_tokens > 0
    assert view.usage.cost_usd is not None


async def test_a_failure_that_a_person_can_mend_pauses_and_one_that_may_pass_is_tried_again(
    framework: Any, provider: Provider, witness: Witness
) -> None:
    provider.play(
        [
            Reply("Fine.", fault=Fault(status=503, times=1)),
            Reply("x", fault=Fault(status=401, times=1)),
        ]
    )
    agent = made(framework, provider, witness)
    async with Runtime("memory:", agents=[agent]) as runtime:
        assert await (await runtime.start(agent, "Go.")).result() == "Fine."
        run = await runtime.start(agent, "Go.")
        await until_status(run, Status.PAUSED)
        assert [one.kind for one in (await run.view()).waiting] == ["model_unauthorised"]
        await run.resume()
        assert await run.result() == "x"


async def test_a_question_beside_is_answered_by_their_model_on_what_was_done(
    framework: Any, provider: Provider, witness: Witness
) -> None:
    """D31"""
    provider.play([use(("note_down", {"log": witness.log, "word": "one"})), SLOW, Reply("One note so far."), SLOW])
    agent = made(framework, provider, witness)
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        await provider.until(lambda log: len(log) == 2 and log[1].tokens_sent >= 3)
        answer = await run.ask("How far are you?")
        await run.cancel()

    assert answer == "One note so far."
    asked = conversation(provider.log[2])
    assert asked[-1]["content"] == "How far are you?"
    assert "noted one" in str(asked)


async def test_agents_inside_tools_are_parts_of_the_run_and_go_on_in_a_new_process(
    framework: Any, provider: Provider, witness: Witness, store: str
) -> None:
    """D29 D30: the inner agent's requests and tool calls are recorded; nothing is done again."""
    provider.play(
        [
            use(("delegate", framework.TASK)),
            use(("note_down", {"log": witness.log, "word": "inner"})),
            SLOW,
            Reply("Inner done."),
            Reply("All done."),
        ]
    )
    agents = framework.nested(provider.openai_url, provider.key, witness.log)
    async with Runtime(store, agents=agents) as runtime:
        run = await runtime.start(agents[0], "Go.")
        await provider.until(lambda log: len(log) == 3 and log[2].tokens_sent >= 3)
        await run.pause()
        await provider.until(lambda log: log[2].how == "disconnected")
    agents = framework.nested(provider.openai_url, provider.key, witness.log)
    async with Runtime(store, agents=agents) as runtime:
        run = await runtime.get(run.id)
        await run.resume()
        assert await run.result() == "All done."

    assert witness.words() == ["inner"]
    assert len(provider.log) == 5


async def test_what_a_tool_raises_is_recorded_and_told_as_the_framework_would(
    framework: Any, provider: Provider, witness: Witness
) -> None:
    provider.play([use(("fails", {"log": witness.log})), Reply("It failed.")])
    agent = made(framework, provider, witness)
    async with Runtime("memory:", agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        if framework.TELLS_FAILURES:
            assert await run.result() == "It failed."
            assert "no such thing" in str(provider.log[1].messages)
        else:
            with pytest.raises(RunFailed, match="LookupError: no such thing"):
                await run.result()
        calls = [(call.name, call.now) for call in (await run.view()).calls if call.name == "fails"]

    assert calls == [("fails", "failed")]


async def test_nothing_is_patched_and_their_agent_is_as_it_was(
    framework: Any, provider: Provider, witness: Witness
) -> None:
    provider.play([use(("note_down", {"log": witness.log, "word": "a"})), Reply("Done."), Reply("Plain.")])
    theirs = framework.plain(provider.openai_url, provider.key)
    before, names = framework.looks(theirs), _names(framework.PACKAGES)
    agent = framework.wrapped(theirs, witness.log)
    async with Runtime("memory:", agents=[agent]) as runtime:
        await (await runtime.start(agent, "Go.")).result()

    assert framework.looks(theirs) == before
    after = _names(framework.PACKAGES)
    assert {name: after.get(name) for name in names} == names
    assert await framework.run_plain(theirs, "Go.", witness.log) == "Plain.", "it still runs without Checkrein"


def _names(packages: tuple[str, ...]) -> dict[str, int]:
    """Every function and class of every module, and of every class in it, and which object it is."""
    found: dict[str, int] = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in packages and module is not None:
            for key, value in list(vars(module).items()):
                if callable(value):
                    found[f"{name}.{key}"] = id(value)
                if isinstance(value, type) and value.__module__ == name:
                    found |= {f"{name}.{key}.{one}": id(it) for one, it in vars(value).items() if callable(it)}
    return found
