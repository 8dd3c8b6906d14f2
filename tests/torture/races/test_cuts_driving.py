"""Whoever is cancelled while they hold a permit or drive a run: the call has an outcome or is in doubt, never neither,
and nothing of it goes on."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checkrein import Context, Runtime, agent
from checkrein.calls.base import CallRequest, Perform
from checkrein.calls.executor import ToolExecutor
from checkrein.core import commands as c
from checkrein.core.enums import Answer, CallKind, Outcome, Status
from checkrein.core.events import CallFinished, CallStarted, EffectUndone, RetryScheduled, RunFinished, VerbSettled
from checkrein.driver.commits import RunWriter
from checkrein.driver.ownership import Ownership
from checkrein.driver.program_api import ProgramApi
from checkrein.errors import Interrupted, Refused
from checkrein.journal import Journal, MemoryJournal, commands
from tests.support import tools
from tests.support.driver_harness import Outside, Playing, Scripted, drive, driver_of, new_run, owner, until
from tests.support.driver_harness import Stage as Hands
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Witness, is_alive
from tests.torture.races.nth_await import Cut, CutEverywhere
from tests.torture.races.racers import Idler
from tests.torture.races.traces import Look

pytestmark = pytest.mark.anyio


# -- a permit


class LettingGo(Idler):
    """A program that makes one call and, wherever it is cut, goes on without it."""

    name = "player"

    def __init__(self, cut: Cut, perform: Perform, **options: Any) -> None:
        self._cut = cut
        self._spec = CallRequest(kind=CallKind.TOOL, name="it", perform=perform, effect="it", undo="undo:it", **options)

    async def play(self, driver: ProgramApi) -> bytes | None:
        await self._cut.run(driver.call(self._spec))
        return b'"done"'


async def outcomes(journal: Journal, run: str) -> dict[str, list[Outcome]]:
    """Of every call that had a permit: the outcomes that are recorded."""
    events = [record.event for record in await journal.read(run)]
    ended = [event for event in events if isinstance(event, CallFinished)]
    return {
        event.call: [end.outcome for end in ended if end.call == event.call]
        for event in events
        if isinstance(event, CallStarted)
    }


@pytest.mark.parametrize("timeout_seconds", [None, 20.0])
async def test_a_call_that_its_program_cancels_has_an_outcome_and_the_run_goes_on(
    journal: Journal, runs: Iterator[str], cut_everywhere: CutEverywhere, timeout_seconds: float | None
) -> None:
    """D4: a permit that nobody would ever report on would keep the run from ending, or look like a crash."""

    async def scene(cut: Cut) -> None:
        outside = Outside()

        async def work() -> str:
            outside.log.append("begin")
            await asyncio.sleep(0.002)
            outside.log.append("end")
            return "it"

        program = LettingGo(cut, lambda permit: Scripted(work, outside, "it"), timeout_seconds=timeout_seconds)
        driving = await drive(journal, program, await new_run(journal, run := next(runs)))  # type: ignore[arg-type]
        async with asyncio.timeout(PATIENCE_SECONDS):
            await driving

        assert (await journal.load(run)).status is Status.COMPLETED
        ended = (await outcomes(journal, run)).get("c1")
        if "end" in outside.log:
            assert ended in ([Outcome.COMPLETED], [Outcome.ABORTED])
        elif ended is not None:
            assert ended == [Outcome.ABORTED]
        else:
            assert outside.log == []

    kind = type(journal).__name__
    await cut_everywhere(f"Calling.call on {kind}{', with a time limit' if timeout_seconds else ''}", scene)


async def test_a_tool_in_a_worker_whose_call_is_cancelled_is_gone(
    tmp_path: Path, runs: Iterator[str], cut_everywhere: CutEverywhere
) -> None:
    """D2 D4: by the process table and the tool's own log."""
    journal = MemoryJournal()
    async with ToolExecutor(tmp_path / "calls", most_workers=2) as executor:

        async def scene(cut: Cut) -> None:
            run, witness = next(runs), Witness(tmp_path / f"log-{cut.number}-{cut.how.name}")
            arguments = msgspec.json.encode({"log": witness.log, "seconds": 0.05})

            def perform(permit: Any) -> Any:
                return executor.start(tools.sleep, arguments, id=permit.call, key=permit.key)

            driving = await drive(journal, LettingGo(cut, perform), await new_run(journal, run))  # type: ignore[arg-type]
            async with asyncio.timeout(PATIENCE_SECONDS):
                await driving

            ended = (await outcomes(journal, run)).get("c1")
            assert ended is None or len(ended) == 1
            if ended is not None and ended[0] is not Outcome.COMPLETED:
                assert not any(is_alive(line.pid) for line in witness.lines())
            added = executor.start(tools.add, b'{"a": 1, "b": 2}', id="c9", key=f"{run}/c9")
            assert (await added.ended()).result == b"3"

        await cut_everywhere("Calling.call of a tool in a worker", scene)


