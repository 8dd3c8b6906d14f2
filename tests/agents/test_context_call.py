"""What is said of `ctx.call` means what it means with `@tool`, and a redirect reaches a loop of one's own."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from checkrein import Context, Interrupted, Runtime, agent
from checkrein.agents.context import as_permitted
from checkrein.core.enums import EffectState
from checkrein.core.events import CallStarted
from checkrein.errors import CallFailed, MisuseError
from tests.support.agent_tools import note
from tests.support.witness import until

pytestmark = pytest.mark.anyio


async def work(log: str) -> str:
    note(log, "begun")
    await asyncio.sleep(600)
    return "done"


async def look(log: str = "") -> str:
    return "seen"


def began(log: Path) -> bool:
    return log.exists() and "begun" in log.read_text()


@pytest.mark.parametrize(
    ("said", "listed"),
    [
        ({}, [("work", EffectState.IN_DOUBT)]),
        ({"effect": "unknown"}, [("work", EffectState.IN_DOUBT)]),
        ({"changes": "the stock"}, [("the stock", EffectState.IN_DOUBT)]),
        ({"effect": "none"}, []),
    ],
)
async def test_what_a_stopped_call_may_have_done_is_said_as_of_a_tool(
    said: dict[str, Any], listed: list[Any], tmp_path: Path
) -> None:
    log = tmp_path / "log"

    @agent
    async def program(ctx: Context, goal: str) -> Any:
        return await ctx.call(work, str(log), **said)

    async with Runtime("memory:") as runtime:
        run = await runtime.start(program, "Work.")
        await until(lambda: began(log))
        receipt = await run.cancel()

    assert [(effect.what, effect.now) for effect in receipt.effects] == listed


@pytest.mark.parametrize(
    ("said", "allowed"),
    [
        (
            {"effect": "a mail"},
            "it may be 'unknown', 'none', 'reversible' or 'irreversible'. What it changes is said in",
        ),
        ({"approval": "yes"}, "it may be 'block', 'queue', True (block) or False"),
        ({"on_pause": "stop"}, "it may be 'finish', 'abort' or 'hold'"),
        ({"timeout": "5"}, "a number of seconds above 0"),
        ({"idempotent": 1}, "it may be True or False"),
    ],
)
async def test_a_word_that_means_nothing_is_refused(said: dict[str, Any], allowed: str) -> None:
    refused: list[str] = []

    @agent
    async def program(ctx: Context, goal: str) -> None:
        try:
            await ctx.call(look, **said)
        except MisuseError as error:
            refused.append(error.message)

    async with Runtime("memory:") as runtime:
        await (await runtime.start(program, "Look.")).result()

    assert len(refused) == 1
    assert allowed in refused[0]


async def test_a_call_that_cannot_be_undone_asks_first() -> None:
    @agent
    async def program(ctx: Context, goal: str) -> str:
        try:
            return str(await ctx.call(look, effect="irreversible", changes="the post"))
        except CallFailed as failed:
            return failed.error

    async with Runtime("memory:") as runtime:
        run = await runtime.start(program, "Look.")
        await until_waiting(run)
        (call,) = (await run.state()).approvals
        await run.deny(call, note="not today")

        assert await run.result() == "A person declined this. They said: not today"
        assert not [one for one in await runtime.journal.read(run.id) if isinstance(one.event, CallStarted)]


async def until_waiting(run: Any) -> None:
    while not (await run.state()).waiting():
        await asyncio.sleep(0.01)


# -- a loop of one's own is told what a person wants instead


async def test_a_redirect_reaches_a_program_without_a_model_and_again_when_it_is_played_again(
    store: str, tmp_path: Path
) -> None:
    log, told = tmp_path / "log", list[str | None]()

    @agent(name="loop")
    async def program(ctx: Context, goal: str) -> str:
        try:
            await ctx.call(work, str(log), effect="none")
        except Interrupted as interrupted:
            told.append(interrupted.instruction)
        await ctx.call(work, str(log), name="rest", effect="none")
        return "done"

    async with Runtime(store) as runtime:
        run = await runtime.start(program, "Work.")
        await until(lambda: began(log))
        await run.redirect("skip the shell", wait=0)
        await until(lambda: log.read_text().count("begun") == 2)

    assert told == ["skip the shell"]

    async with Runtime(store, agents=[program]) as runtime:
        again = await runtime.get(run.id)
        await until(lambda: len(told) == 2)
        await again.cancel()

    assert told == ["skip the shell"] * 2


async def test_a_call_that_waited_for_approval_is_told_too(tmp_path: Path) -> None:
    told: list[str | None] = []

    @agent
    async def program(ctx: Context, goal: str) -> None:
        try:
            await ctx.call(look, approval=True)
        except Interrupted as interrupted:
            told.append(interrupted.instruction)

    async with Runtime("memory:") as runtime:
        run = await runtime.start(program, "Look.")
        await until_waiting(run)
        await run.redirect("leave it", wait=0)
        await run.result()

    assert told == ["leave it"]


async def test_an_abort_of_one_call_wants_nothing_instead(tmp_path: Path) -> None:
    log, told = tmp_path / "log", list[Any]()

    @agent
    async def program(ctx: Context, goal: str) -> None:
        try:
            await ctx.call(work, str(log))
        except Interrupted as interrupted:
            told.append((interrupted.instruction, interrupted.carried))

    async with Runtime("memory:") as runtime:
        run = await runtime.start(program, "Work.")
        await until(lambda: began(log))
        await run.abort("c1")
        await run.result()

    assert told == [(None, None)]


# -- what was permitted is what is done


async def test_an_argument_that_is_another_in_the_permit_is_given_so_and_the_rest_as_it_is() -> None:
    class Session:
        """Something that JSON cannot hold."""

    async def pay(session: Session, amount: int, *names: str, **more: Any) -> None: ...

    session = Session()
    bound = inspect.signature(pay).bind(session, 40, "a", note="x")
    same = b'{"session": "<Session>", "amount": 40, "names": ["a"], "more": {"note": "x"}}'
    other = b'{"session": "<Session>", "amount": 4, "names": ["a"], "more": {"note": "x"}}'

    assert (as_permitted(pay, bound, same, same).args, as_permitted(pay, bound, same, same).kwargs) == (
        (session, 40, "a"),
        {"note": "x"},
    )
    assert as_permitted(pay, bound, same, other).args == (session, 4, "a")
    assert bound.args == (session, 40, "a")
