"""How each kind of call is really stopped: one test for each line of the table in the design, on whole runs.

The witness is the tool's own log and the process table: nothing ticks after the moment at which the receipt says that
the calls had stopped. (Sub-runs, and a driver wedged in user code, have tests of their own.)
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from checkrein import Agent, Receipt, Runtime, tool
from checkrein.agents import asking
from checkrein.core.words import EffectState, Outcome, Status
from checkrein.errors import NotImportable
from checkrein.models import Request, ScriptedModel
from checkrein.models.port import Delta, TextDelta
from tests.control.abort_tools import draft
from tests.control.scene import (
    agent,
    calls,
    effects,
    gone,
    late,
    ledger,
    model,
    nothing_ticks_after,
    outcomes,
    program,
    result,
    settled,
    stopped_at,
)
from tests.runtime import tools
from tests.runtime.tools import ASYNC_CHILDREN, EVERYTHING
from tests.runtime.witness import Witness, is_alive, note, until

pytestmark = pytest.mark.anyio


async def cancel_once_it_wrote(
    runtime: Runtime, witness: Witness, used: Any, *words: str, times: int = 2, **arguments: Any
) -> Receipt:
    """Let an agent use one tool, cancel the run when the tool has written these words, and give back the receipt."""
    name = getattr(used, "name", None) or used.__name__
    churn = agent([calls((name, {"log": witness.log, **arguments})), "never said"], [used])
    run = await runtime.start(churn, "Go.")
    await witness.saw(*words, times=times)

    receipt = settled(await run.cancel(reason="enough"))

    assert receipt.status is Status.CANCELLED
    assert model(churn).requests == 1, "nothing is asked after the stop"
    return receipt


# -- model stream


async def test_a_model_stream_is_closed_and_nothing_is_forwarded_after_it(runtime: Runtime) -> None:
    """D2 D4 D12: by the model's own count not one more token is made, and the listener hears none."""
    churn = agent(["word " * 2000], [], pace=200)
    heard: list[float] = []
    run = await runtime.start(churn, "Talk.")
    runtime.listen(run.id, lambda chunk: heard.append(time.time()))
    await until(lambda: len(heard) >= 5)

    receipt = settled(await run.cancel())
    streamed, told = model(churn).tokens, len(heard)
    await asyncio.sleep(0.2)

    assert outcomes(receipt) == {"scripted": Outcome.ABORTED}
    assert receipt.tokens_after_stop == 0
    assert receipt.partial.chars >= 25
    assert (model(churn).tokens, len(heard)) == (streamed, told)
    assert (model(churn).live, model(churn).stopped) == (0, 1)
    assert max(heard) <= await stopped_at(runtime, receipt)


class Deaf(ScriptedModel):
    """A provider's library that swallows cancellation and goes on streaming."""

    def __init__(self, *, streams: bool) -> None:
        super().__init__(["never played"])
        self._streams = streams

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        yield TextDelta("word ")
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01 if self._streams else 3600)
            if self._streams:
                yield TextDelta("word ")


async def test_what_a_deaf_stream_still_sends_is_counted_and_not_forwarded(runtime: Runtime) -> None:
    """D12 D15: the stop does not wait for a stream that goes on; what came late is measured, never assumed."""
    churn = Agent("churn", model=Deaf(streams=True))
    heard: list[str] = []
    run = await runtime.start(churn, "Talk.")
    runtime.listen(run.id, lambda chunk: heard.append(chunk.text))
    await until(lambda: len(heard) >= 3)

    receipt = settled(await run.cancel())
    told = len(heard)
    await asyncio.sleep(0.1)

    assert receipt.status is Status.CANCELLED
    assert receipt.tokens_after_stop == 1
    assert receipt.partial.chars == 5 * told
    assert len(heard) == told