# -- a driver


async def two_calls(hands: Hands) -> str:
    await hands.call("fetch", seconds=0.002, effect=True)
    await hands.call("send", seconds=0.002, effect=True)
    return "done"


async def finish(journal: Journal, program: Playing, run: str, outside: Outside) -> None:
    """Drive a run to its end, and say of every call in doubt what really happened."""
    driving = await drive(journal, program, run, by="second")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not driving.done():
            state = await journal.load(run)
            for call, doubt in state.doubts.items():
                await give_word_on(journal, run, call, doubt.name, f"end {doubt.name}" in outside.log)
            await asyncio.sleep(0.005)
        await driving


async def give_word_on(journal: Journal, run: str, call: str, name: str, happened: bool) -> None:
    answer, result = Answer.HAPPENED if happened else Answer.DID_NOT_HAPPEN, msgspec.json.encode(f"{name} done")
    word = partial(c.ResolveCall, id=f"word on {call}", by="p", call=call, answer=answer, result=msgspec.Raw(result))
    with suppress(Refused):  # the driver before has answered for it meanwhile
        await commands.take_command(journal, run, lambda _, effects: word(at=time.time(), effects=effects))


async def test_a_driver_that_is_cancelled_leaves_nothing_running_and_the_next_one_finishes(
    journal: Journal, runs: Iterator[str], traces: Look, cut_here_and_there: CutEverywhere
) -> None:
    """D29 D30: no call is begun twice unless a person said that it had not happened."""

    async def scene(cut: Cut) -> None:
        outside, before = Outside(), traces()
        program, run = Playing(outside, two_calls), await new_run(journal, next(runs))
        lease = await journal.claim(run, owner("cut"), seconds=60, force=True)
        await cut.run((await driver_of(journal, program, lease)).drive())
        await before.gone()
        done_by_then = list(outside.log)
        await asyncio.sleep(0.005)
        assert outside.log == done_by_then, "something of it goes on"

        if not (await journal.load(run)).is_finished:
            await finish(journal, program, run, outside)

        assert (await journal.load(run)).status is Status.COMPLETED
        assert [outside.times("end fetch"), outside.times("end send")] == [1, 1]
        assert all(len(ended) >= 1 for ended in (await outcomes(journal, run)).values())

    await cut_here_and_there(f"Driver.drive on {type(journal).__name__}", scene)


async def test_a_driver_that_is_cancelled_while_it_undoes_leaves_the_rest_to_the_next_one(
    journal: Journal, runs: Iterator[str], traces: Look, cut_here_and_there: CutEverywhere
) -> None:
    """D33: what was to be undone is recorded as undone once, and the cancel is settled once."""

    async def never_done(hands: Hands) -> str:
        await hands.call("fetch", effect=True)
        await hands.call("wait", seconds=60)
        return "done"

    async def scene(cut: Cut) -> None:
        outside, before = Outside(), traces()
        program, run = Playing(outside, never_done), await new_run(journal, next(runs))
        driving = await drive(journal, program, run)
        await until(lambda: "begin wait" in outside.log)
        await commands.take_command(journal, run, lambda *_: c.CancelRun(id="cancel", at=time.time(), by="p"))
        driving.cancel()
        await asyncio.wait([driving])

        lease = await journal.claim(run, owner("cut"), seconds=60, force=True)
        await cut.run((await driver_of(journal, program, lease)).drive())
        await before.gone()
        await finish(journal, program, run, outside)

        events = [record.event for record in await journal.read(run)]
        assert [event.status for event in events if isinstance(event, RunFinished)] == [Status.CANCELLED]
        assert len([event for event in events if isinstance(event, VerbSettled)]) == 1
        undone = Counter(event.effect for event in events if isinstance(event, EffectUndone))
        assert undone["c1"] == 1
        assert outside.times("undo fetch") >= 1

    await cut_here_and_there(f"Driver.drive of a cancelled run on {type(journal).__name__}", scene)


# -- programs over a context


async def reserve(what: str) -> str:
    SAID.append(f"began {what}")
    await asyncio.sleep(0.003)
    SAID.append(f"did {what}")
    return what


async def count_slowly() -> AsyncIterator[str]:
    try:
        for word in ("one ", "two ", "three "):
            await asyncio.sleep(0.001)
            SAID.append(word)
            yield word
    finally:
        SAID.append("closed")


SAID: list[str] = []
CUTS: list[Cut] = []


@agent
async def below(ctx: Context, goal: str) -> Any:
    return await ctx.call(reserve, "room")


