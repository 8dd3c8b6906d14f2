"""Agents that people run in a terminal, unchanged, under `checkrein exec`: stop means stop for each of them.

One row of the table in `docs/howto/exec.md` is one agent here. `make test-agents` installs and drives them.
"""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.cli.shell import Shell
from tests.real_agents.conftest import (
    INSTRUCTION,
    KEY,
    REST,
    Scene,
    at_work,
    hands_over,
    is_of_sub_agent,
    runs,
    says,
)
from tests.real_agents.programs import Agent

pytestmark = [pytest.mark.anyio, pytest.mark.agents]


async def paused(here: Scene) -> None:
    assert (await here.do("pause", "last")).code == 0
    assert {*here.processes().values()} == {"T"}, "all of it is frozen"


async def resumed_to_the_end(here: Scene) -> None:
    assert (await here.do("resume", "last")).code == 0
    assert await here.ended() == 0, here.started.text[-2000:]
    assert not here.processes()


async def held_for(here: Scene, seconds: float) -> None:
    """A pause in mid-answer, and on."""
    await here.in_mid_answer()
    await paused(here)
    assert here.asked()[-1].how == "disconnected"
    seen = len(here.provider.log)
    await asyncio.sleep(seconds)
    assert len(here.provider.log) == seen

    await resumed_to_the_end(here)

    if here.agent.streams:
        assert b"word1 word2 word3" in bytes(here.asked()[1].raw), "the rest was asked for with the first half"
        assert "word1 word2 word3" in " ".join(here.started.text.split())
    assert REST in " ".join(here.started.text.split()) or here.agent.last_call


async def test_paused_in_mid_answer_it_goes_on_with_one_continuous_answer(agent: Agent, shell: Shell) -> None:
    """D1 D20: and its key is kept nowhere."""
    async with at_work(agent, shell, says(agent)) as here:
        await held_for(here, 0.5)

    stored = [file for file in (shell.folder / ".checkrein").rglob("*") if file.is_file()]
    assert stored
    assert not [file for file in stored if KEY.encode() in file.read_bytes()]


@pytest.mark.long_pause
async def test_a_pause_of_330_seconds_in_mid_answer_is_survived(agent: Agent, shell: Shell) -> None:
    """D20: longer than the five minutes after which clients give up."""
    async with at_work(agent, shell, says(agent)) as here:
        await held_for(here, 330)


async def test_paused_in_a_command_the_command_stands_still_and_goes_on(
    agent: Agent, shell: Shell, command: str
) -> None:
    """D1 D20"""
    async with at_work(agent, shell, runs(agent, command)) as here:
        await here.in_command()
        await paused(here)
        assert await here.is_quiet()

        assert (await here.do("resume", "last")).code == 0
        await here.ticks_on()
        here.let_command_end()

        assert await here.ended() == 0, here.started.text[-2000:]
        assert (here.words("begun"), here.words("ended")) == (1, 1)
        assert not here.processes()


async def test_redirected_in_mid_answer_only_its_main_conversation_is_told(agent: Agent, shell: Shell) -> None:
    """D21 D22"""
    async with at_work(agent, shell, says(agent)) as here:
        await here.in_mid_answer()

        assert (await here.do("redirect", "last", INSTRUCTION)).code == 0

        assert await here.ended() == 0, here.started.text[-2000:]
        asked = here.asked()
        assert asked[0].how == "disconnected"
        assert INSTRUCTION in str(asked[1].messages[-1])
        assert told(here) == [request.number for request in asked[1:]], "each later one of it, and nothing else"


async def test_redirected_in_a_command_the_command_ends_and_its_main_conversation_is_told(
    agent: Agent, shell: Shell, command: str
) -> None:
    """D21 D22: the agent lives on. One that does not notice when its command is killed is told when that has ended."""
    async with at_work(agent, shell, runs(agent, command)) as here:
        await here.in_command()

        await here.do("redirect", "last", INSTRUCTION)
        if not agent.hears_of_kills:
            await here.ticks_on()
            here.let_command_end()

        assert await here.ended() == 0, here.started.text[-2000:]
        assert here.words("ended") == (not agent.hears_of_kills)
        asked = here.asked()
        assert INSTRUCTION in str(asked[1].messages[-1])
        assert told(here) == [request.number for request in asked[1:]]


