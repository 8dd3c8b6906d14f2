"""Workers of the Temporal engine as processes, each on a host of its own as far as it can tell, on one PostgreSQL.

The witness is what the tools write themselves, and what Temporal says of its activities.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from checkrein.control.control import Control, Settling
from checkrein.control.start import StartRun, begin
from checkrein.core.enums import Answer, Status
from checkrein.engines.temporal import TemporalOptions
from checkrein.engines.temporal_activities import connect
from checkrein.journal import Journal, open_journal
from checkrein.processes.identity import this_process
from checkrein.secrets import Secrets
from tests.support import temporal as temporal_server
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.postgres import Cluster
from tests.support.temporal import TemporalServer
from tests.support.witness import Witness, until

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
LEASE_SECONDS = 3.0
HEARTBEAT_SECONDS = 2.0
VERB_SECONDS = 1.0
"""How long a verb may take, whatever Temporal does."""
ALONE = ["unshare", "--pid", "--uts", "--mount-proc", "--fork", "--kill-child"]
"""A host of its own: a pid means nothing in another one, so nobody there can tell that a process here is dead."""


class Worker:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def is_ready(self) -> None:
        await until(lambda: "ready" in self.log or self._process.poll() is not None)
        assert self._process.poll() is None, self.log

    def _signal(self, number: int) -> None:
        for process in psutil.Process(self._process.pid).children():
            process.send_signal(number)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def tell_to_end(self) -> None:
        self._signal(signal.SIGTERM)

    async def ended(self) -> int:
        """Its exit code."""
        await until(lambda: self._process.poll() is not None)
        return int(self._process.returncode)


class Site:
    """A front, without HTTP, and workers."""

    def __init__(self, store: str, journal: Journal, server: TemporalServer, witness: Witness, folder: Path) -> None:
        self.store, self.journal, self.server, self.witness, self.folder = store, journal, server, witness, folder
        self.options = TemporalOptions(address=server.address, namespace=server.new_namespace())
        self.control = Control(journal, this_process())
        self._processes: list[subprocess.Popen[bytes]] = []

    async def worker(self, *, slots: int = 50) -> Worker:
        log = self.folder / f"worker{len(self._processes)}.log"
        command = [sys.executable, "-m", "tests.engines.temporal_process", self.store]
        command += [
            self.options.address,
            self.options.namespace,
            str(slots),
            str(LEASE_SECONDS),
            str(HEARTBEAT_SECONDS),
        ]
        log.touch()
        process = subprocess.Popen(["sh", "-c", 'exec "$@" >"$0" 2>&1', str(log), *ALONE, *command], cwd=ROOT)
        self._processes.append(process)
        worker = Worker(process, log)
        await worker.is_ready()
        return worker

    async def begin(self, *steps: str) -> str:
        wanted = StartRun(agent="stepper", goal=" ".join([self.witness.log, *steps]))
        run, _ = await begin(
            self.journal, self.control, wanted, stop_when=None, secrets=Secrets.of(None), clock=self.journal.now
        )
        return run

    def let(self, *steps: str) -> None:
        for step in steps:
            Path(f"{self.witness.log}.{step}").touch()

    async def status(self, run: str) -> Status:
        return (await self.journal.load(run)).status

    async def all_are(self, status: Status, runs: list[str]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while any(state.status is not status for state in (await self.journal.states(runs)).values()):
                await asyncio.sleep(0.02)

    async def attempt(self, run: str) -> int:
        """The number of the attempt, as Temporal counts them."""
        client = await connect(self.options)
        return (await client.get_activity_handle(f"run:{run}").describe()).attempt

    async def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        await self.journal.close()


@asynccontextmanager
async def site_at(server: TemporalServer, postgres: Cluster, witness: Witness, folder: Path) -> AsyncIterator[Site]:
    name = postgres.new_schema()
    address = postgres.address(name)
    site = Site(address, await open_journal(address), server, witness, folder)
    try:
        yield site
    finally:
        await site.close()
        postgres.drop(name)


@pytest.fixture(autouse=True)
def can_be_alone() -> None:
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"], capture_output=True).returncode:
        pytest.skip("a process with a pid namespace of its own cannot be started here (unshare)")


@pytest.fixture
async def site(temporal: TemporalServer, postgres: Cluster, witness: Witness, tmp_path: Path) -> AsyncIterator[Site]:
    async with site_at(temporal, postgres, witness, tmp_path) as site:
        yield site


@pytest.fixture
def server_of_its_own() -> Iterator[TemporalServer]:
    with temporal_server.running() as server:
        yield server


@pytest.fixture
async def shaky(
    server_of_its_own: TemporalServer, postgres: Cluster, witness: Witness, tmp_path: Path
) -> AsyncIterator[Site]:
    """A site whose Temporal may be killed or frozen."""
    async with site_at(server_of_its_own, postgres, witness, tmp_path) as site:
        yield site


# -- workers


async def test_a_run_whose_worker_is_killed_in_the_middle_of_a_tool_is_taken_over_and_nothing_is_done_twice(site: Site):
    first = await site.worker()
    run = await site.begin("one", "two")
    await site.witness.saw("begin one")
    await site.worker()

    first.kill()
    killed = time.monotonic()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (await site.journal.load(run)).doubts:
            await asyncio.sleep(0.02)
    took = time.monotonic() - killed

    assert took <= within(max(LEASE_SECONDS, HEARTBEAT_SECONDS) + 3.0)
    (call,) = (await site.journal.load(run)).doubts
    await site.control.resolve(run, call, Answer.HAPPENED, by="ann")
    await site.witness.saw("begin two")
    site.let("two")
    await site.all_are(Status.COMPLETED, [run])
    assert site.witness.words() == ["begin one", "begin two", "end two"]


async def test_a_worker_that_is_told_to_end_hands_its_runs_to_another(site: Site):
    first = await site.worker()
    runs = [await site.begin(f"a{n}", f"b{n}") for n in range(5)]
    await site.witness.saw(*(f"begin a{n}" for n in range(5)))
    second = await site.worker()

    first.tell_to_end()
    await site.all_are(Status.PAUSING, runs)
    site.let(*(f"{s}{n}" for s in "ab" for n in range(5)))

    assert await first.ended() == 0
    await site.all_are(Status.COMPLETED, runs)
    assert sorted(site.witness.words()) == sorted(
        f"{word} {s}{n}" for word in ("begin", "end") for s in "ab" for n in range(5)
    )
    second.tell_to_end()
    assert await second.ended() == 0


async def test_a_tool_that_blocks_the_event_loop_costs_its_run_no_attempt(site: Site):
    await site.worker()
    run = await site.begin(f"long={2.5 * HEARTBEAT_SECONDS}", "one")

    await site.witness.saw("end long", "begin one")

    assert await site.attempt(run) == 1
    site.let("one")
    await site.all_are(Status.COMPLETED, [run])
    assert site.witness.words() == ["begin long", "end long", "begin one", "end one"]


# -- Temporal is away


def kill(server: TemporalServer) -> None:
    server.kill()


def freeze(server: TemporalServer) -> None:
    server.freeze()


BACK: dict[Callable[[TemporalServer], None], Callable[[TemporalServer], None]] = {
    kill: TemporalServer.start,
    freeze: TemporalServer.thaw,
}


async def verb(asked: object) -> float:
    """How long it took, in full."""
    begun = time.monotonic()
    receipt = await asked  # type: ignore[misc]
    assert not isinstance(receipt, Settling)
    return time.monotonic() - begun


async def drill(site: Site, away: Callable[[TemporalServer], None], *, runs: int, seconds: float) -> None:
    """A third of the runs is cancelled while Temporal is away, a third paused and resumed, a third just goes on; and
    new ones are begun meanwhile."""
    workers = [await site.worker(), await site.worker()]
    going = [await site.begin(f"a{n}", f"b{n}") for n in range(runs)]
    await site.witness.saw(*(f"begin a{n}" for n in range(runs)))
    cancelled, paused = going[0::3], going[1::3]

    away(site.server)
    since = time.monotonic()
    took = [await verb(site.control.cancel(run, by="ann")) for run in cancelled]
    pausing = [asyncio.create_task(site.control.pause(run, by="ann", wait=PATIENCE_SECONDS)) for run in paused]
    await site.all_are(Status.PAUSING, paused)
    site.let(*(f"a{n}" for n in range(runs)))
    await asyncio.gather(*pausing)
    took += [await verb(site.control.resume(run, by="ann")) for run in paused]
    waiting = [await site.begin(f"c{n}") for n in range(runs)]
    await site.witness.saw(*(f"begin b{n}" for n in range(runs) if n % 3))
    await asyncio.sleep(max(0.0, since + seconds - time.monotonic()))
    assert {await site.status(run) for run in waiting} == {Status.QUEUED}
    await asyncio.to_thread(BACK[away], site.server)

    site.let(*(f"{s}{n}" for s in "bc" for n in range(runs)))
    await site.all_are(Status.COMPLETED, [*(run for run in going if run not in cancelled), *waiting])
    await site.all_are(Status.CANCELLED, cancelled)
    print(f"{len(took)} verbs: the slowest took {max(took) * 1000:.0f} ms")
    assert max(took) <= within(VERB_SECONDS)
    words = site.witness.words()
    assert len(words) == len(set(words)), "something was done twice"
    for worker in workers:
        assert worker.log.count("runs are not placed while Temporal is away") == 1, worker.log
        worker.tell_to_end()
        assert await worker.ended() == 0


@pytest.mark.parametrize("away", BACK, ids=["killed", "frozen"])
async def test_while_temporal_is_away_verbs_work_and_runs_go_on_and_afterwards_all_are_placed(
    shaky: Site, away: Callable[[TemporalServer], None]
):
    await drill(shaky, away, runs=6, seconds=2.5 * HEARTBEAT_SECONDS)


@pytest.mark.torture
@pytest.mark.parametrize("away", BACK, ids=["killed", "frozen"])
async def test_fifty_runs_get_over_half_a_minute_without_temporal(shaky: Site, away: Callable[[TemporalServer], None]):
    await drill(shaky, away, runs=50, seconds=30.0)


async def test_a_worker_that_is_told_to_end_while_temporal_is_away_ends_in_order(shaky: Site):
    worker = await shaky.worker()
    run = await shaky.begin("one", "two")
    await shaky.witness.saw("begin one")

    shaky.server.freeze()
    worker.tell_to_end()
    await shaky.all_are(Status.PAUSING, [run])
    shaky.let("one", "two")

    assert await worker.ended() == 0
    assert "ended" in worker.log
    shaky.server.thaw()
    await shaky.worker()
    await shaky.all_are(Status.COMPLETED, [run])
    assert shaky.witness.words() == ["begin one", "end one", "begin two", "end two"]
