"""What a program holds in its hands: a runtime that is opened and closed by hand, runs that can be looked at."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from checkrein import Agent, Context, Receipt, RunCancelled, RunFailed, Runtime, RunView, Settling, agent, tool
from checkrein.core.enums import Status
from checkrein.core.events import CallFinished, RunFinished
from checkrein.errors import MisuseError
from checkrein.models import ScriptedModel, Turn
from tests.support.agent_tools import note
from tests.support.prompt import typed_at_prompt
from tests.support.witness import until


@tool(effect="none")
async def look(n: int) -> list[int]:
    return [n, n + 1]


@tool(effect="none")
async def wait(log: str) -> None:
    note(log, "begun")
    await asyncio.sleep(600)


def looker() -> Agent[str]:
    return Agent("looker", model=ScriptedModel([Turn("Now.", calls=[("look", {"n": 4})]), "Seen."]), tools=[look])


def waiter(log: str) -> Agent[str]:
    return Agent("waiter", model=ScriptedModel([Turn("Now.", calls=[("wait", {"log": log})]), "Over."]), tools=[wait])


# -- looking at a run


@pytest.mark.anyio
async def test_a_run_can_be_looked_at_as_a_person_sees_it(runtime: Runtime) -> None:
    run = await runtime.start(looker(), "Look.")
    assert repr(run) == f"<Run {run.id} of looker>"
    await run.result()

    view = await run.view()

    assert isinstance(view, RunView)
    assert (view.id, view.agent, view.status, view.result) == (run.id, "looker", Status.COMPLETED, "Seen.")
    assert [(call.name, call.arguments, call.result) for call in view.calls if call.kind == "tool"] == [
        ("look", {"n": 4}, [4, 5])
    ]
    assert await run.status() is Status.COMPLETED
    assert repr(run) == f"<Run {run.id} of looker, completed when last looked at>"
    assert repr(await runtime.get(run.id)) == repr(run)


@pytest.mark.anyio
async def test_events_have_a_type_and_values(runtime: Runtime) -> None:
    run = await runtime.start(looker(), "Look.")

    events = [event async for event in run.events()]

    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert (events[0].type, events[0].data["goal"]) == ("run.created", "Look.")
    (began,) = [event for event in events if event.type == "call.started" and event.data["name"] == "look"]
    (ended,) = [event for event in events if event.type == "call.finished" and event.call == began.call]
    assert began.arguments == {"n": 4}
    assert ended.result == [4, 5]
    assert isinstance(ended.event, CallFinished)
    assert (events[-1].type, events[-1].result) == ("run.finished", "Seen.")
    assert isinstance(events[-1].event, RunFinished)
    assert began.at <= ended.at
    assert repr(ended).startswith(f"<{ended.seq} call.finished call='{ended.call}', outcome='completed', result=[4, 5]")


@pytest.mark.anyio
async def test_events_come_after_a_number(runtime: Runtime) -> None:
    run = await runtime.start(looker(), "Look.")
    await run.result()

    after = [event.seq async for event in run.events(after=2)]

    assert after[:2] == [3, 4]


# -- how it ended


@pytest.mark.anyio
async def test_a_run_that_a_person_cancelled_did_not_fail(runtime: Runtime, log: str) -> None:
    run = await runtime.start(waiter(log), "Wait.")
    await until(lambda: Path(log).exists())
    await run.cancel()

    with pytest.raises(RunCancelled) as cancelled:
        await run.result()

    assert isinstance(cancelled.value, RunFailed), "who catches that, catches both"
    assert (cancelled.value.status, cancelled.value.code, cancelled.value.run) == ("cancelled", "run_cancelled", run.id)


@pytest.mark.anyio
async def test_a_run_that_failed_was_not_cancelled(runtime: Runtime) -> None:
    @agent
    async def breaks(ctx: Context, goal: str) -> None:
        raise ZeroDivisionError

    run = await runtime.start(breaks, "Try.")

    with pytest.raises(RunFailed) as failed:
        await run.result()

    assert not isinstance(failed.value, RunCancelled)


@pytest.mark.anyio
async def test_what_has_not_settled_can_be_read_like_a_receipt(runtime: Runtime, log: str) -> None:
    run = await runtime.start(waiter(log), "Wait.")
    await until(lambda: Path(log).exists())

    paused = await run.pause(wait=0.01, reason="look", by="ann")
    receipt = await run.cancel()

    assert isinstance(paused, Settling)
    assert not paused.is_settled
    assert "wait" in paused.waiting_for
    assert (paused.status, paused.by, paused.reason) == ("pausing", "ann", "look")
    assert isinstance(receipt, Receipt)
    assert receipt.is_settled
    assert receipt.waiting_for == ""
    fields = {field.name for field in msgspec.structs.fields(Receipt)}
    assert fields <= {field.name for field in msgspec.structs.fields(Settling)}


# -- opened and closed by hand


@pytest.mark.anyio
async def test_a_runtime_is_opened_and_closed_without_a_block(store: str, log: str) -> None:
    runtime = Runtime(store)

    opened = await runtime.open()
    run = await opened.start(waiter(log), "Wait.")
    await until(lambda: Path(log).exists())
    await runtime.aclose()
    await runtime.aclose()

    assert opened is runtime
    assert not runtime.is_open
    with pytest.raises(MisuseError, match=r"not open.*await runtime\.open\(\)"):
        await runtime.get(run.id)

    await runtime.open()
    with pytest.raises(MisuseError, match="open already"):
        await runtime.open()
    await (await runtime.get(run.id)).cancel()
    await runtime.aclose()


TYPED = """
from checkrein import Agent, Runtime, tool
from checkrein.models import ScriptedModel, Turn

@tool(effect="none")
async def look(n: int) -> int:
    return n + 1

@tool(effect="none", isolation="thread")
def think(n: int) -> int:
    return n * 2

calls = [("look", {"n": 1}), ("think", {"n": 4})]
agent = Agent("prompt", model=ScriptedModel([Turn("", calls=calls), "Seen."]), tools=[look, think])
runtime = await Runtime("memory:").open()
run = await runtime.start(agent, "Look.")
print("result:", await run.result())
print("calls:", [(call.name, call.result) for call in (await run.view()).calls if call.kind == "tool"])
await runtime.aclose()
"""


def test_a_runtime_lives_across_what_is_typed_at_an_asyncio_prompt(tmp_path: Path) -> None:
    done = typed_at_prompt(TYPED, tmp_path)

    assert "result: Seen." in done.stdout, done.stderr
    assert "calls: [('look', 2), ('think', 8)]" in done.stdout
