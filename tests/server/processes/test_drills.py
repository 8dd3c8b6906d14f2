"""Workers on hosts of their own, killed, frozen, told to end and replaced, by either engine, over one PostgreSQL.

The witness is the log of the tools: what they did, on which host, and where each found its permit in the journal.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from checkrein.control.control import Control
from checkrein.control.start import StartRun, begin
from checkrein.core.enums import Answer, Outcome, Status
from checkrein.core.events import CallAnswered, CallFinished, RunStarted
from checkrein.core.state import State
from checkrein.errors import Refused
from checkrein.journal import Journal, Recorded, open_journal
from checkrein.processes.identity import this_process
from checkrein.secrets import Secrets
from tests.cli.shell import until
from tests.server.processes.serving import Place, Server, new_place
from tests.server.processes.test_two_fronts import hashes, pieces
from tests.support.hosts import Host, need_hosts
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.postgres import Cluster
from tests.support.temporal import TemporalServer
from tests.torture.crash.runtime.check import Story, a_former_owner_only_answers, only_the_owner_permits

SAMPLE = Path(__file__).parent / "samples" / "drill.py"
LEASE_SECONDS = 5.0
SHORT = ("--lease-seconds", str(LEASE_SECONDS))
ONE_RUN = (*SHORT, "--slots", "1")
AT_ONCE = 10
"""How many hosts are killed or frozen at the same time: each of them costs a start, all of them one lease."""
LONG = ("--lease-seconds", "30")
"""Where no host falls silent: on a busy machine none shall be taken for one that has."""
TAKEOVER_SECONDS = {"leases": LEASE_SECONDS + 2.0, "temporal": LEASE_SECONDS + 3.0}
"""From a kill until somebody else has the run. Heartbeats to Temporal are as far apart as a lease is long."""
NAMED_SECONDS = 3.0
"""From when a worker of a dead one's name is there until it is known that the calls of the dead one are not made any
more. A driver asks every second."""
CHILD = "time.sleep(300)"
"""What the child of a tool does, which `cruncher` calls."""
KINDS = ("task", "process")


class Begun(NamedTuple):
    """What a tool wrote of its beginning."""

    name: str
    host: str
    permit: int


class Site:
    """Hosts with workers of one engine, and one PostgreSQL."""

    def __init__(
        self, place: Place, engine: str, options: tuple[str, ...], portal: BlockingPortal, journal: Journal
    ) -> None:
        self.place = place
        self.engine = engine
        self.hosts: list[Host] = []
        self._options = options
        self._portal = portal
        self._journal = journal
        self._control = Control(journal, this_process())
        self._numbers = itertools.count(1)

    # -- hosts

    def host(self, *arguments: str, worker: str = "", version: str = "") -> Host:
        """A new one, with a worker that drives. It is called like its host, if it is not given a name."""
        name = f"host{next(self._numbers)}"
        options = ["--name", worker or name, *self._options, *(arguments or SHORT)]
        options += ["--version", version] if version else []
        host = Host(self.place.shell, name, "worker", "drill.py", "crew.py", *options, DRILL_VERSION=version)
        self.hosts.append(host)
        host.started.until("drives: ")
        return host

    def have(self, count: int, *arguments: str, version: str = "") -> list[Host]:
        """So many hosts, those that are there included."""
        self.hosts = [host for host in self.hosts if host.is_up]
        with ThreadPoolExecutor(max_workers=4) as pool:  # more would keep each other, and Temporal, from answering
            list(pool.map(lambda _: self.host(*arguments, version=version), range(count - len(self.hosts))))
        return list(self.hosts)

    def clear(self) -> None:
        for host in self.hosts:
            if host.is_up:
                host.kill()
        self.hosts = []

    # -- runs

    def name(self) -> str:
        return f"n{next(self._numbers)}"

    def begin(self, agent: str, goal: str) -> str:
        async def created() -> str:
            wanted = StartRun(agent=agent, goal=goal)
            run, _ = await begin(
                self._journal, self._control, wanted, stop_when=None, secrets=Secrets.of(None), clock=self._journal.now
            )
            return run

        return self._portal.call(created)

    def state(self, run: str) -> State:
        return self._portal.call(self._journal.load, run)

    def records(self, run: str) -> tuple[Recorded, ...]:
        return self._portal.call(self._journal.read, run)

    def drivers(self, run: str) -> list[RunStarted]:
        """Whoever took it up, in order."""
        return [record.event for record in self.records(run) if isinstance(record.event, RunStarted)]

    def driven_on(self, run: str) -> str:
        """The host of whoever took it up last."""
        drivers = self.drivers(run)
        return drivers[-1].host.partition("/")[0] if drivers else ""

    def is_driven(self, run: str, *, not_on: Host) -> None:
        """Return when somebody on another host has taken it up."""
        until(lambda: self.driven_on(run) not in ("", not_on.name), lambda: f"{run}: {self.state(run)}")

    def is_answered_for(self, run: str) -> None:
        """Return when nobody may still make one of its calls that are in doubt."""
        until(lambda: not any(doubt.unanswered for doubt in self.state(run).doubts.values()))

    def resolve(self, run: str, call: str, answer: Answer) -> None:
        async def resolved() -> None:
            await self._control.resolve(run, call, answer, by="ann")

        self._portal.call(resolved)

    def complete(self, *runs: str) -> None:
        """Return when all are completed; meanwhile a person says of calls in doubt that they happened."""
        for run in runs:
            until(partial(self._is_completed, run), lambda: "; ".join(f"{run}: {self.state(run)}" for run in runs))

    def _is_completed(self, run: str) -> bool:
        state = self.state(run)
        for call, doubt in state.doubts.items():
            if doubt.person and not doubt.unanswered:
                with suppress(Refused):  # its former owner has just told
                    self.resolve(run, call, Answer.HAPPENED)
        assert not state.is_finished or state.status is Status.COMPLETED, state
        return state.is_finished

    def enough(self) -> None:
        """Let every `looper` come to its end."""
        self._gate.touch()

    def not_enough(self) -> None:
        self._gate.unlink(missing_ok=True)

    @property
    def _gate(self) -> Path:
        return Path(f"{self.place.shell.log}.enough")

    # -- what tools wrote

    def begun(self, name: str = "") -> list[Begun]:
        """Of this name, or of any that begins with it."""
        words = [word.split() for word in self.place.shell.words() if word.startswith("begin ")]
        every = [Begun(word[1], word[2], int(word[3])) for word in words]
        return [one for one in every if not name or one.name == name or one.name.startswith(f"{name}.")]

    def saw(self, name: str, times: int = 1) -> Begun:
        """Return when it has begun, and how it did last."""
        until(lambda: len(self.begun(name)) >= times, lambda: f"{name} has not begun: {self.place.shell.words()[-20:]}")
        return self.begun(name)[-1]

    def at(self, name: str) -> Host:
        (found,) = [host for host in self.hosts if host.name == name]
        return found

    def check(self, *runs: str) -> None:
        """Nothing was done twice, nothing without a permit of whoever had the run then."""
        times = Counter(one.name for one in self.begun())
        assert not [name for name, count in times.items() if count > 1], "something was done twice"
        assert not [one for one in self.begun() if not one.permit], "something was done without a permit"
        for run in runs:
            story = Story(run, self.records(run), [])
            assert not [*a_former_owner_only_answers(story), *only_the_owner_permits(story)]


@pytest.fixture(scope="module", params=["leases", "temporal"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres: Cluster) -> Iterator[Site]:
    need_hosts()
    schema = postgres.new_schema()
    store = postgres.address(schema)
    options: tuple[str, ...] = ()
    if request.param == "temporal":
        server: TemporalServer = request.getfixturevalue("temporal")
        options = ("--engine", "temporal", "--temporal", server.address, "--namespace", server.new_namespace())
    with new_place(tmp_path_factory.mktemp("drills")) as place, start_blocking_portal() as portal:
        shutil.copy(SAMPLE, place.shell.folder)
        place.shell.environment |= {"CHECKREIN_STORE": store, "DRILL_STORE": store}
        journal = portal.call(open_journal, store)
        try:
            yield Site(place, request.param, options, portal, journal)
        finally:
            portal.call(journal.close)
    postgres.drop(schema)


# -- killed


def one_on_each(site: Site, goals: list[str], agent: str) -> list[str]:
    """Runs of these goals that have begun, each on a host of its own."""
    runs = [site.begin(agent, goal) for goal in goals]

    def are_apart() -> bool:
        # A host that lost a lease on a busy machine takes up another run before somebody has taken up the first.
        hosts = [site.driven_on(run) for run in runs]
        return all(hosts) and len(set(hosts)) == len(hosts)

    until(are_apart, lambda: f"each drives one at a time: {[site.driven_on(run) for run in runs]}")
    return runs


def kill_in_the_middle_of_a_tool(site: Site) -> list[float]:
    """Kill several hosts, each of which is at a tool; how long it took until others had their runs."""
    site.have(AT_ONCE, *ONE_RUN)
    names = [site.name() for _ in range(AT_ONCE)]
    kinds = [KINDS[n % 2] for n in range(AT_ONCE)]
    goals = [f"{kind}:{name}.1=600 {kind}:{name}.2=0" for kind, name in zip(kinds, names, strict=True)]
    runs = one_on_each(site, goals, "stepper")
    where = [site.saw(f"{name}.1").host for name in names]
    site.have(2 * AT_ONCE, *ONE_RUN)

    killed, taken = dict[str, float](), dict[str, float]()
    for run, host in zip(runs, where, strict=True):
        time.sleep(random.uniform(0.0, 0.05))
        site.at(host).kill()
        killed[run] = time.monotonic()

    def are_taken() -> bool:
        taken.update({run: time.monotonic() for run in runs if run not in taken and site.state(run).doubts})
        return len(taken) == len(runs)

    until(are_taken, lambda: f"not taken up: {[site.state(run) for run in runs if run not in taken]}")
    for run, name, host in zip(runs, names, where, strict=True):
        assert site.driven_on(run) not in ("", host)
        ((call, doubt),) = site.state(run).doubts.items()
        assert doubt.unanswered, "nobody can tell that the other host is dead"
        site.resolve(run, call, Answer.HAPPENED)
        assert site.saw(f"{name}.2").host != host
    site.complete(*runs)
    site.check(*runs)
    return [taken[run] - killed[run] for run in runs]


def kill_many(site: Site, times: int) -> None:
    site.clear()
    took = [one for _ in range(times // AT_ONCE) for one in kill_in_the_middle_of_a_tool(site)]
    print(f"\n{site.engine}: {len(took)} killed, taken over after {[f'{one:.2f}' for one in sorted(took)[-10:]]} s")
    assert len(took) == times
    assert max(took) <= within(TAKEOVER_SECONDS[site.engine])


def test_twenty_hosts_die_in_the_middle_of_a_tool_others_have_the_runs_soon_and_nothing_is_done_twice(
    site: Site,
) -> None:
    kill_many(site, 20)


@pytest.mark.torture
def test_two_hundred_hosts_die_in_the_middle_of_a_tool(site: Site) -> None:
    kill_many(site, 200)


def test_a_worker_of_the_same_name_answers_for_what_its_predecessor_was_at(site: Site) -> None:
    site.have(2)
    name = site.name()
    run = site.begin("stepper", f"task:{name}.1=600 task:{name}.2=0")
    dead = site.at(site.saw(f"{name}.1").host)

    dead.kill()
    until(lambda: site.state(run).doubts)
    ((call, doubt),) = site.state(run).doubts.items()
    assert doubt.unanswered == (1,), "nobody can tell that the other host is dead"
    site.host(worker=dead.name)
    began = time.monotonic()
    site.is_answered_for(run)
    took = time.monotonic() - began

    assert took <= within(NAMED_SECONDS)
    answers = [record.event for record in site.records(run) if isinstance(record.event, CallAnswered)]
    assert [(answer.call, answer.epoch, answer.outcome) for answer in answers] == [(call, 1, Outcome.IN_DOUBT)]
    site.complete(run)
    site.check(run)


# -- frozen


def freeze_past_the_lease(site: Site, at_once: int) -> int:
    """Freeze several hosts, each of which is at a tool; how many calls they have answered for afterwards."""
    site.have(2 * at_once, *ONE_RUN)
    site.not_enough()
    names = [site.name() for _ in range(at_once)]
    runs = one_on_each(site, [f"{KINDS[n % 2]}:{name}=0.2" for n, name in enumerate(names)], "looper")
    for name in names:
        site.saw(name)
    frozen = [site.at(site.driven_on(run)) for run in runs]
    time.sleep(random.uniform(0.0, 0.4))

    for host in frozen:
        host.freeze()
    for run, host in zip(runs, frozen, strict=True):
        site.is_driven(run, not_on=host)
    time.sleep(random.uniform(0.0, 0.4))
    for host in frozen:
        host.thaw()

    # Whatever was in flight, its former owner answers for: nobody else could.
    for run in runs:
        site.is_answered_for(run)
    site.enough()
    site.complete(*runs)
    site.check(*runs)
    for run, name in zip(runs, names, strict=True):
        check_permits_are_older(site, run, name)
    return sum(isinstance(record.event, CallAnswered) for run in runs for record in site.records(run))


def check_permits_are_older(site: Site, run: str, name: str) -> None:
    """What began on a host, whenever, began with a permit from when the run was driven there."""
    epochs = {record.seq: record.event for record in site.records(run) if isinstance(record.event, RunStarted)}
    for one in site.begun(name):
        owner = epochs[max(seq for seq in epochs if seq < one.permit)]
        assert owner.host.partition("/")[0] == one.host, f"{one} has a permit of {owner}"


def freeze_many(site: Site, times: int, at_once: int = AT_ONCE) -> None:
    answered = [freeze_past_the_lease(site, at_once) for _ in range(times // at_once)]
    print(f"\n{site.engine}: {times} hosts frozen, {sum(answered)} calls answered for")


def test_hosts_that_were_frozen_past_their_lease_only_answer_for_their_calls(site: Site) -> None:
    freeze_many(site, 4, at_once=4)


@pytest.mark.torture
def test_two_hundred_hosts_that_were_frozen_past_their_lease_only_answer_for_their_calls(site: Site) -> None:
    freeze_many(site, 200)


# -- told to end


def roll(site: Site, *, hosts: int, runs: int, rounds: int) -> None:
    """Every host is replaced by a new one, again and again, while runs are at work."""
    site.clear()
    site.have(hosts, *LONG)
    site.not_enough()
    names = [site.name() for _ in range(runs)]
    begun = [site.begin("looper", f"{KINDS[n % 2]}:{name}=0.3") for n, name in enumerate(names)]
    for name in names:
        site.saw(name)

    for _ in range(rounds):
        for host in site.have(hosts):
            assert host.end() == 0, host.started.text
            site.host(*LONG)

    site.enough()
    site.complete(*begun)
    site.check(*begun)
    ends = [r.event for run in begun for r in site.records(run) if isinstance(r.event, CallFinished)]
    assert {end.outcome for end in ends} == {Outcome.COMPLETED}, "what is told to end lets its tools finish"


def test_hosts_are_replaced_one_after_the_other_and_every_run_finishes(site: Site) -> None:
    roll(site, hosts=2, runs=8, rounds=1)


@pytest.mark.torture
def test_three_hosts_are_replaced_five_times_and_fifty_runs_finish(site: Site) -> None:
    roll(site, hosts=3, runs=50, rounds=5)


# -- replaced by another version


def test_while_another_version_comes_every_run_stays_with_the_version_that_began_it(site: Site) -> None:
    """Its program would diverge at once: no call has the same arguments in both versions."""
    site.clear()
    site.not_enough()
    old = site.have(2, *LONG, version="v1")
    names = [site.name() for _ in range(4)]
    early = [site.begin("changed", name) for name in names]
    for name in names:
        site.saw(name)
    new = site.host(*LONG, version="v2")

    assert old[0].end() == 0
    for run in early:
        site.is_driven(run, not_on=old[0])
        assert site.driven_on(run) == old[1].name
    names = [site.name() for _ in range(4)]
    late = [site.begin("changed", name) for name in names]
    for name in names:
        site.saw(name)
    site.enough()
    site.complete(*early, *late)
    assert old[1].end() == 0
    last = site.begin("changed", site.name())
    site.complete(last)

    drivers = {run: {driver.version for driver in site.drivers(run)} for run in (*early, *late, last)}
    assert all(len(versions) == 1 for versions in drivers.values()), drivers
    assert {version for run in early for version in drivers[run]} == {"v1"}
    assert site.driven_on(last) == new.name
    site.check(*early, *late, last)


# -- full


def test_slots_full_of_runs_that_wait_for_their_sub_runs_are_no_deadlock(site: Site) -> None:
    site.clear()
    site.not_enough()
    hosts = site.have(2, *LONG, "--slots", "2")
    names = [site.name() for _ in range(8)]

    runs = [site.begin("parent", name) for name in names]

    site.complete(*runs)
    where = [site.driven_on(run) for run in runs]
    assert set(where) == {host.name for host in hosts}
    for name, host in zip(names, where, strict=True):
        assert [one.host for one in site.begun(name)] == [host] * 4, "sub-runs go with their parent"
    site.check(*runs)


# -- seen and stopped from elsewhere


def test_a_front_on_one_host_stops_a_call_on_another_and_a_third_shows_all_that_was_said(site: Site) -> None:
    hosts = site.have(2)
    here, there = [Server(Host(site.place.shell, f"front{n}", "serve", "--port", "0").started) for n in range(2)]
    crunching, talking = here.client.start("cruncher"), here.client.start("talker")
    site.place.shell.child()
    assert sum(host.count(CHILD) for host in hosts) == 1
    readings = [server.client.read(f"/api/runs/{talking}/events") for server in (here, there)]
    until(lambda: all(len(reading.text()) > 100 for reading in readings))

    stopped = [there.client.verb(run, "cancel", wait=30) for run in (crunching, talking)]

    assert [answer.body["status"] for answer in stopped] == ["cancelled", "cancelled"]
    assert sum(host.count(CHILD) for host in hosts) == 0, "the child of the tool lives on"
    assert [reading.wait_for_end(PATIENCE_SECONDS) for reading in readings] == ["ended", "ended"]
    recorded = hashes(readings[0])
    assert recorded
    for reading in readings:
        assert hashes(reading) == recorded
        said = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in pieces(reading).items()}
        assert said == recorded