async def test_a_stream_that_cannot_be_closed_is_let_go_and_the_receipt_says_so(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D15 D16: the run is cancelled all the same, and nobody claims that the provider has stopped."""
    monkeypatch.setattr(asking, "LET_GO_SECONDS", 0.6)
    churn = Agent("churn", model=Deaf(streams=False))
    heard: list[str] = []
    run = await runtime.start(churn, "Talk.")
    runtime.listen(run.id, lambda chunk: heard.append(chunk.text))
    await until(lambda: heard)

    receipt = settled(await run.cancel())

    assert receipt.status is Status.CANCELLED
    assert outcomes(receipt) == {"scripted": Outcome.DETACHED}
    assert receipt.timing_ms.calls_stopped is None


# -- async def tool


async def test_an_async_tool_is_cancelled_where_it_waits(runtime: Runtime, witness: Witness) -> None:
    """D2 D26"""
    receipt = await cancel_once_it_wrote(runtime, witness, tools.tick_async, "tick")

    assert outcomes(receipt) == {"tick_async": Outcome.ABORTED}
    assert effects(receipt) == {"tick_async": EffectState.IN_DOUBT}, "interrupted, may have partly happened"
    await nothing_ticks_after(witness, await stopped_at(runtime, receipt))


async def test_an_async_tool_that_swallows_cancellation_for_ever_is_detached_without_a_busy_loop(
    runtime: Runtime, witness: Witness
) -> None:
    """D2 D15: what could not be stopped is said to be so, and costs nothing meanwhile."""
    process = psutil.Process()
    before, began = process.cpu_times(), time.monotonic()

    receipt = await cancel_once_it_wrote(runtime, witness, tools.swallow_async, "begun", times=1)

    after, took = process.cpu_times(), time.monotonic() - began
    assert outcomes(receipt) == {"swallow_async": Outcome.DETACHED}
    assert effects(receipt) == {"swallow_async": EffectState.IN_DOUBT}
    assert receipt.timing_ms.calls_stopped is None, "nobody knows when it will have stopped"
    assert took > 1.5, "it was given its grace"
    assert (after.user + after.system) - (before.user + before.system) < took / 2
    assert len(witness.lines("caught")) < 20


async def test_tasks_that_an_async_tool_has_started_end_with_it(runtime: Runtime, witness: Witness) -> None:
    """D2: fire and forget is not an escape."""
    receipt = await cancel_once_it_wrote(runtime, witness, tools.leave_tasks, "task", "future", "deeper", waits=True)

    assert outcomes(receipt) == {"leave_tasks": Outcome.ABORTED}
    await nothing_ticks_after(witness, await stopped_at(runtime, receipt))


async def test_tasks_that_an_async_tool_leaves_behind_do_not_outlive_its_call(
    runtime: Runtime, witness: Witness
) -> None:
    """D4: also without any stop."""
    churn = agent([calls(("leave_tasks", {"log": witness.log, "waits": False})), "Done."], [tools.leave_tasks])

    run = await runtime.start(churn, "Go.")

    assert await result(run) == "Done."
    assert witness.lines("task")
    assert await witness.is_quiet()


# -- plain def tool


@pytest.mark.parametrize(
    ("used", "word"), [(tools.tick, "tick"), (tools.loop_for_ever, "begun")], ids=["sleeping", "busy loop"]
)
async def test_a_def_tool_is_killed_in_its_own_process(
    runtime: Runtime, witness: Witness, used: Any, word: str
) -> None:
    """D2 D4 D26"""
    receipt = await cancel_once_it_wrote(runtime, witness, used, word, times=1)

    assert outcomes(receipt) == {used.__name__: Outcome.KILLED}
    assert effects(receipt) == {used.__name__: EffectState.IN_DOUBT}
    assert {line.pid for line in witness.lines()}.isdisjoint({os.getpid()})
    await nothing_ticks_after(witness, await stopped_at(runtime, receipt))
    assert (receipt.timing_ms.calls_stopped or 0) < 1500, "it heeds SIGTERM, so it need not be given the whole grace"


async def test_def_tools_that_are_deaf_to_sigterm_are_killed_after_the_grace(runtime: Runtime, tmp_path: Path) -> None:
    """D2 D4 D16 D26: one is stuck in C code, one ignores the signal, one catches whatever is raised in it."""
    deaf = {tools.crunch: "begun", tools.ignore_sigterm: "tick", tools.swallow: "tick"}
    logs = {used: Witness(tmp_path / used.__name__) for used in deaf}
    named = [(used.__name__, {"log": log.log}) for used, log in logs.items()]
    run = await runtime.start(agent([calls(*named), "never"], list(deaf)), "Go.")
    for used, word in deaf.items():
        await logs[used].saw(word)
    await until_it_has_computed_for(0.2, logs[tools.crunch].lines()[0].pid)

    receipt = settled(await run.cancel())

    assert set(outcomes(receipt).values()) == {Outcome.KILLED}
    assert len(receipt.calls) == 3
    assert all(call.ms > 1500 for call in receipt.calls), "each was given its grace"
    for log in logs.values():
        await nothing_ticks_after(log, await stopped_at(runtime, receipt))


async def until_it_has_computed_for(seconds: float, pid: int) -> None:
    """By the process table: it is past its first line, and really at it."""
    process = psutil.Process(pid)
    before = process.cpu_times().user
    await until(lambda: process.cpu_times().user >= before + seconds)


IN_MAIN = """
import asyncio, sys, time
from checkrein import Agent, Runtime, tool
from checkrein.models import ScriptedModel, Turn
from tests.control.scene import nothing_ticks_after, outcomes, stopped_at
from tests.runtime.witness import Witness, note

def put_back(call):
    note(call.arguments["log"], "put back " + call.result)

@tool(undo=put_back)
def take(log: str) -> str:
    note(log, "taken")
    return "the lock"

def tick(log: str):
    while True:
        note(log, "tick")
        time.sleep(0.02)

async def main(log, store):
    witness = Witness(log)
    turns = [Turn(calls=[("take", {"log": log})]), Turn(calls=[("tick", {"log": log})])]
    agent = Agent("churn", model=ScriptedModel(turns), tools=[take, tick])
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "Go.")
        await witness.saw("tick", times=2)
        receipt = await run.cancel()
        print(receipt.status, outcomes(receipt)["tick"], receipt.effects[0].now, flush=True)
        ticks = [line.at for line in witness.lines("tick")]
        assert max(ticks) <= await stopped_at(runtime, receipt) + 0.005
        assert await witness.is_quiet()

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_def_tool_of_a_script_is_killed_and_undone_too(
    tmp_path: Path, store: str, witness: Witness, capfd: pytest.CaptureFixture[str]
) -> None:
    """D2 D33: a tool, and its undo, may be defined in `__main__`."""
    async with program(tmp_path, IN_MAIN, witness.log, store) as process:
        status = await asyncio.to_thread(process.wait, 30)

    assert capfd.readouterr().out.split() == ["cancelled", "killed", "undone"]
    assert status == 0
    assert witness.words()[0] == "taken"
    assert witness.words()[-1] == "put back the lock"


