"""Drills of the kill switch: whatever a driver is stuck in, and whatever is down, a halt ends what is in flight.

The witness is the log that the tools write themselves, and the process table. `make torture` repeats each drill.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from checkrein import Agent, Context, Runtime, agent, tool
from checkrein.core.enums import Status
from checkrein.core.events import CallFinished, CallStarted
from checkrein.errors import Fenced
from checkrein.journal import open_journal
from checkrein.journal.base import Fence, Journal, Scope
from checkrein.models import ScriptedModel, Turn
from checkrein.processes import halt_flags
from tests.journal.build import created, permit
from tests.support import agent_tools
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.runs import events
from tests.support.witness import is_alive, until

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
AT_ONCE = 5
"""Drivers in one drill: each is a drill of its own, and one halt is for all of them."""

DRIVER = """
import asyncio, ctypes, sys, time
from checkrein import Agent, Runtime, tool
from checkrein.models import ScriptedModel, Turn
from tests.support.agent_tools import crunch, note

@tool(effect="none")
async def stuck_in_python(log: str) -> str:
    "Blocks the event loop."
    for _ in range(6000):
        note(log, "tick")
        time.sleep(0.05)
    return "done"

@tool(effect="none")
async def stuck_in_c(log: str) -> str:
    "Keeps the interpreter."
    note(log, "tick")
    ctypes.PyDLL(None).sleep(600)
    note(log, "woke")
    return "done"

async def main(store, log, name):
    tools = {"python": stuck_in_python, "c": stuck_in_c, "crunch": crunch}
    work = tools[name]
    turns = [Turn("Go.", calls=[(work.name, {"log": log})]), "Done."]
    agent = Agent(log.rpartition("/")[2], model=ScriptedModel(turns), tools=[work])  # nobody else drives its runs
    async with Runtime(store) as runtime:
        run = await runtime.start(agent, "block")
        await run.result()