@agent
async def spawning(ctx: Context, goal: str) -> str:
    await CUTS[-1].run(ctx.spawn(below, "reserve"))
    return "done"


@agent
async def calling(ctx: Context, goal: str) -> str:
    await CUTS[-1].run(ctx.call(reserve, "room"))
    return "done"


@agent
async def streaming(ctx: Context, goal: str) -> str:
    await CUTS[-1].run(ctx.stream(count_slowly))
    return "done"


@pytest.mark.parametrize("program", [calling, streaming, spawning], ids=lambda program: program.name)
async def test_a_program_that_cancels_what_it_asked_for_goes_on_and_nothing_of_that_does(
    tmp_path: Path, cut_everywhere: CutEverywhere, program: Any
) -> None:
    """D2 D4: a call, a stream, and a sub-run, which is stopped with everything below it."""
    async with Runtime(f"sqlite:///{tmp_path}/runs.db", agents=[spawning, calling, streaming]) as runtime:

        async def scene(cut: Cut) -> None:
            CUTS.append(cut)
            SAID.clear()
            run = await runtime.start(program, "go")
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await run.result() == "done"

            said = list(SAID)
            await asyncio.sleep(0.006)
            assert said == SAID, "something of it goes on"
            for row in await runtime.runs():
                assert all(len(ended) == 1 for ended in (await outcomes(runtime.journal, row.id)).values())
                assert row.status in (Status.COMPLETED, Status.CANCELLED)
            if program is streaming and SAID:
                assert SAID[-1] == "closed"

        await cut_everywhere(f"Context, {program.name}", scene)


# -- the writer


async def writer_of(journal: Journal, run: str) -> tuple[RunWriter, int]:
    """Whoever writes for the driver of a new run, and the epoch."""
    lease = await journal.claim(await new_run(journal, run), owner(), seconds=60)
    return RunWriter(journal, await journal.load(run), Ownership(journal, lease), lambda record: None), lease.epoch


async def test_a_command_whose_maker_is_cancelled_is_not_taken_back(
    journal: Journal, runs: Iterator[str], cut_everywhere: CutEverywhere
) -> None:
    """And whoever comes next finds the state as it is in the journal."""

    async def scene(cut: Cut) -> None:
        writer, epoch = await writer_of(journal, run := next(runs))
        await cut.run(writer.commit(c.TakeOver(id="took", at=time.time(), epoch=epoch)))

        await writer.flush()
        await writer.commit(c.PauseRun(id="pause", at=time.time(), by="p"))

        kinds = [type(record.event).__name__ for record in await journal.read(run)]
        assert kinds == ["RunCreated", "RunStarted", "VerbAccepted"]
        assert writer.committed.seq == 3

    await cut_everywhere(f"Scribe.do on {type(journal).__name__}", scene)


async def test_a_flush_that_is_cancelled_loses_nothing_that_was_noted(
    journal: Journal, runs: Iterator[str], cut_everywhere: CutEverywhere
) -> None:
    async def scene(cut: Cut) -> None:
        writer, _ = await writer_of(journal, run := next(runs))
        writer.record(RetryScheduled(id="noted", at=time.time(), call="c1", attempt=2, wait_seconds=1.0, why="busy"))
        await cut.run(writer.flush())

        await writer.flush()

        assert len([record for record in await journal.read(run) if record.event.id == "noted"]) == 1

    await cut_everywhere(f"Scribe.flush on {type(journal).__name__}", scene)


# -- what a program leaves behind


LEFT: list[asyncio.Task[None]] = []


@agent
async def forgetful(ctx: Context, goal: str) -> str:
    """Ends, or waits for ever, with a task of its own still at work."""

    async def go_on() -> None:
        while True:
            with suppress(Interrupted):
                await ctx.call(reserve, "another")

    LEFT.append(asyncio.create_task(go_on()))
    await ctx.call(reserve, "room")
    if goal == "wait":
        await asyncio.sleep(60)
    return "done"


@pytest.mark.parametrize("how", ["its end", "a cancel", "the end of the runtime"])
async def test_a_task_that_a_program_has_left_behind_ends_with_its_run(tmp_path: Path, how: str) -> None:
    """D2 D4 D26: it begins nothing more, and nobody has to wait for it."""
    SAID.clear()
    async with Runtime(f"sqlite:///{tmp_path}/runs.db", agents=[forgetful]) as runtime:
        run = await runtime.start(forgetful, "end" if how == "its end" else "wait")
        await until(lambda: "did room" in SAID)
        if how == "its end":
            assert await run.result() == "done"
        elif how == "a cancel":
            await run.cancel()
        if how != "the end of the runtime":
            await until(LEFT[-1].done)
    by_then = list(SAID)

    await until(LEFT[-1].done)
    await asyncio.sleep(0.01)
    assert by_then == SAID
