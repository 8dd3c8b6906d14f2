"""What a tool's author and whoever stops a run need to know is in the record: where a tool failed, what a stop waits
for, and what it could not stop. The witness of the stop is the log that the tools write themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from checkrein import Receipt, Runtime, tool
from checkrein.calls.base import TRACEBACK_CHARS, CallResult, finishing
from checkrein.cli.printers import Lines
from checkrein.cli.wording import receipt_lines
from checkrein.control.view import CallView
from checkrein.control.viewer import Viewer
from checkrein.core.enums import Outcome
from checkrein.core.events import CallFinished, StopDelayed
from checkrein.journal import Journal, Recorded
from tests.support import tools
from tests.support.runs import agent, calls, let_go, settled, until_let
from tests.support.witness import Witness, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "log")


async def seen(journal: Journal, run: str, name: str) -> CallView:
    """A call as the page and the terminal get it."""
    view = Viewer(await journal.read(run)).view(0.0)
    return next(call for call in view.calls if call.name == name)


def printed(records: Iterable[Recorded]) -> str:
    """What a terminal says about a run, line by line."""
    lines = Lines()
    return "\n".join(line for record in records for line in lines.take(record))


@pytest.mark.parametrize(
    "failing",
    [tool(tools.fail), tool(isolation="thread")(tools.fail), tool(tools.fail_async)],
    ids=["worker process", "thread", "task"],
)
async def test_where_a_tool_failed_is_recorded_and_seen(failing: Any) -> None:
    async with Runtime("memory:") as runtime:
        churn = agent([calls((failing.name, {"message": "no such customer"})), "Done."], [failing])
        run = await runtime.start(churn, "Go.")
        await run.result()
        records = await runtime.journal.read(run.id)
        call = await seen(runtime.journal, run.id, failing.name)

    (ended,) = (r.event for r in records if isinstance(r.event, CallFinished) and r.event.outcome is Outcome.FAILED)
    assert ended.error == "ValueError: no such customer"
    assert f'{tools.__file__}", line' in (ended.traceback or "")
    assert "raise ValueError(message)\nValueError: no such customer" in (ended.traceback or "")
    assert call.traceback == ended.traceback
    assert f"{Path(tools.__file__).name}:" in printed(records)
    assert f" in {failing.name}" in printed(records)


def test_of_a_long_traceback_the_end_is_recorded() -> None:
    long = "".join(f"  line {number}\n" for number in range(10_000)) + "ValueError: no such customer\n"

    kept = finishing("c1", 1, CallResult(outcome=Outcome.FAILED, traceback=long), 0.0).traceback

    assert kept is not None
    assert len(kept) <= TRACEBACK_CHARS + 2
    assert kept.startswith("…\n  line ")
    assert kept.endswith("ValueError: no such customer\n")


@pytest.mark.parametrize("is_async", [True, False], ids=["task", "worker process"])
async def test_what_a_stop_waits_for_is_recorded_while_it_waits(witness: Witness, is_async: bool) -> None:
    used = tools.shielded_async if is_async else tools.shielded
    arguments = {**until_let(witness), "seconds": 25, "then_sleeps": True}
    async with Runtime("memory:") as runtime:
        run = await runtime.start(agent([calls((used.__name__, arguments)), "never said"], [used]), "Go.")
        await witness.saw("entered")

        cancelling = asyncio.ensure_future(run.cancel(wait=60))
        async for record in run.events():
            if isinstance(record.event, StopDelayed):
                break
        waiting = await seen(runtime.journal, run.id, used.__name__)
        (verb,) = Viewer(await runtime.journal.read(run.id)).view(0.0).settling
        let_go(witness)
        receipt = settled(await cancelling)

    assert waiting.waits_for == "a shielded section, at most 25 s"
    assert verb.waiting_for == f"{used.__name__} (in a shielded section, at most 25 s) to stop"
    assert isinstance(receipt, Receipt)
    assert [call.waited_for for call in receipt.calls if call.name == used.__name__] == [waiting.waits_for]
    assert f"waited for {waiting.waits_for}" in "\n".join(receipt_lines(receipt))
    assert witness.words() == ["entered", "left"], "the section was let finish, and nothing after it"


async def test_what_could_not_be_stopped_is_named_in_the_record_and_in_the_receipt(witness: Witness) -> None:
    async with Runtime("memory:") as runtime:
        churn = agent([calls(("swallow_async", {"log": witness.log})), "never said"], [tools.swallow_async])
        run = await runtime.start(churn, "Go.")
        await witness.saw("begun")

        receipt = settled(await run.cancel(wait=60))
        call = await seen(runtime.journal, run.id, "swallow_async")
        records = await runtime.journal.read(run.id)
        told = len(witness.lines())

        await until(lambda: len(witness.lines()) > told)  # it really goes on

    (stopped,) = (one for one in receipt.calls if one.name == "swallow_async")
    assert stopped.now == Outcome.DETACHED
    assert stopped.left == (f"task checkrein {stopped.id}",)
    assert call.left == stopped.left
    assert f"still running: task checkrein {stopped.id}" in printed(records)
    assert f"still running: task checkrein {stopped.id}" in "\n".join(receipt_lines(receipt))