asyncio.run(main(*sys.argv[1:]))
"""


@asynccontextmanager
async def drivers(store: str, folder: Path, kind: str, count: int) -> AsyncIterator[list[subprocess.Popen[bytes]]]:
    """So many processes that each drive a run, whose tool is at work."""
    program = folder / "driver.py"
    program.write_text(DRIVER)
    logs = [folder / f"log-{number}" for number in range(count)]
    started = [
        subprocess.Popen(
            [sys.executable, str(program), store, str(log), kind],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for log in logs
    ]
    try:
        await until(lambda: all("tick" in agent_tools.lines(log) for log in logs))
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


async def is_quiet(folder: Path) -> bool:
    before = [log.read_text() for log in sorted(folder.glob("log-*"))]
    await asyncio.sleep(0.5)
    return before == [log.read_text() for log in sorted(folder.glob("log-*"))]


def halt(store: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from checkrein.cli import main; main()", "halt", "all", "--store", store, *more],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def reset(store: str) -> None:
    halt_flags.take_down(store, "all", "")


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


@pytest.mark.parametrize("kind", ["python", "c"])
async def test_a_blocked_event_loop_is_ended_by_the_fence_alone(store: str, tmp_path: Path, kind: str):
    """D16, D35: no front is there, and nobody signals anybody: the supervisors read the fence themselves."""
    async with drivers(store, tmp_path, kind, AT_ONCE) as started:
        async with await open_journal(store) as journal:
            await journal.fence(Fence(scope=Scope.ALL, by="op", at=time.time()))

        await until(lambda: all(has_ended(one) for one in started))

        assert await is_quiet(tmp_path)


async def test_a_flag_alone_ends_what_a_blocked_event_loop_does_while_the_store_is_away(store: str, tmp_path: Path):
    """D35: nothing is written to the store."""
    async with drivers(store, tmp_path, "python", AT_ONCE) as started:
        halt_flags.put_up(store, halt_flags.Flag("all", "", "op"))

        await until(lambda: all(has_ended(one) for one in started))

        assert await is_quiet(tmp_path)
    async with await open_journal(store) as journal:
        assert await journal.fences() == ()
    reset(store)


async def test_a_driver_that_is_stopped_by_a_signal_is_ended_with_its_tools_and_their_children(
    store: str, tmp_path: Path
):
    """SIGSTOP, and a tool in a process of its own with a child in a session of its own (`setsid`)."""
    async with drivers(store, tmp_path, "crunch", AT_ONCE) as started:
        children = [int(line.split()[1]) for log in tmp_path.glob("log-*") for line in agent_tools.lines(log)
                    if line.startswith("child ")]  # fmt: skip
        for process in started:
            process.send_signal(signal.SIGSTOP)

        halted = await asyncio.to_thread(halt, store, "--wait", "0")

        assert halted.returncode == 0, halted.stderr
        await until(lambda: all(has_ended(one) for one in started))
        await until(lambda: not any(is_alive(child) for child in children))
        assert await is_quiet(tmp_path)
    reset(store)


@tool(effect="none")
async def linger(log: str) -> str:
    """Says that it began, and when it is stopped."""
    agent_tools.note(log, "began")
    try:
        await asyncio.sleep(600)
    finally:
        agent_tools.note(log, "stopped")
    return "done"


def lingering(log: Path) -> Agent:
    def turns(_: object) -> Turn:
        return Turn("Go.", calls=[("linger", {"log": str(log)})])

    return Agent("linger", model=ScriptedModel(turns), tools=[linger])


async def many(runtime: Runtime, log: Path, count: int) -> Agent:
    agent = lingering(log)
    for _ in range(count):
        await runtime.start(agent, "wait")
    await until(lambda: agent_tools.lines(log).count("began") == count)
    return agent


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.torture)])
async def test_all_calls_are_stopped_before_any_receipt(runtime: Runtime, store: str, tmp_path: Path, count: int):
    """D35: a fence alone stops them, all of them, and no call follows; the runs are ended afterwards."""
    log = tmp_path / "log"
    await many(runtime, log, count)
    async with await open_journal(store) as journal:
        at = time.time()
        await journal.fence(Fence(scope=Scope.ALL, by="op", at=at))

    await until(lambda: agent_tools.lines(log).count("stopped") == count)

    assert max(agent_tools.times(log, "stopped")) - at < within(3)
    assert agent_tools.lines(log).count("began") == count
    assert {row.status for row in await runtime.runs(limit=count)} == {Status.RUNNING}
    halted = await runtime.halt("all", reason="and end them", by="op")
    assert len(halted.receipts) == count
    assert {row.status for row in await runtime.runs(limit=count)} == {Status.KILLED}
    assert agent_tools.lines(log).count("began") == count


async def test_a_flag_stops_calls_and_lets_none_begin_until_it_is_taken_down(
    runtime: Runtime, store: str, tmp_path: Path
):
    """PostgreSQL down, as seen from a driver: only the flag of its host tells it."""
    if store == "memory:":
        pytest.skip("a journal in memory has no flags")
    log = tmp_path / "log"
    agent = await many(runtime, log, AT_ONCE)
    halt_flags.put_up(store, halt_flags.Flag("agent", "linger", "op"))

    await until(lambda: agent_tools.lines(log).count("stopped") == AT_ONCE)
    later = await runtime.start(agent, "also later runs")
    await asyncio.sleep(0.5)

    assert agent_tools.lines(log).count("began") == AT_ONCE
    assert [(one.scope, one.where) for one in await runtime.halts()] == [("agent", "host")]
    assert not [one for one in await runtime.journal.read(later.id) if isinstance(one.event, CallStarted)]
    await runtime.halt("agent", "linger", by="op")
    await runtime.reset("agent", "linger", by="op")
    assert await runtime.halts() == ()


@agent(name="stubborn", tools=[linger])
async def stubborn(ctx: Context, goal: str) -> str:
    """Whatever becomes of its call, it says that all is well."""
    try:
        await ctx.tool(linger, log=goal)
    except Exception:
        agent_tools.note(goal, "goes on")
    return "all is well"


async def test_a_program_is_told_nothing_of_its_calls_while_it_is_halted_so_the_halt_is_what_ends_it(
    runtime: Runtime, store: str, tmp_path: Path
):
    log = tmp_path / "log"
    run = await runtime.start(stubborn, str(log))
    await until(lambda: "began" in agent_tools.lines(log))
    async with await open_journal(store) as journal:
        await journal.fence(Fence(scope=Scope.ALL, by="op", at=time.time()))
    await until(lambda: "stopped" in agent_tools.lines(log))
    while not await events(runtime, run, CallFinished):
        await asyncio.sleep(0.01)

    halted = await runtime.halt("all", by="op")

    assert [receipt.run for receipt in halted.receipts] == [run.id]
    assert (await run.state()).status is Status.KILLED
    assert "goes on" not in agent_tools.lines(log)


async def test_a_flag_that_is_taken_down_before_the_run_was_ended_lets_its_program_go_on(
    runtime: Runtime, store: str, tmp_path: Path
):
    if store == "memory:":
        pytest.skip("a journal in memory has no flags")
    log = tmp_path / "log"
    run = await runtime.start(stubborn, str(log))
    await until(lambda: "began" in agent_tools.lines(log))
    halt_flags.put_up(store, halt_flags.Flag("all", "", "op"))
    await until(lambda: "stopped" in agent_tools.lines(log))

    reset(store)

    assert await run.result() == "all is well"
    assert "goes on" in agent_tools.lines(log)


async def race(journal: Journal, operator: Journal, run: str, number: int) -> None:
    """Permits as fast as they come, and a halt in the middle: none is given after its answer."""
    answered = asyncio.Event()
    late: list[int] = []

    async def permits() -> None:
        for call in range(1000):
            is_late = answered.is_set()
            try:
                await journal.append(run, [permit(f"{number}-{call}")], after=1 + call, epoch=1)
            except Fenced:
                return
            late.extend([call] if is_late else [])

    asking = asyncio.ensure_future(permits())
    await asyncio.sleep(0.002 * (number % 5))
    await operator.fence(Fence(scope=Scope.AGENT, name=f"a{number}", by="op"))
    answered.set()
    await asking
    assert late == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("races", [20, pytest.param(300, marks=pytest.mark.torture)])
async def test_no_permit_is_given_after_the_answer(
    kind: str, races: int, tmp_path: Path, request: pytest.FixtureRequest
):
    """D3, D35: the halt comes through another journal, as from another process."""
    from checkrein.journal.base import Owner

    if kind == "postgres":
        cluster = request.getfixturevalue("postgres")
        store = cluster.address(cluster.new_schema())
    else:
        store = f"sqlite:///{tmp_path}/runs.db"
    async with await open_journal(store) as journal, await open_journal(store) as operator:
        for number in range(races):
            await journal.create(created(f"r{number}", agent=f"a{number}"))
            await journal.claim(f"r{number}", Owner(process="driver"), seconds=60)
            await race(journal, operator, f"r{number}", number)
