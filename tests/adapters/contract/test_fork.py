"""A new run from a finished step of an adapted agent's. The witnesses are the tools' own log and the provider."""

from __future__ import annotations

from typing import Any

import pytest

from checkrein import Run, Runtime
from checkrein.core.events import CallReused, CallStarted
from checkrein.testing.provider import Provider, Reply
from tests.adapters.contract.test_drills import SLOW, conversation, driven_elsewhere, kill, use
from tests.support.runs import asked, events, result
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio


def noting(witness: Witness, word: str) -> Reply:
    return use(("note_down", {"log": witness.log, "word": word}))


async def step_of(run: Run[Any], name: str) -> int:
    """The number of the last step that is a call of this name."""
    view = await run.view()
    calls = {call.id: call.name for call in view.calls}
    return [step.number for step in view.steps if any(calls[call] == name for call in step.calls)][-1]


async def test_a_fork_reuses_what_was_recorded_and_asks_their_model_only_after_its_step(
    framework: Any, provider: Provider, witness: Witness, store: str
) -> None:
    """D29 D30: their history before the step is as it was, with the instruction behind it."""
    provider.play([noting(witness, "one"), noting(witness, "two"), Reply("First."), Reply("Second.")])
    agent = framework.adapted(provider.openai_url, provider.key, witness.log)
    async with Runtime(store, agents=[agent]) as runtime:
        origin = await runtime.start(agent, "Go.")
        assert await result(origin) == "First."

        fork = await origin.fork(at=1, instruction="only Q3", by="ann")

        assert await result(fork) == "Second."
        view = await fork.view()
        reused, made = await events(runtime, fork, CallReused), await events(runtime, fork, CallStarted)
        await runtime.journal.verify(fork.id)

    assert witness.words() == ["one", "two"]
    assert len(provider.log) == 4
    said = provider.log[3].messages
    assert said[: len(provider.log[1].messages)] == provider.log[1].messages
    assert "only Q3" in str(said[-1])
    assert [call.name for call in reused][1:] == ["note_down"], "and before it the answer that asked for it"
    assert len([call.name for call in made]) == 1
    assert view.forked_from is not None
    assert (view.forked_from.run, view.forked_from.step, view.forked_from.by) == (origin.id, 1, "ann")
    assert [effect.what for effect in view.forked_from.effects] == ["the note “one”"]


async def test_a_fork_of_a_killed_run_that_is_killed_itself_goes_on_and_repeats_nothing(
    framework: Any, provider: Provider, witness: Witness, store: str
) -> None:
    """D28 D29 D30: three processes, and one line of each tool."""
    provider.play([noting(witness, "one"), noting(witness, "two"), SLOW, noting(witness, "three"), SLOW, Reply("End.")])
    async with driven_elsewhere(framework, store, provider, witness.log) as (process, id), Runtime(store) as other:
        await provider.until(lambda log: len(log) == 3 and log[2].tokens_sent >= 3)
        origin = await other.get(id)
        await origin.pause()
        await kill(process)
        fork = await origin.fork(at=1, instruction="again")

    async with driven_elsewhere(framework, store, provider, witness.log, goal="") as (process, _):
        await provider.until(lambda log: len(log) == 5 and log[4].tokens_sent >= 3)
        await kill(process)

    agent = framework.adapted(provider.openai_url, provider.key, witness.log)
    async with Runtime(store, agents=[agent]) as runtime:
        fork = await runtime.get(fork.id)
        assert await result(fork) == "End."
        assert (await (await runtime.get(id)).view()).status == "paused", "the origin stays as it is"

    assert witness.words() == ["one", "two", "three"]
    assert len(provider.log) == 6


async def test_what_was_said_before_the_step_is_in_the_history_of_the_fork(
    framework: Any, provider: Provider, witness: Witness
) -> None:
    """D21: an instruction of the origin's stands where it stood, also in a fork of the fork."""
    provider.play(
        [SLOW, noting(witness, "un"), Reply("Fini."), noting(witness, "due"), Reply("Finito."), Reply("Ende.")]
    )
    agent = framework.adapted(provider.openai_url, provider.key, witness.log)
    async with Runtime("memory:", agents=[agent]) as runtime:
        origin = await runtime.start(agent, "Talk.")
        await provider.until(lambda log: bool(log) and log[0].tokens_sent >= 5)
        await origin.redirect("In French.")
        assert await result(origin) == "Fini."
        fork = await origin.fork(at=await step_of(origin, "note_down"), instruction="In Italian.")
        assert await result(fork) == "Finito."
        again = await fork.fork(at=await step_of(fork, "note_down"), instruction="In German.")
        assert await result(again) == "Ende."

    assert witness.words() == ["un", "due"]
    said = [str(one.get("content")) for one in conversation(provider.log[-1]) if one["role"] == "user"]
    places = [next(n for n, text in enumerate(said) if word in text) for word in ("French", "Italian", "German")]
    assert places == sorted(places)


async def test_a_fork_of_several_tools_at_once_does_none_of_them_again(
    framework: Any, provider: Provider, witness: Witness
) -> None:
    """D30: each result goes to the call that asked for it."""
    words = ("one", "two", "three")
    together = use(*(("note_down", {"log": witness.log, "word": word}) for word in words))
    provider.play([together, Reply("First."), Reply("Second.")])
    agent = framework.adapted(provider.openai_url, provider.key, witness.log)
    async with Runtime("memory:", agents=[agent]) as runtime:
        origin = await runtime.start(agent, "Go.")
        assert await result(origin) == "First."
        fork = await origin.fork(at=await step_of(origin, "note_down"), instruction="again")
        assert await result(fork) == "Second."

    assert sorted(witness.words()) == sorted(words)
    results = [str(one["content"]) for one in conversation(provider.log[-1]) if one["role"] == "tool"]
    assert results == [f"noted {word}" for word in words]


async def test_a_fork_does_nothing_of_an_agent_inside_a_tool_again(
    framework: Any, provider: Provider, witness: Witness
) -> None:
    provider.play(
        [
            use(("delegate", framework.TASK)),
            noting(witness, "inner"),
            Reply("Inner done."),
            Reply("First."),
            Reply("Second."),
        ]
    )
    agents = framework.nested(provider.openai_url, provider.key, witness.log)
    async with Runtime("memory:", agents=agents) as runtime:
        origin = await runtime.start(agents[0], "Go.")
        assert await result(origin) == "First."
        view = await origin.view()
        fork = await origin.fork(at=view.steps[-1].number, instruction="again")
        assert await result(fork) == "Second."

    assert witness.words() == ["inner"]


async def test_consent_to_a_call_of_the_origin_is_none_to_a_call_of_the_fork(
    framework: Any, provider: Provider, witness: Witness
) -> None:
    publish = use(("publish", {"log": witness.log, "word": "memo"}))
    provider.play([noting(witness, "one"), publish, Reply("Out."), publish, Reply("Not out.")])
    agent = framework.adapted(provider.openai_url, provider.key, witness.log)
    async with Runtime("memory:", agents=[agent]) as runtime:
        origin = await runtime.start(agent, "Go.")
        await origin.approve(await asked(origin))
        assert await result(origin) == "Out."
        fork = await origin.fork(at=1)
        await fork.deny(await asked(fork))
        assert await result(fork) == "Not out."

    assert witness.words() == ["one", "published memo"]
