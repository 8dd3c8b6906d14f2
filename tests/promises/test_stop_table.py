"""Every cell of the stop table, on whole runs; and how each kind of call is really stopped, one test for each line.

The witness is the log of the tool or of the model and the process table: nothing ticks after the moment at which the
receipt says that the calls had stopped. (A driver wedged in user code, and MCP servers, have tests of their own.)
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

from checkrein import Agent, Receipt, Run, Runtime, tool
from checkrein.calls import model as asking
from checkrein.control.halt import Halting
from checkrein.core.enums import CallKind, EffectState, OnPause, Outcome, Status, When
from checkrein.core.events import CallFinished, StopDelayed, VerbAccepted
from checkrein.core.transitions import STOPS, Fate, Stop, Stoppable
from checkrein.errors import NotImportable, Refused
from checkrein.models import Request, ScriptedModel
from checkrein.models.base import Delta, TextDelta
from checkrein.processes.identity import this_process
from tests.support import stoppable, tools
from tests.support.abort_tools import draft
from tests.support.blocked import Blocked
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.runs import (
    agent,
    calls,
    effects,
    events,
    gone,
    in_flight,
    late,
    ledger,
    let_go,
    model,
    nothing_ticks_after,
    outcomes,
    program,
    result,
    settled,
    stopped_at,
    until_event,
    until_let,
    until_state,
)
from tests.support.text import words
from tests.support.tools import ASYNC_CHILDREN, EVERYTHING
from tests.support.witness import Witness, is_alive, note, until

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


# -- the table, cell by cell: what each verb does to each kind of call


class Scene:
    """A run with one call in flight that ticks in the log of the witness until it is let go."""

    def __init__(self, runtime: Runtime, witness: Witness) -> None:
        self.runtime, self.witness = runtime, witness
        self.file = f"{witness.log}.go"
        self.asking: asyncio.Task[object] | None = None

    async def begin(self, row: Stoppable) -> None:
        kind, on_pause = row
        log = {"log": self.witness.log, "file": self.file}
        match kind:
            case CallKind.MODEL:
                await self._start(self._provider())
            case CallKind.TOOL:
                rules = {None: stoppable.finishes, OnPause.ABORT: stoppable.aborts, OnPause.HOLD: stoppable.holds}
                used = rules.get(on_pause, stoppable.finishes)
                await self._start(self._provider(used.name, log), used)
            case CallKind.RUN:
                helper = Agent("helper", model=self._provider("holds", log), tools=[stoppable.holds])
                await self._start(self._provider("helper", {"goal": "Help."}), helper)
            case CallKind.PROCESS:
                script = stoppable.script(self.witness.log, self.file)
                self.run = await self.runtime.start(stoppable.Shell(script), "Go.")
            case CallKind.ASK:
                await self._start(self._provider("idle"), stoppable.idle)
                await in_flight(self.run, "idle")
                self.asking = asyncio.create_task(self._ask())
            case CallKind.UNDO:
                await self._start(self._provider("draft", log), stoppable.draft)
                await self.witness.saw("draft")
                await self.run.redirect("Elsewhere.", wait=0)
        await self.witness.saw("tick", times=2)
        state = await self.run.state()
        (self.call,) = [call for call, live in state.live.items() if live.kind is kind and live.name != "idle"]

    def _provider(self, name: str | None = None, arguments: Any = None) -> stoppable.Provider:
        return stoppable.Provider(self.witness.log, self.file, name, arguments)

    async def _start(self, provider: stoppable.Provider, *used: Any) -> None:
        self.run = await self.runtime.start(Agent("churn", model=provider, tools=used), "Go.")

    async def _ask(self) -> None:
        with suppress(Refused):
            await self.run.ask(stoppable.QUESTION)

    async def give(self, stop: Stop) -> Receipt:
        match stop:
            case Stop.PAUSE:
                return settled(await self.run.pause(wait=PATIENCE_SECONDS))
            case Stop.REDIRECT_NOW | Stop.REDIRECT_NEXT_STEP:
                when = When.NOW if stop is Stop.REDIRECT_NOW else When.NEXT_STEP
                return settled(await self.run.redirect("Only Q3.", when=when, wait=PATIENCE_SECONDS))
            case Stop.CANCEL:
                return settled(await self.run.cancel())
            case Stop.ABORT:
                return settled(await self.run.abort(self.call))
            case Stop.HALT:
                halted = await Halting(self.runtime.journal, this_process()).halt("run", self.run.id, by="operator")
                return next(receipt for receipt in halted.receipts if receipt.run == self.run.id)

    def let_go(self) -> None:
        Path(self.file).touch()

    async def end(self) -> None:
        self.let_go()
        with suppress(Refused):
            await self.run.cancel(undo="none")
        if self.asking is not None:
            await self.asking

    async def still_ticks(self) -> None:
        await self.witness.saw("tick", times=len(self.witness.lines("tick")) + 2)

    async def is_quiet(self) -> bool:
        before = self.witness.lines("tick")
        await asyncio.sleep(0.25)
        return self.witness.lines("tick") == before


async def is_stopped(scene: Scene, stop: Stop) -> None:
    """Once the receipt is there it ticks no more, and it never came to its end."""
    await scene.give(stop)
    if stop is Stop.HALT:  # the operator does not wait for the former owner
        await until_quiet(scene)
    assert await scene.is_quiet()
    scene.let_go()
    assert await scene.is_quiet()
    assert not scene.witness.lines("ended")


async def until_quiet(scene: Scene) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await scene.is_quiet():
            pass


async def is_held(scene: Scene, stop: Stop) -> None:
    """Once the receipt is there it ticks no more; after a resume the same process goes on where it was, to its end."""
    await scene.give(stop)
    assert await scene.is_quiet()
    scene_before = {line.pid for line in scene.witness.lines("tick")}
    await scene.run.resume()
    await scene.still_ticks()
    scene.let_go()
    await scene.witness.saw("ended")
    assert len(scene.witness.lines("begun")) == 1
    assert {line.pid for line in scene.witness.lines("tick")} == scene_before


async def is_finished(scene: Scene, stop: Stop) -> None:
    """The verb is accepted and it ticks on; nothing comes next, and nothing is settled, before it has ended."""
    accepted = len(await events(scene.runtime, scene.run, VerbAccepted))
    giving = asyncio.create_task(scene.give(stop))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(await events(scene.runtime, scene.run, VerbAccepted)) == accepted:
            await asyncio.sleep(0.01)
    await scene.still_ticks()
    assert not giving.done()
    assert not scene.witness.lines("next")
    scene.let_go()
    receipt = await giving
    (ended,) = scene.witness.lines("ended")
    assert receipt.superseded_by is None
    assert all(line.at >= ended.at for line in scene.witness.lines("next"))
    if stop in (Stop.REDIRECT_NOW, Stop.REDIRECT_NEXT_STEP):
        await scene.witness.saw("next")


async def is_spared(scene: Scene, stop: Stop) -> None:
    """The verb is settled, or refused, while it ticks on; it comes to its end."""
    if stop is Stop.ABORT:
        with pytest.raises(Refused, match="in flight"):
            await scene.give(stop)
    else:
        giving = asyncio.create_task(scene.give(stop))
        if stop is Stop.REDIRECT_NEXT_STEP:  # the other call in flight has to end first
            await until_state(scene.run, lambda state: state.status is Status.REDIRECTING or giving.done())
            Path(f"{scene.file}.idle1").touch()
        await giving
    assert not scene.witness.lines("ended")
    await scene.still_ticks()
    scene.let_go()
    await scene.witness.saw("ended")


_SEEN = {Fate.STOP: is_stopped, Fate.HOLD: is_held, Fate.FINISH: is_finished, Fate.SPARE: is_spared}


def _cell(value: Stoppable | Stop) -> str:
    return value.value if isinstance(value, Stop) else " ".join(filter(None, value))


@pytest.mark.parametrize(("row", "stop"), STOPS, ids=_cell)
async def test_a_verb_does_to_a_call_what_the_table_says(
    row: Stoppable, stop: Stop, runtime: Runtime, witness: Witness
) -> None:
    """D1 D2 D17 D20 D21 D22"""
    scene = Scene(runtime, witness)
    await scene.begin(row)
    try:
        await _SEEN[STOPS[row, stop]](scene, stop)
    finally:
        await scene.end()


# -- model stream


async def test_a_model_stream_is_closed_and_nothing_is_forwarded_after_it(runtime: Runtime) -> None:
    """D2 D4 D12: by the model's own count not one more token is made, and the listener hears none."""
    churn = agent([words(2000)], [], pace=200)
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
    assert (receipt.timing_ms.calls_stopped or 0) < within(1000), (
        "it heeds SIGTERM, so it need not be given the whole grace"
    )


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
from tests.support.runs import nothing_ticks_after, outcomes, stopped_at
from tests.support.witness import Witness, note

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
    with Blocked() as blocked:
        run = await start_blocking(runtime, blocked, witness, tool(isolation="thread"))

        receipt = settled(await run.cancel())

        assert outcomes(receipt) == {"blocks": Outcome.DETACHED}
        assert effects(receipt) == {"blocks": EffectState.IN_DOUBT}
        assert receipt.timing_ms.calls_stopped is None
        assert witness.words() == ["begun"]
        blocked.let_go()