# -- what a worker cannot import


class Mailer:
    def send(self, to: str) -> str:
        return to


def make_closure() -> Any:
    seen: list[str] = []

    def remember(word: str) -> str:
        seen.append(word)
        return word

    return remember


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (make_closure(), "it is a closure"),
        (Mailer().send, "it is a bound method"),
        (lambda word: word, "it is a lambda"),
        (tool(effect="none")(make_closure()), "it is a closure"),
    ],
    ids=["closure", "bound method", "lambda", "decorated closure"],
)
def test_a_def_tool_that_a_worker_cannot_import_is_refused_when_the_agent_is_built(function: Any, reason: str) -> None:
    """D2: better no agent than one with a tool that cannot be stopped. The sentence says what to do."""
    with pytest.raises(NotImportable) as refused:
        Agent("churn", model=ScriptedModel([]), tools=[function])

    assert reason in refused.value.message
    assert 'isolation="thread"' in refused.value.message
    assert refused.value.code == "not_importable"


def test_an_undo_that_a_worker_cannot_import_is_refused_when_the_agent_is_built() -> None:
    """D33: not at the moment when it is needed."""

    def discard(call: Any) -> None:
        raise AssertionError("never called")

    with pytest.raises(NotImportable) as refused:
        Agent("churn", model=ScriptedModel([]), tools=[tool(undo=discard)(tools.add)])

    assert "discard" in refused.value.function


async def test_a_closure_is_welcome_in_a_thread_and_as_an_async_def(runtime: Runtime) -> None:
    async def double(n: int) -> int:
        return 2 * n

    remember = tool(isolation="thread", name="remember")(make_closure())
    churn = agent([calls(("remember", {"word": "yes"}), ("double", {"n": 2})), "Done."], [remember, double])

    run = await runtime.start(churn, "Go.")

    assert await result(run) == "Done."


# -- def tool in a thread


async def test_a_tool_in_a_thread_stops_at_its_next_checkpoint(runtime: Runtime, witness: Witness) -> None:
    """D2"""
    used = tool(isolation="thread")(tools.tick_at_checkpoints)

    receipt = await cancel_once_it_wrote(runtime, witness, used, "tick")

    assert outcomes(receipt) == {"tick_at_checkpoints": Outcome.ABORTED}
    assert {line.pid for line in witness.lines()} == {os.getpid()}
    await nothing_ticks_after(witness, await stopped_at(runtime, receipt))