async def test_redirected_while_a_sub_agent_speaks_the_sub_agent_is_not_told(agent: Agent, shell: Shell) -> None:
    """D21 D22: it goes on with what it was saying; the main conversation is told when it asks again."""
    if agent.sub_agent is None:
        pytest.skip(f"{agent.name} has no tool that waits for a sub-agent")
    async with at_work(agent, shell, hands_over(agent)) as here:
        await here.provider.until(
            lambda log: any(is_of_sub_agent(one) and one.tokens_sent > 4 for one in log), timeout=90
        )

        await here.do("redirect", "last", INSTRUCTION)

        assert await here.ended() == 0, here.started.text[-2000:]
        asked = here.asked()
        assert len(asked) > 1
        assert told(here) == [request.number for request in asked[1:]]
        assert "word1 word2" in str([one.messages for one in here.provider.log if is_of_sub_agent(one)][1])


def told(here: Scene) -> list[int]:
    """The requests in which the model is told what the person said."""
    return [request.number for request in here.provider.log if INSTRUCTION.encode() in bytes(request.raw)]


async def test_cancelled_in_mid_answer_nothing_is_left_and_nothing_more_is_asked(agent: Agent, shell: Shell) -> None:
    """D2 D3 D4"""
    async with at_work(agent, shell, says(agent)) as here:
        await here.in_mid_answer()

        assert (await here.do("cancel", "last")).code == 0

        assert not here.processes(), "when the receipt is there, nobody is"
        assert here.asked()[-1].how == "disconnected"
        assert await here.ended() == 3
        assert await here.asks_nothing()


async def test_cancelled_in_a_command_nothing_is_left(agent: Agent, shell: Shell, command: str) -> None:
    """D2 D3 D4"""
    async with at_work(agent, shell, runs(agent, command)) as here:
        await here.in_command()

        assert (await here.do("cancel", "last")).code == 0

        assert not here.processes()
        assert await here.is_quiet()
        assert await here.ended() == 3
        assert await here.asks_nothing()


async def test_a_cap_holds_its_next_request_and_a_resume_grants_it(agent: Agent, shell: Shell, command: str) -> None:
    """D20"""
    async with at_work(agent, shell, runs(agent, command), "--turns", "1") as here:
        here.let_command_end()
        await asyncio.to_thread(here.started.until, "Turns(1)")
        assert len(here.provider.log) == 1

        while await is_capped(here):
            assert (await here.do("resume", "last")).code == 0

        assert await here.ended() == 0, here.started.text[-2000:]
        assert len(here.asked()) > 1


async def is_capped(here: Scene) -> bool:
    """Whether it comes to wait for the cap to be granted again, or else to its end."""
    while here.started.process.poll() is None:
        rows = (await here.do("ps", "--json")).json
        if rows and rows[0]["status"] == "paused":
            return True
    return False


async def test_nothing_is_left_after_a_kill_9_of_checkrein(agent: Agent, shell: Shell, command: str) -> None:
    """D4 D26"""
    async with at_work(agent, shell, runs(agent, command)) as here:
        await here.in_command()

        os.kill(here.started.process.pid, signal.SIGKILL)

        await here.none_left()
        assert await here.is_quiet()
        assert await here.asks_nothing()


async def test_nothing_passes_after_a_kill_9_of_the_gateway(agent: Agent, shell: Shell) -> None:
    """D4 D26: it lives in the process of `checkrein exec`."""
    async with at_work(agent, shell, says(agent)) as here:
        await here.in_mid_answer()

        os.kill(here.started.process.pid, signal.SIGKILL)

        await here.provider.until(lambda log: all(one.how for one in log), timeout=90)
        await here.none_left()
        assert await here.asks_nothing()


async def test_nothing_is_left_after_a_kill_9_of_the_agent_itself(agent: Agent, shell: Shell, command: str) -> None:
    """D4: its command neither, in whatever session that is."""
    async with at_work(agent, shell, runs(agent, command)) as here:
        await here.in_command()

        os.kill(here.leader(), signal.SIGKILL)

        assert await here.ended() == 137
        await here.none_left()
        assert await here.is_quiet()
        assert await here.asks_nothing()