async def test_what_a_detached_tool_did_is_undone_once_it_has_ended(store: str, witness: Witness) -> None:
    """D33: not before, because until then it may still do it."""
    async with Runtime(store, settle_seconds=PATIENCE_SECONDS) as runtime:
        with Blocked() as blocked:
            run = await start_blocking(runtime, blocked, witness, tool(isolation="thread", undo=discard_late))
            cancelling = asyncio.create_task(run.cancel(wait=2 * PATIENCE_SECONDS))
            await until_event(runtime, run, CallFinished, lambda event: event.outcome is Outcome.DETACHED)
            assert await witness.is_quiet()

            note(witness.log, "let go")
            blocked.let_go()

            receipt = settled(await cancelling)
    assert outcomes(receipt) == {"blocks": Outcome.DETACHED}
    assert effects(receipt) == {"blocks": EffectState.UNDONE}
    assert witness.words() == ["begun", "let go", "discarded"]


async def start_blocking(runtime: Runtime, blocked: Blocked, witness: Witness, declare: Any) -> Run:
    """A run whose tool is in a system call that nothing wakes it from."""

    def blocks(log: str) -> str:
        note(log, "begun")
        blocked.enter()
        note(log, "done")
        return "done"

    churn = agent([calls(("blocks", {"log": witness.log})), "never said"], [declare(blocks)])
    run = await runtime.start(churn, "Go.")
    await blocked.entered()
    return run