async def test_a_tool_in_a_thread_that_is_stuck_is_detached_and_its_effect_in_doubt(
    runtime: Runtime, witness: Witness
) -> None:
    """D15: a thread in a blocking call cannot be stopped, and the receipt does not pretend."""
    used = tool(isolation="thread")(tools.sleep)

    receipt = await cancel_once_it_wrote(runtime, witness, used, "begun", times=1, seconds=12)

    assert outcomes(receipt) == {"sleep": Outcome.DETACHED}
    assert effects(receipt) == {"sleep": EffectState.IN_DOUBT}
    assert receipt.timing_ms.calls_stopped is None
    assert witness.words() == ["begun"]


async def test_what_a_detached_tool_did_is_undone_once_it_has_ended(store: str, witness: Witness) -> None:
    """D33: not before, because until then it may still do it."""
    used = tool(isolation="thread", undo=discard_slept)(tools.sleep)
    async with Runtime(store, settle_seconds=20) as runtime:
        receipt = await cancel_once_it_wrote(runtime, witness, used, "begun", times=1, seconds=3)

    assert outcomes(receipt) == {"sleep": Outcome.DETACHED}
    assert effects(receipt) == {"sleep": EffectState.UNDONE}
    begun, discarded = witness.lines()
    assert (begun.word, discarded.word) == ("begun", "discarded")
    assert discarded.at - begun.at >= 3


async def discard_slept(call: Any) -> None:
    note(call.arguments["log"], "discarded")


# -- child processes


@pytest.mark.parametrize("stubborn", [False, True], ids=["", "ignoring SIGTERM"])
async def test_the_whole_family_of_a_def_tool_is_killed(runtime: Runtime, witness: Witness, stubborn: bool) -> None:
    """D2 D4: a child, a grandchild, one in a session of its own, a daemon by double fork, and a plain fork."""
    receipt = await cancel_once_it_wrote(runtime, witness, tools.start_everything, *EVERYTHING, stubborn=stubborn)

    assert outcomes(receipt) == {"start_everything": Outcome.KILLED}
    await nothing_ticks_after(witness, await stopped_at(runtime, receipt))


async def test_processes_that_an_async_tool_has_started_are_killed(runtime: Runtime, witness: Witness) -> None:
    """D2 D4: started with plain `subprocess`, with asyncio, in a shell, in a thread, and in sessions of their own."""
    receipt = await cancel_once_it_wrote(runtime, witness, tools.start_children_async, *ASYNC_CHILDREN)

    assert outcomes(receipt) == {"start_children_async": Outcome.ABORTED}
    await nothing_ticks_after(witness, await stopped_at(runtime, receipt))


# -- atomic section


@pytest.mark.parametrize("is_async", [True, False], ids=["async def", "def"])
async def test_a_stop_waits_for_a_shielded_section_and_then_stops_the_tool(
    runtime: Runtime, witness: Witness, is_async: bool
) -> None:
    """D1: nothing is left half-written."""
    used = tools.shielded_async if is_async else tools.shielded

    receipt = await cancel_once_it_wrote(
        runtime, witness, used, "entered", times=1, seconds=10, lasts=0.8, then_sleeps=True
    )

    assert outcomes(receipt) == {used.__name__: Outcome.ABORTED if is_async else Outcome.KILLED}
    assert witness.words() == ["entered", "left"]
    await nothing_ticks_after(witness, await stopped_at(runtime, receipt))


async def test_a_tool_that_ends_with_its_shielded_section_has_finished(runtime: Runtime, witness: Witness) -> None:
    """D1 D7: and the receipt says so."""
    receipt = await cancel_once_it_wrote(
        runtime, witness, tools.shielded_async, "entered", times=1, seconds=10, lasts=0.6, then_sleeps=False
    )

    assert outcomes(receipt) == {"shielded_async": Outcome.COMPLETED}
    assert effects(receipt) == {"shielded_async": EffectState.LEFT}, "it is done, and has no undo"
    assert witness.words() == ["entered", "left"]


async def test_a_shield_holds_no_longer_than_it_said(runtime: Runtime, witness: Witness) -> None:
    """D16: a section cannot keep a person from stopping."""
    receipt = await cancel_once_it_wrote(
        runtime, witness, tools.shielded_async, "entered", times=1, seconds=0.3, lasts=60, then_sleeps=False
    )

    assert outcomes(receipt) == {"shielded_async": Outcome.ABORTED}
    assert witness.words() == ["entered"]


