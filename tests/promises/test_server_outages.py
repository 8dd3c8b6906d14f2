"""A PostgreSQL server that goes away under runs, or has no room, and comes back: every call of a tool is made once.

The witness is the log that the tool writes itself. Where a run was lost, a person looks into it to say what happened.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from asyncio import CancelledError
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from anyio import to_thread

from checkrein import Run, Runtime
from checkrein.core.enums import Outcome, Status
from checkrein.core.events import CallFinished, CallStarted, Event, RunStarted
from checkrein.errors import Refused, StoreFull, StoreUnavailable
from tests.support.patience import PATIENCE_SECONDS
from tests.support.postgres import Cluster, running
from tests.support.senders import sender
from tests.support.small_disk import fill, small_disk
from tests.support.witness import Witness, note, until

pytestmark = pytest.mark.anyio

E = TypeVar("E", bound=Event)

CALLS_BEFORE, CALLS_AFTER = 3, 3
"""How many calls each run makes before the first outage and after the last one, at least."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A server of its own, which may be stopped without disturbing other tests."""
    with running() as cluster:
        yield cluster


@pytest.fixture
def address(cluster: Cluster) -> Iterator[str]:
    schema = cluster.new_schema()
    yield cluster.address(schema)
    cluster.drop(schema)


async def sent(witness: Witness, runs: list[Run], more: int) -> None:
    """Return when each of these runs has sent so many more."""
    before = per_run(witness)
    for run in runs:
        await until(lambda run=run: per_run(witness)[run.id] >= before[run.id] + more)  # type: ignore[misc]


def per_run(witness: Witness) -> Counter[str]:
    return Counter(word.rpartition("-")[0] for word in witness.words())


def go_away(cluster: Cluster, seconds: float) -> None:
    cluster.stop()
    time.sleep(seconds)
    cluster.start()


async def say_what_happened(run: Run, witness: Witness) -> None:
    """A person who looks into the log, as long as there are calls of which nobody knows whether they happened."""
    while True:
        try:
            for call in (await run.state()).doubts:
                what = await sent_by(run, call)
                happened = bool(witness.lines(what))
                await run.resolve(call, "happened" if happened else "did_not_happen", result=what if happened else None)
        except (StoreUnavailable, Refused):
            pass  # the server is away, or the doubt is over
        await asyncio.sleep(0.1)


async def sent_by(run: Run, call: str) -> str:
    permits = [event.call for event in await events(run, CallStarted) if event.name == "send"]
    return f"{run.id}-{list(dict.fromkeys(permits)).index(call)}"


async def events(run: Run, kind: type[E]) -> list[E]:
    records = await run._runtime.journal.read(run.id)
    return [record.event for record in records if isinstance(record.event, kind)]


@asynccontextmanager
async def at_work(address: str, witness: Witness, runs: int, lease_seconds: float) -> AsyncIterator[list[Run]]:
    """Runs that send, from before an outage until after it; then each ends, and has sent everything once."""
    async with Runtime(address, agents=[sender], lease_seconds=lease_seconds) as runtime:
        begun = [await runtime.start(sender, witness.log) for _ in range(runs)]
        people = [asyncio.create_task(say_what_happened(run, witness)) for run in begun]
        await sent(witness, begun, CALLS_BEFORE)

        yield begun

        await sent(witness, begun, CALLS_AFTER)
        note(f"{witness.log}.enough", "enough")
        async with asyncio.timeout(PATIENCE_SECONDS):
            made = {run.id: await run.result() for run in begun}
        for person in people:
            person.cancel()
        assert {type(ended) for ended in await asyncio.gather(*people, return_exceptions=True)} == {CancelledError}
        assert [await run.status() for run in begun] == [Status.COMPLETED] * runs
        assert set(Counter(witness.words()).values()) == {1}
        assert per_run(witness) == made


async def ends(run: Run) -> set[Outcome]:
    return {event.outcome for event in await events(run, CallFinished)}


async def times_taken_up(run: Run) -> int:
    return len(await events(run, RunStarted))


async def test_an_outage_that_is_shorter_than_the_lease_costs_no_call(address: str, cluster: Cluster, witness: Witness):
    async with at_work(address, witness, 6, lease_seconds=PATIENCE_SECONDS) as runs:
        await to_thread.run_sync(go_away, cluster, 2.0)
        await sent(witness, runs, CALLS_AFTER)

        assert [await ends(run) for run in runs] == [{Outcome.COMPLETED}] * 6
        assert [await times_taken_up(run) for run in runs] == [1] * 6


@pytest.mark.torture
async def test_ten_outages_of_two_seconds_cost_no_call(address: str, cluster: Cluster, witness: Witness):
    async with at_work(address, witness, 20, lease_seconds=15.0) as runs:
        for _ in range(10):
            await to_thread.run_sync(go_away, cluster, 2.0)
            await sent(witness, runs, CALLS_AFTER)

        assert [await ends(run) for run in runs] == [{Outcome.COMPLETED}] * 20
        assert [await times_taken_up(run) for run in runs] == [1] * 20