async def discard_late(call: Any) -> None:
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


async def cancel_in_a_shielded_section(runtime: Runtime, witness: Witness, used: Any, *, then_sleeps: bool) -> Receipt:
    """The section ends once the cancel waits for it."""
    arguments = {**until_let(witness), "seconds": 50, "then_sleeps": then_sleeps}
    run = await runtime.start(agent([calls((used.__name__, arguments)), "never said"], [used]), "Go.")
    await witness.saw("entered")
    cancelling = asyncio.create_task(run.cancel())
    await until_event(runtime, run, StopDelayed)
    let_go(witness)
    return settled(await cancelling)


@pytest.mark.parametrize("is_async", [True, False], ids=["async def", "def"])
async def test_a_stop_waits_for_a_shielded_section_and_then_stops_the_tool(
    runtime: Runtime, witness: Witness, is_async: bool
) -> None:
    """D1: nothing is left half-written."""
    used = tools.shielded_async if is_async else tools.shielded

    receipt = await cancel_in_a_shielded_section(runtime, witness, used, then_sleeps=True)

    assert outcomes(receipt) == {used.__name__: Outcome.ABORTED if is_async else Outcome.KILLED}
    assert witness.words() == ["entered", "left"]
    await nothing_ticks_after(witness, await stopped_at(runtime, receipt))


async def test_a_tool_that_ends_with_its_shielded_section_has_finished(runtime: Runtime, witness: Witness) -> None:
    """D1 D7: and the receipt says so."""
    receipt = await cancel_in_a_shielded_section(runtime, witness, tools.shielded_async, then_sleeps=False)

    assert outcomes(receipt) == {"shielded_async": Outcome.COMPLETED}
    assert effects(receipt) == {"shielded_async": EffectState.LEFT}, "it is done, and has no undo"
    assert witness.words() == ["entered", "left"]


async def test_a_shield_holds_no_longer_than_it_said(runtime: Runtime, witness: Witness) -> None:
    """D16: a section cannot keep a person from stopping."""
    never = f"{witness.log}.never"

    receipt = await cancel_once_it_wrote(
        runtime, witness, tools.shielded_async, "entered", times=1, seconds=0.3, file=never, then_sleeps=False
    )

    assert outcomes(receipt) == {"shielded_async": Outcome.ABORTED}
    assert witness.words() == ["entered"]


async def test_while_a_verb_waits_for_a_shielded_section_it_is_in_force(runtime: Runtime, witness: Witness) -> None:
    """D3 D18: the receipt is not there yet, and says what it waits for."""
    arguments = {**until_let(witness), "seconds": 50, "then_sleeps": True}
    churn = agent([calls(("shielded_async", arguments)), "never said"], [tools.shielded_async])
    run = await runtime.start(churn, "Go.")
    await witness.saw("entered")

    settling = await run.cancel(wait=0.1, request_id="stop")

    assert not isinstance(settling, Receipt)
    assert settling.status == Status.CANCELLING
    assert "shielded_async" in settling.waiting_for
    let_go(witness)
    receipt = settled(await run.cancel(request_id="stop"))  # the same request again, which is no second cancel
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
    assert max(quick) < within(1000)
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
from tests.support.tools import start_children_async, start_everything

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