async def test_while_a_verb_waits_for_a_shielded_section_it_is_in_force(runtime: Runtime, witness: Witness) -> None:
    """D3 D18: the receipt is not there yet, and says what it waits for."""
    arguments = {"log": witness.log, "seconds": 5, "lasts": 1.0, "then_sleeps": True}
    churn = agent([calls(("shielded_async", arguments)), "never said"], [tools.shielded_async])
    run = await runtime.start(churn, "Go.")
    await witness.saw("entered")

    settling = await run.cancel(wait=0.1)

    assert not isinstance(settling, Receipt)
    assert settling.status == Status.CANCELLING
    assert "shielded_async" in settling.waiting_for
    receipt = settled(await run.cancel())
    assert witness.words() == ["entered", "left"]
    assert receipt.status is Status.CANCELLED


# -- several at once


async def test_everything_in_flight_is_stopped_at_the_same_time(runtime: Runtime, witness: Witness) -> None:
    """D2: one receipt for calls of every kind, and the deaf one does not keep the others alive."""
    log = {"log": witness.log}
    churn = agent(
        [
            calls(("draft", {**log, "seconds": 60}), ("tick", log), ("tick_async", log), ("ignore_sigterm", log)),
            "never",
        ],
        [draft, tools.tick, tools.tick_async, tools.ignore_sigterm],
    )
    run = await runtime.start(churn, "Go.")
    await witness.saw("draft")
    await until(lambda: len({line.pid for line in witness.lines("tick")}) == 3)

    receipt = settled(await run.cancel())

    assert outcomes(receipt) == {
        "draft": Outcome.ABORTED,
        "tick": Outcome.KILLED,
        "tick_async": Outcome.ABORTED,
        "ignore_sigterm": Outcome.KILLED,
    }
    quick = [call.ms for call in receipt.calls if call.name != "ignore_sigterm"]
    assert max(quick) < 1500
    assert witness.words().count("undo draft") == 1
    assert late_ticks(witness, await stopped_at(runtime, receipt)) == []
    assert await ledger(runtime, run) == {
        "draft": EffectState.UNDONE,
        "tick": EffectState.IN_DOUBT,
        "tick_async": EffectState.IN_DOUBT,
        "ignore_sigterm": EffectState.IN_DOUBT,
    }


def late_ticks(witness: Witness, moment: float) -> list[str]:
    return [line.word for line in late(witness, moment) if line.word == "tick"]


# -- the runtime itself


KILLED = """
import asyncio, sys
from checkrein import Agent, Runtime
from checkrein.models import ScriptedModel, Turn
from tests.runtime.tools import start_children_async, start_everything

async def main(log, store):
    calls = [("start_children_async", {"log": log}), ("start_everything", {"log": log})]
    tools = [start_children_async, start_everything]
    agent = Agent("churn", model=ScriptedModel([Turn(calls=calls)]), tools=tools)
    async with Runtime(store, agents=[agent]) as runtime:
        await (await runtime.start(agent, "Go.")).result()

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
"""


async def test_no_process_of_any_tool_outlives_a_kill_9_of_the_runtime(
    tmp_path: Path, store: str, witness: Witness
) -> None:
    """D2 D4 D26: children of async tools, daemons and those in sessions of their own included."""
    async with program(tmp_path, KILLED, witness.log, store):
        await witness.saw(*ASYNC_CHILDREN, *EVERYTHING)
    await gone(line.pid for line in witness.lines())
    assert await witness.is_quiet()

    async with Runtime(store) as second:
        (row,) = await second.runs()
        run = await second.get(row.id)
        receipt = settled(await run.cancel())

    assert receipt.status is Status.CANCELLED
    assert outcomes(receipt) == {"start_children_async": Outcome.IN_DOUBT, "start_everything": Outcome.IN_DOUBT}
    assert set(effects(receipt).values()) == {EffectState.IN_DOUBT}


def test_the_tools_of_these_tests_are_gone() -> None:
    """D4: after all of the above no process carries a mark of ours any more."""
    assert not [child for child in psutil.Process().children(recursive=True) if _is_tool(child)]


def _is_tool(process: psutil.Process) -> bool:
    try:
        return is_alive(process.pid) and "CHECKREIN_CALL" in process.environ()
    except psutil.Error:
        return False