async def cut_connections(cluster: Cluster, witness: Witness, runs: list[Run], connections: int) -> None:
    """Have the server end so many connections of these runs, and see each time that they go on."""
    cut = 0
    while cut < connections:
        cut += await to_thread.run_sync(cluster.terminate_backends)
        await sent(witness, runs, 1)


async def test_connections_that_the_server_ends_cost_no_call(address: str, cluster: Cluster, witness: Witness):
    async with at_work(address, witness, 6, lease_seconds=PATIENCE_SECONDS) as runs:
        await cut_connections(cluster, witness, runs, 20)

        assert [await ends(run) for run in runs] == [{Outcome.COMPLETED}] * 6
        assert [await times_taken_up(run) for run in runs] == [1] * 6


@pytest.mark.torture
async def test_500_connections_that_the_server_ends_cost_no_call(address: str, cluster: Cluster, witness: Witness):
    async with at_work(address, witness, 20, lease_seconds=15.0) as runs:
        await cut_connections(cluster, witness, runs, 500)

        assert [await ends(run) for run in runs] == [{Outcome.COMPLETED}] * 20
        assert [await times_taken_up(run) for run in runs] == [1] * 20


async def test_after_an_outage_that_is_longer_than_the_lease_runs_are_taken_up_and_nothing_is_sent_twice(
    address: str, cluster: Cluster, witness: Witness
):
    async with at_work(address, witness, 6, lease_seconds=1.5) as runs:
        await to_thread.run_sync(go_away, cluster, 3.0)
        await sent(witness, runs, CALLS_AFTER)

        assert min([await times_taken_up(run) for run in runs]) > 1


@pytest.mark.torture
@pytest.mark.parametrize("seconds", [15.0, 60.0])
async def test_after_a_long_outage_runs_are_taken_up_and_nothing_is_sent_twice(
    address: str, cluster: Cluster, witness: Witness, seconds: float
):
    async with at_work(address, witness, 20, lease_seconds=15.0) as runs:
        await to_thread.run_sync(go_away, cluster, seconds)
        await sent(witness, runs, CALLS_AFTER)


async def test_runs_wait_for_room_on_a_full_disk_of_the_server_and_make_each_call_once(witness: Witness):
    with small_disk(12) as disk, running(tables_in=disk) as cluster:
        async with at_work(cluster.address(), witness, 4, lease_seconds=PATIENCE_SECONDS) as runs:
            ballast = fill(disk)
            await until_still(witness)
            with pytest.raises(StoreFull):
                await runs[0]._runtime.start(sender, witness.log + "x" * 20_000)  # type: ignore[attr-defined]

            ballast.unlink()
            await sent(witness, runs, CALLS_AFTER)

            assert [await times_taken_up(run) for run in runs] == [1] * 4


async def until_still(witness: Witness) -> None:
    """Return when nothing was sent for a second."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await witness.is_quiet(seconds=1.0):
            pass


# -- clocks


def lease(cluster: Cluster, schema: str) -> tuple[str, float]:
    """The host that drives the only run, and for how many seconds more its lease holds, by the clock of the server."""
    with cluster.connect() as db:
        [(host, left)] = db.execute(
            f"SELECT host, deadline - extract(epoch FROM clock_timestamp()) FROM {schema}.leases".encode()
        ).fetchall()
    return str(host), float(str(left))


@pytest.mark.parametrize("wrong_by", [3_600.0, pytest.param(-3_600.0, marks=pytest.mark.torture)])
async def test_a_host_whose_clock_is_set_by_an_hour_keeps_its_run_and_loses_it_when_it_dies(
    address: str, cluster: Cluster, witness: Witness, tmp_path: Path, wrong_by: float
):
    """Its lease is neither over for others at once, nor does it last for an hour: the clock of the server decides."""
    schema, lease_seconds, clock = address.rpartition("=")[2], 5.0, tmp_path / "clock"
    clock.write_text("0")
    command = [sys.executable, "-m", "tests.support.senders", address, witness.log, str(clock), str(lease_seconds)]
    with subprocess.Popen(command) as elsewhere:
        try:
            await until(lambda: len(witness.words()) >= CALLS_BEFORE)
            async with Runtime(address, agents=[sender], lease_seconds=lease_seconds) as runtime:
                (row,) = await runtime.runs()
                run = await runtime.get(row.id)
                clock.write_text(str(wrong_by))
                give_up = time.monotonic() + 1.5 * lease_seconds
                while time.monotonic() < give_up:
                    host, left = await to_thread.run_sync(lease, cluster, schema)
                    assert host == "elsewhere"
                    assert left <= lease_seconds
                    await asyncio.sleep(0.1)
                assert await times_taken_up(run) == 1
                assert {line.pid for line in witness.lines()} == {elsewhere.pid}

                elsewhere.kill()
                person = asyncio.create_task(say_what_happened(run, witness))
                await sent(witness, [run], CALLS_AFTER)
                note(f"{witness.log}.enough", "enough")
                assert await asyncio.wait_for(run.result(), PATIENCE_SECONDS) == len(witness.words())
                person.cancel()
        finally:
            elsewhere.kill()

    assert set(Counter(witness.words()).values()) == {1}
