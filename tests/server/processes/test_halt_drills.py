"""Drills of the kill switch with `checkrein worker`, `serve` and PostgreSQL: whatever is down, a halt ends what works.

Several runs are halted at once, so that one halt is as many drills; where drivers are stuck each run has its own one.
The witness is the log that the tools write themselves, and the process table. `make torture` repeats each drill.
"""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from checkrein.control.control import Control
from checkrein.control.start import StartRun, begin
from checkrein.core.enums import Status
from checkrein.core.events import CallStarted
from checkrein.journal import Journal, open_journal
from checkrein.journal.base import Fence, Scope
from checkrein.processes.identity import this_process
from checkrein.secrets import Secrets
from checkrein.timings import DRIVER_SILENT_SECONDS
from tests.cli.shell import Done, Started, until
from tests.server.processes.serving import Place, Server, new_place
from tests.support import temporal as temporal_server
from tests.support.cut_network import CutNetwork
from tests.support.hosts import Host, need_hosts
from tests.support.patience import within
from tests.support.postgres import Cluster, running

SAMPLE = Path(__file__).parent / "samples" / "ticker.py"
AT_ONCE = 5
ONE_RUN_EACH = ("--drivers", str(AT_ONCE), "--slots", "1")
ALL_IN_ONE = ("--drivers", "1", "--slots", str(AT_ONCE))
"""Where the drill is the same for each run: a driver takes long to start."""
LONG = ("--lease-seconds", "60")
"""Where the lease is not what stops them: on a busy machine none shall be lost by the way."""
LEASE_SECONDS = 5.0
STOP_SECONDS = 3.0
"""How long what is in flight may go on after a halt, on the host where it was asked for."""
TIMES = [1, pytest.param(4, marks=pytest.mark.torture)]
KINDS = ("task", "process")


class Site:
    """Workers over one PostgreSQL, and the tools' log."""

    def __init__(self, place: Place, cluster: Cluster, store: str, portal: BlockingPortal, journal: Journal) -> None:
        self.place = place
        self.cluster = cluster
        self.store = store
        self._portal = portal
        self._journal = journal
        self._numbers = itertools.count(1)

    # -- workers

    def worker(self, *options: str) -> Started:
        started = self.place.shell.start("worker", "ticker.py", *options)
        started.until("drives: ")
        return started

    def drivers(self, worker: Started) -> list[int]:
        children = psutil.Process(worker.process.pid).children()
        return [one.pid for one in children if "driver_main" in " ".join(one.cmdline())]

    # -- runs

    def at_work(self, kinds: tuple[str, ...] = KINDS, count: int = AT_ONCE) -> list[str]:
        """New runs whose tools are at work."""
        goals = [f"{kinds[n % len(kinds)]}:n{next(self._numbers)}" for n in range(count)]
        runs = [self._begin(goal) for goal in goals]
        until(lambda: all(self.ticks(goal) for goal in goals), lambda: f"not at work: {self.place.shell.words()[-20:]}")
        return runs

    def _begin(self, goal: str) -> str:
        async def created() -> str:
            wanted, control = StartRun(agent="ticker", goal=goal), Control(self._journal, this_process())
            run, _ = await begin(
                self._journal, control, wanted, stop_when=None, secrets=Secrets.of(None), clock=self._journal.now
            )
            return run

        return self._portal.call(created)

    def statuses(self, runs: list[str]) -> set[Status]:
        return {self._portal.call(self._journal.load, run).status for run in runs}

    def permits(self, runs: list[str]) -> int:
        records = [record for run in runs for record in self._portal.call(self._journal.read, run)]
        return sum(isinstance(record.event, CallStarted) for record in records)

    # -- what tools wrote

    def ticks(self, goal: str = "") -> list[float]:
        """When the tool of this goal, or any, said that it works."""
        name = goal.rpartition(":")[2]
        lines = (
            [line.split(maxsplit=2) for line in self.place.shell.log.read_text().splitlines()] if self._has_log else []
        )
        return [float(at) for at, _, word in lines if word.strip() == f"tick {name}" or (not name and "tick" in word)]

    @property
    def _has_log(self) -> bool:
        return self.place.shell.log.exists()

    def quiet_since(self) -> float:
        """Return when nothing ticks any more, and when the last tick was."""

        def is_quiet() -> bool:
            before = self.place.shell.log.stat().st_size
            time.sleep(0.5)  # ten ticks of one tool
            return self.place.shell.log.stat().st_size == before

        until(is_quiet, lambda: "its tools go on")
        assert "woke" not in self.place.shell.log.read_text()
        return self.ticks()[-1]

    # -- the kill switch

    def halt(self, **variables: str) -> Done:
        return self.place.shell.do("halt", "all", "--reason", "a drill", "--wait", "0", "--json", **variables)

    def fence(self) -> None:
        self._portal.call(self._journal.fence, Fence(scope=Scope.ALL, by="op", at=time.time()))

    def reset(self) -> None:
        """Nothing is halted, and every run is over."""
        done = self.place.shell.say("halt", "all", "--json")
        assert done.code == 0, done.err
        done = self.place.shell.say("reset", "all")
        assert done.code == 0, done.err


def said(done: Done, step: str) -> dict[str, object]:
    (found,) = [line for line in map(json.loads, done.out.splitlines()) if line["step"] == step]
    return dict(found)


