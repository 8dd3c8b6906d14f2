"""Whole runs under the roles of a store in PostgreSQL: a runtime that only drives, a front that only asks, an operator
that only halts. The witness is the log that the tool keeps itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from checkrein import Agent, Runtime
from checkrein.control.control import Control
from checkrein.control.halt import Halting
from checkrein.control.start import StartRun, begin
from checkrein.core.enums import Status
from checkrein.core.receipts import Receipt
from checkrein.errors import StoreForbidden
from checkrein.journal import Journal, open_journal
from checkrein.journal.postgres import schema
from checkrein.models import ScriptedModel, Turn
from checkrein.processes.identity import this_process
from checkrein.secrets import Secrets
from tests.promises.test_halt import is_quiet
from tests.support import agent_tools, programs
from tests.support.postgres import Cluster
from tests.support.programs import boss
from tests.support.witness import Witness, until

pytestmark = pytest.mark.anyio


TICKS = 100
"""Of 50 ms."""


def busy(log: Path) -> Agent:
    turns = [
        Turn("First a draft.", calls=[("make_draft", {"log": str(log)})]),
        Turn("Now the work.", calls=[("crunch", {"log": str(log), "ticks": TICKS})]),
        Turn("Done."),
    ]
    return Agent("busy", model=ScriptedModel(turns), tools=[agent_tools.make_draft, agent_tools.crunch])


class Hosts:
    """A runtime that has the role of a worker and nothing else, and those who steer what it drives."""

    def __init__(self, worker: Runtime, front: Journal, operator: Journal) -> None:
        self.worker = worker
        self.front = front
        self.control = Control(front, this_process())
        self.halting = Halting(operator, this_process())

    async def begun(self, agent: str = "busy", goal: str = "work") -> str:
        wanted = StartRun(agent=agent, goal=goal)
        run, _ = await begin(
            self.front, self.control, wanted, stop_when=None, secrets=Secrets.of(()), clock=self.front.now
        )
        return run


@pytest.fixture
def addresses(postgres: Cluster) -> Iterator[dict[str, str]]:
    name = postgres.new_schema()
    owner = postgres.address(name)
    schema.init(owner)
    schema.make_roles(owner)
    yield {role: postgres.address(name, postgres.login(name, role)) for role in ("worker", "front", "operator")}
    postgres.drop(name)


@pytest.fixture
async def hosts(addresses: dict[str, str], tmp_path: Path) -> AsyncIterator[Hosts]:
    async with AsyncExitStack() as opened:
        front, operator = [
            await opened.enter_async_context(await open_journal(addresses[role])) for role in ("front", "operator")
        ]
        agents = [busy(tmp_path / "log"), boss, programs.worker]
        worker = await opened.enter_async_context(Runtime(addresses["worker"], agents=agents))
        yield Hosts(worker, front, operator)


async def test_a_run_that_a_worker_drives_is_cancelled_by_a_front(hosts: Hosts, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run = await hosts.begun()
    await until(lambda: "tick" in agent_tools.lines(log))

    receipt = await hosts.control.cancel(run, by="ann")

    assert isinstance(receipt, Receipt)
    assert receipt.status is Status.CANCELLED
    assert await is_quiet(log)
    assert [line for line in agent_tools.lines(log) if "draft" in line] == ["draft", "discard draft-7"]
    assert await hosts.front.verify(run) == (await hosts.front.load(run)).seq


async def test_a_run_that_a_worker_drives_is_halted_by_an_operator_and_by_nobody_else(
    hosts: Hosts, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    run = await hosts.begun()
    await until(lambda: "tick" in agent_tools.lines(log))
    for journal in (hosts.worker.journal, hosts.front):
        with pytest.raises(StoreForbidden, match="operator"):
            await Halting(journal, this_process()).halt("all", by="mallory")
    ticks = len(agent_tools.lines(log))
    await until(lambda: len(agent_tools.lines(log)) > ticks)  # it works on

    halted = await hosts.halting.halt("all", by="olga", reason="enough")

    assert [receipt.run for receipt in halted.receipts] == [run]
    assert (await hosts.front.load(run)).status is Status.KILLED
    assert await is_quiet(log)
    assert "discard draft-7" not in agent_tools.lines(log)
    with pytest.raises(StoreForbidden):
        await Halting(hosts.front, this_process()).reset("all", by="mallory")
    assert (await hosts.halting.reset("all", by="olga")).was_latched


async def test_what_a_worker_paused_when_it_was_shut_down_goes_on_with_the_next_worker(
    hosts: Hosts, addresses: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    run = await hosts.begun()
    await until(lambda: "tick" in agent_tools.lines(log))

    await hosts.worker.aclose()
    paused = await hosts.front.load(run)
    async with Runtime(addresses["worker"], agents=[busy(log)]) as worker:
        assert await (await worker.get(run)).result() == "Done."

    assert paused.resumes_itself
    assert agent_tools.lines(log).count("draft") == 1
    assert agent_tools.lines(log).count("tick") == TICKS


async def test_a_sub_run_of_a_worker_is_cancelled_with_its_parent(hosts: Hosts, witness: Witness) -> None:
    run = await hosts.begun("boss", witness.log)
    await until(lambda: "tick" in agent_tools.lines(witness.log))

    receipt = await hosts.control.cancel(run, by="ann")

    assert isinstance(receipt, Receipt)
    family = await hosts.front.runs()
    assert [row.status for row in family] == [Status.CANCELLED, Status.CANCELLED]
    assert await is_quiet(Path(witness.log))


async def test_a_runtime_that_may_not_drive_or_begin_runs_is_told_so_at_once(
    addresses: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = busy(tmp_path / "log")

    for role in ("front", "operator"):
        with pytest.raises(StoreForbidden, match=r"not let this user drive runs. Have its owner run GRANT \w+_worker"):
            await Runtime(addresses[role], agents=[agent]).open()
    async with Runtime(addresses["front"]) as reading:
        with pytest.raises(StoreForbidden, match="drive runs"):
            await reading.start(agent, "work")
    async with Runtime(addresses["worker"]) as driving:
        with pytest.raises(StoreForbidden, match=r"not let this user begin a run. Have its owner run GRANT \w+_front"):
            await driving.start(agent, "work")
        assert await driving.runs() == ()

    assert "Traceback" not in caplog.text
    assert agent_tools.lines(tmp_path / "log") == []
