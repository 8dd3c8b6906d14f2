"""However a program ends, its run ends with it, and nothing else does. The witness is what the calls say they did."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

from checkrein import Context, Runtime, agent
from checkrein.calls.base import CallRequest
from checkrein.control.control import Control
from checkrein.core.enums import CallKind, Outcome, Status
from checkrein.core.events import CallFinished, RunFinished
from checkrein.core.receipts import Receipt
from checkrein.driver import session
from checkrein.errors import CallFailed
from checkrein.journal import open_journal
from checkrein.journal.base import Journal
from tests.support.agent_tools import lines
from tests.support.driver_harness import DRIVERS, Outside, Playing, Stage, at_work, crash, drive, new_run, owner, until
from tests.support.programs import book

pytestmark = pytest.mark.anyio


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("there is no text")


def exits() -> None:
    sys.exit(4)


def is_interrupted() -> None:
    raise KeyboardInterrupt


def is_closed() -> None:
    raise GeneratorExit


def is_cancelled_by_nobody() -> None:
    raise asyncio.CancelledError


def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def cannot_say_what_is_wrong() -> None:
    raise Unprintable


ENDS: list[tuple[Callable[[], None], str]] = [
    (exits, "SystemExit: 4"),
    (is_interrupted, "KeyboardInterrupt"),
    (is_closed, "GeneratorExit"),
    (is_cancelled_by_nobody, "CancelledError"),
    (cancels_itself, "CancelledError"),
    (cannot_say_what_is_wrong, "Unprintable"),
]


async def finished(journal: Journal, run: str = "r") -> RunFinished:
    last = [record.event for record in await journal.read(run) if isinstance(record.event, RunFinished)]
    return last[-1]


@pytest.mark.parametrize(("end", "told"), ENDS, ids=[end.__name__ for end, _ in ENDS])
async def test_whatever_a_program_raises_is_the_failure_of_its_own_run(end: Callable[[], None], told: str) -> None:
    outside = Outside()

    async def script(stage: Stage) -> None:
        await stage.call("draft", effect=True)
        end()
        await asyncio.sleep(0)

    async def innocent(stage: Stage) -> None:
        await until(lambda: is_over)
        await stage.call("score")

    is_over = False
    async with await open_journal("memory:") as journal:
        await new_run(journal)
        await new_run(journal, "other")
        neighbour = await drive(journal, Playing(outside, innocent), "other")
        async with asyncio.timeout(90):
            await (await drive(journal, Playing(outside, script)))
            is_over = True
            await neighbour

        ended = await finished(journal)
        assert ended.status is Status.FAILED
        assert told in (ended.error or "")
        assert (await finished(journal, "other")).status is Status.COMPLETED
    assert outside.log[-1] == "end score"


async def test_a_run_that_is_being_cancelled_is_not_played_again() -> None:
    """Its program would end the next driver too, or keep it busy for ever."""
    outside = Outside()

    async def script(stage: Stage) -> None:
        outside.log.append("played")
        await stage.call("draft", effect=True)
        await stage.call("score", seconds=600)

    async with await open_journal("memory:") as journal:
        first = await at_work(journal, Playing(outside, script), "begin score")
        await crash(first)
        control = Control(journal, owner("control"))
        cancelling = asyncio.ensure_future(control.cancel("r", by="a person", wait=90))
        async with asyncio.timeout(90):
            while (await journal.load("r")).status is not Status.CANCELLING:
                await asyncio.sleep(0.005)

            await (await drive(journal, Playing(outside, script), by="second"))
            receipt = await cancelling

        assert isinstance(receipt, Receipt)
        assert receipt.status is Status.CANCELLED
    assert outside.times("played") == 1
    assert outside.times("undo draft") == 1


async def test_a_paused_run_is_played_when_it_is_resumed_and_not_before() -> None:
    outside = Outside()

    async def script(stage: Stage) -> str:
        outside.log.append("played")
        await stage.call("draft")
        await stage.call("score")
        return "done"

    async with await open_journal("memory:") as journal:
        control = Control(journal, owner("control"))
        await new_run(journal)
        await control.pause("r", by="a person")
        assert (await journal.load("r")).status is Status.PAUSED
        driving = await drive(journal, Playing(outside, script))
        await until(lambda: DRIVERS[driving].has_taken_over)
        for _ in range(20):
            await asyncio.sleep(0)
        assert outside.log == []

        await control.resume("r", by="a person")
        async with asyncio.timeout(90):
            await driving
    assert outside.log == ["played", "begin draft", "end draft", "begin score", "end score"]


async def test_a_program_that_does_not_heed_its_end_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that waited for it would never give the run back, and the next of its thread would never begin."""
    monkeypatch.setattr(session, "END_SECONDS", 0.1)
    outside, told, let_go = Outside(), [], asyncio.Event()

    async def script(stage: Stage) -> None:
        await stage.call("draft")
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                told.append("told")

    async with await open_journal("memory:") as journal:
        await new_run(journal)
        driving = await drive(journal, Playing(outside, script))
        await until(lambda: "end draft" in outside.log)
        async with asyncio.timeout(90):
            await Control(journal, owner("control")).cancel("r", by="a person")
            await driving
        assert (await journal.load("r")).status is Status.CANCELLED
        assert told
        let_go.set()
        await asyncio.sleep(0)


def test_a_call_that_is_torn_down_with_the_event_loop_is_in_doubt_and_not_failed(store: str, log: str) -> None:
    """Something of another run exits: asyncio cancels every task, and nobody has asked this tool to stop."""
    seen: list[str] = []

    @agent(name="innocent")
    async def program(ctx: Context, goal: str) -> None:
        try:
            await ctx.call(book, log, "table", 600)
        except Exception as error:
            seen.append(repr(error))

    async def main() -> None:
        async with Runtime(store) as runtime:
            run = await runtime.start(program, "go")
            names.append(run.id)
            async with asyncio.timeout(90):
                while "booking table" not in (lines(log) if exists(log) else ()):
                    await asyncio.sleep(0.01)
            asyncio.get_running_loop().call_soon(sys.exit, 4)
            await asyncio.sleep(600)

    names: list[str] = []
    with pytest.raises(SystemExit):
        asyncio.run(main())

    ended = [event for event in asyncio.run(events_of(store, names[0])) if isinstance(event, CallFinished)]
    assert [event.outcome for event in ended] == [Outcome.IN_DOUBT]
    assert seen == []
    assert "booked table" not in lines(log)


async def test_a_call_that_exits_before_it_has_begun_has_failed() -> None:
    """A call that cannot even begin has failed, whatever it raised."""
    outside = Outside()

    async def script(stage: Stage) -> str:
        def perform(permit: Any) -> Any:
            sys.exit(3)

        with contextlib.suppress(CallFailed):
            await stage.driver.call(CallRequest(kind=CallKind.TOOL, name="odd", perform=perform))
        return "went on"

    async with await open_journal("memory:") as journal:
        await new_run(journal)
        async with asyncio.timeout(90):
            await (await drive(journal, Playing(outside, script)))
        assert bytes((await finished(journal)).result or b"") == b'"went on"'


def exists(log: str) -> bool:
    with contextlib.suppress(FileNotFoundError), open(log):
        return True
    return False


async def events_of(store: str, run: str) -> list[Any]:
    async with await open_journal(store) as journal:
        return [record.event for record in await journal.read(run)]