@contextmanager
def new_site(folder: Path, cluster: Cluster) -> Iterator[Site]:
    schema = cluster.new_schema()
    store = cluster.address(schema)
    with new_place(folder) as place, start_blocking_portal() as portal:
        shutil.copy(SAMPLE, place.shell.folder)
        place.shell.environment |= {"CHECKREIN_STORE": store, "CHECKREIN_HALT_DIR": str(folder / "halts")}
        journal = portal.call(open_journal, store)
        try:
            yield Site(place, cluster, store, portal, journal)
        finally:
            portal.call(journal.close)


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A server of its own, which may be stopped without disturbing other tests."""
    with running() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def site(own_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with new_site(tmp_path_factory.mktemp("halts"), own_cluster) as site:
        yield site


@pytest.fixture(scope="module")
def worker(site: Site) -> Started:
    return site.worker(*ONE_RUN_EACH, *LONG)


@pytest.mark.parametrize("times", TIMES)
def test_drivers_of_a_worker_that_are_stuck_are_ended_by_a_fence_that_nobody_told_them_of(
    site: Site, worker: Started, times: int
) -> None:
    """D16, D35: only the fence is written, by somebody who signals nobody; the drivers' parent reads it itself."""
    for _ in range(times):
        until(lambda: len(site.drivers(worker)) == AT_ONCE)
        runs = site.at_work(("python", "c"))
        drivers = site.drivers(worker)
        began = time.monotonic()

        site.fence()
        until(lambda drivers=drivers: not any(map(psutil.pid_exists, drivers)))  # type: ignore[misc]

        # Without a halt a worker ends a silent driver too, but far later.
        assert time.monotonic() - began < DRIVER_SILENT_SECONDS / 2
        site.quiet_since()
        assert site.permits(runs) == AT_ONCE
        site.reset()


@pytest.mark.parametrize("times", TIMES)
def test_with_the_front_down_a_halt_ends_what_its_workers_do(site: Site, worker: Started, times: int) -> None:
    for _ in range(times):
        front = Server(site.place.shell.start("serve", "--port", "0"))
        runs = site.at_work()
        assert {run["id"] for run in front.client.get("/api/runs")["runs"]} >= set(runs)
        front.started.process.kill()
        front.started.wait()
        asked = time.time()

        halted = site.halt()

        assert halted.code == 0, halted.err
        assert site.quiet_since() - asked < within(STOP_SECONDS)
        assert site.statuses(runs) == {Status.KILLED}
        assert site.permits(runs) == AT_ONCE
        site.reset()


@pytest.mark.parametrize("times", TIMES)
def test_with_postgresql_down_the_flag_ends_what_its_host_does_and_holds_when_it_is_back(
    site: Site, worker: Started, times: int
) -> None:
    """Exit code 6: nothing is in the store, and nothing is in force on other hosts."""
    for _ in range(times):
        runs = site.at_work()
        site.cluster.stop("immediate")
        asked = time.time()

        halted = site.halt()
        quiet = site.quiet_since()

        assert halted.code == 6
        assert "on this host only" in str(said(halted, "fence")["message"])
        assert quiet - asked < within(STOP_SECONDS)
        site.cluster.start()
        again = site.halt()
        assert again.code == 0, again.err
        until(lambda runs=runs: site.statuses(runs) == {Status.KILLED})  # type: ignore[misc]
        assert site.quiet_since() == quiet
        assert site.permits(runs) == AT_ONCE
        site.reset()


@pytest.mark.parametrize("times", TIMES)
def test_with_temporal_down_a_halt_ends_what_its_workers_do(
    own_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, times: int
) -> None:
    with temporal_server.running() as temporal, new_site(tmp_path_factory.mktemp("temporal"), own_cluster) as site:
        options = ("--engine", "temporal", "--temporal", temporal.address, "--namespace", temporal.new_namespace())
        site.worker(*ALL_IN_ONE, *LONG, *options)
        for _ in range(times):
            runs = site.at_work()
            temporal.kill()
            asked = time.time()

            halted = site.halt()

            assert halted.code == 0, halted.err
            assert site.quiet_since() - asked < within(STOP_SECONDS)
            assert site.statuses(runs) == {Status.KILLED}
            site.reset()
            temporal.start()


@pytest.mark.parametrize("times", TIMES)
def test_of_two_hosts_the_one_that_is_cut_off_stops_by_its_lease(
    own_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, times: int
) -> None:
    """It hears of nothing: neither of the fence, nor of the flag, which is a file of the other host."""
    need_hosts()
    folder = tmp_path_factory.mktemp("hosts")
    with new_site(folder, own_cluster) as site:
        for number in range(times):
            with CutNetwork(own_cluster.port) as network:
                there = Host(
                    site.place.shell,
                    f"there{number}",
                    *("worker", "ticker.py", *ALL_IN_ONE, "--lease-seconds", str(LEASE_SECONDS)),
                    CHECKREIN_STORE=site.store.replace(f":{own_cluster.port}/", f":{network.port}/"),
                    CHECKREIN_HALT_DIR=str(folder / f"halts-there{number}"),
                )
                there.started.until("drives: ")
                runs = site.at_work()
                network.is_cut = True
                asked = time.time()

                halted = site.halt()
                answered = time.time()

                assert halted.code == 0, halted.err
                assert set(said(halted, "ended")["unconfirmed"]) == set(runs)  # type: ignore[call-overload]
                quiet = site.quiet_since()
                print(f"\ncut off: answered after {answered - asked:.1f} s, quiet after {quiet - asked:.1f} s")
                assert quiet - asked < LEASE_SECONDS + within(1.0)
                assert site.statuses(runs) == {Status.KILLED}
                assert site.permits(runs) == AT_ONCE
                there.kill()
            site.reset()
