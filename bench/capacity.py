"""How many runs a worker process and a PostgreSQL server carry: by arithmetic, and by a simulation of their queues.

The arithmetic adds up what a run asks of each station a second, and says where one of them has no time left. The
simulation plays it: runs that stream, call tools and wait for their permits; workers that commit what has come together
meanwhile, one commit at a time; a server with some processors, which tells every process of every commit, and puts a
commit that tells behind the one before it. Chance comes from a seed, so the same numbers come out every time.

What things cost is measured, and every cost names the benchmark that measured it. `docs/design/capacity.md` says what
follows for ten thousand runs and more.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import Final

import msgspec

from bench.harness import MILLI, Benchmark, Measure, Room, Target, quantile

CONNECTIONS: Final = 3
"""Of each process, to the server."""
BUSY: Final = {"worker": 0.6, "server": 0.6, "commits": 0.8}
"""How much of a station may be in use where it should still answer at once. The queue of commits is the most even one:
what comes to it does not come by chance alone, since everybody has one commit in it at most."""
CLOSE: Final = 1.25
"""A simulated knee may be off from the arithmetic by so much, in either direction."""
PIECES: Final = 8


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a processor, unless it says otherwise. The comment names the benchmark, and its line."""

    step_worker: float = 2.0e-3  # durable_steps: processor time of a step
    token_worker: float = 27e-6  # streamed_tokens: the runtime
    token_front: float = 6.6e-6  # fleet_text: front, a token to one reader
    verb_front: float = 10e-3  # fleet_verbs: front, a cancel
    verb_server: float = 7e-3  # fleet_verbs: server, a cancel
    heard: float = 10e-6  # postgres_costs: a process that hears one and follows none of it
    append_server: float = 30e-6  # postgres_costs: one of 100 at a time
    commit_server: float = 200e-6  # postgres_costs: an append alone, less that
    row_server: float = 6e-6  # postgres_costs: a row of text
    read_server: float = 7.5e-6  # fleet_text: server, a token, less its row: a row that a front reads
    told_server: float = 15e-6  # postgres_costs: a notification, to each that listens
    commit_serial: float = (
        300e-6  # postgres_costs: a commit that tells, of one connection; the clock's, not a processor's
    )
    flush_serial: float = 75e-6  # postgres_costs: a notification that nobody hears
    append_log: float = 1645.0  # postgres_costs: bytes of log
    row_log: float = 263.0  # postgres_costs: bytes of log
    run_memory: float = 90e3  # fleet_steps: bytes of a run at work
    stream_memory: float = 31e3  # fleet_readers: bytes of an open stream


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What a run does: a model streams, a tool works, and so on; and what people do with it."""

    stream_seconds: float = 8.0
    tool_seconds: float = 2.0
    tokens_per_second: float = 50.0
    appends_per_step: int = 2
    """One for the permit of the model call, one for that of the tool; each with the outcome of the call before."""
    text_seconds: float = 0.1
    """How often a worker writes what was streamed (`PostgresJournal.text_seconds`)."""
    readers: float = 0.1
    """Open streams for each run, at one front."""
    verbs_per_second: float = 1 / 600
    """Of each run."""

    @property
    def step_seconds(self) -> float:
        return self.stream_seconds + self.tool_seconds

    @property
    def streaming(self) -> float:
        """The share of its runs that stream at a moment."""
        return self.stream_seconds / self.step_seconds

    @property
    def appends(self) -> float:
        """Of a run in a second."""
        return self.appends_per_step / self.step_seconds

    @property
    def tokens(self) -> float:
        """Of a run in a second, on average."""
        return self.tokens_per_second * self.streaming

    @property
    def rows(self) -> float:
        """Of text, of a run in a second."""
        return self.streaming / self.text_seconds


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """One PostgreSQL server and who uses it."""

    slots: int = 400
    """Runs of a worker process."""
    server_processors: int = 16
    fronts: float = 0.1
    """Front processes for each worker process. They listen too."""

    def workers(self, runs: int) -> int:
        return -(-runs // self.slots)

    def listeners(self, runs: int) -> float:
        return self.workers(runs) * (1 + self.fronts)


COSTS: Final = Costs()
WORKLOAD: Final = Workload()
LAYOUT: Final = Layout()


# -- arithmetic


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """How much of each station is asked for: 1 is all of it."""

    worker: float
    """Of the processor of a worker process."""
    server: float
    """Of the server's processors, all together."""
    commits: float
    """Of the queue of commits that tell. When it is full, workers commit more at a time, and wait for each other."""

    @property
    def first(self) -> str:
        """The station that is full first."""
        return max(("worker", "server", "commits"), key=lambda station: getattr(self, station))


def demand(runs: int, layout: Layout = LAYOUT, costs: Costs = COSTS, workload: Workload = WORKLOAD) -> Demand:
    appends, rows = runs * workload.appends, runs * workload.rows
    flushes = layout.workers(runs) / workload.text_seconds
    queue = appends * costs.commit_serial + flushes * costs.flush_serial
    # In a full queue appends go together: there are as many commits as it takes.
    commits = min(appends, max(0.0, 1 - flushes * costs.flush_serial) / costs.commit_serial)
    told = (commits + flushes) * layout.listeners(runs)
    by_server = (
        appends * costs.append_server
        + rows * (costs.row_server + workload.readers * costs.read_server)
        + (commits + flushes) * costs.commit_server
        + told * costs.told_server
        + runs * workload.verbs_per_second * costs.verb_server
    )
    here = min(runs, layout.slots)
    by_worker = here * (workload.tokens * costs.token_worker + costs.step_worker / workload.step_seconds)
    return Demand(
        worker=by_worker + (commits + flushes) * costs.heard,
        server=by_server / layout.server_processors,
        commits=queue,
    )


def full_at(
    station: str, layout: Layout = LAYOUT, costs: Costs = COSTS, workload: Workload = WORKLOAD, *, part: float = 1.0
) -> int:
    """With so many runs this part of a station is asked for."""

    def is_below(runs: int) -> bool:
        return bool(getattr(demand(runs, layout, costs, workload), station) < part)

    low, high = 0, 1
    while is_below(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return high


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What so many runs at work need, with no station busier than `BUSY` has it."""

    runs: int
    servers: int
    """Shards: each has the runs of some threads, its own workers and its own fronts."""
    workers: int
    fronts: int
    server_processors: float
    """Of each server: in use."""
    connections: int
    """Of each server."""
    log: float
    """Bytes a second, of each server."""
    worker_memory: float
    """Bytes, of each worker."""
    first: str
    """What would be full first, if there were more runs to a server."""


def needs(runs: int, layout: Layout = LAYOUT, costs: Costs = COSTS, workload: Workload = WORKLOAD) -> Needs:
    most = min(full_at(station, layout, costs, workload, part=BUSY[station]) for station in ("server", "commits")) - 1
    servers = -(-runs // most)
    here = -(-runs // servers)
    asked = demand(here, layout, costs, workload)
    by_front = here * (
        workload.readers * workload.tokens * costs.token_front + workload.verbs_per_second * costs.verb_front
    )
    fronts = max(2, math.ceil(by_front / BUSY["worker"]))
    processes = layout.workers(here) + fronts
    return Needs(
        runs=runs,
        servers=servers,
        workers=layout.workers(here) * servers,
        fronts=fronts * servers,
        server_processors=asked.server * layout.server_processors,
        connections=processes * CONNECTIONS,
        log=here * (workload.appends * costs.append_log + workload.rows * costs.row_log),
        worker_memory=layout.slots * costs.run_memory,
        first=max(("server", "commits"), key=lambda station: getattr(asked, station)),
    )


# -- simulation


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    runs: int
    permit_p50: float
    permit_p99: float
    text_p99: float
    """From a word's being said until it is committed."""
    steps: float
    """Of what runs would make that never wait, how much they made."""
    server: float
    """How much of the server's processors was in use."""
    together: float
    """Appends in a commit."""


class Station:
    """Some processors with one queue. Work comes in the order of its time."""

    def __init__(self, processors: int) -> None:
        self._free_at = [0.0] * processors
        self.used = 0.0

    def work(self, now: float, seconds: float) -> float:
        """When it is done."""
        done = max(now, self._free_at[0]) + seconds
        heapq.heapreplace(self._free_at, done)
        self.used += seconds
        return done


class _Worker:
    """A process: its event loop, and its writer, which does one thing at a time."""

    def __init__(self) -> None:
        self.loop = Station(1)
        self.streaming = 0
        self.appends: list[tuple[float, Callable[[], None]]] = []
        self.text_since: float | None = None
        self.is_writing = False


class Simulation:
    """One PostgreSQL server with its workers, for some seconds."""

    def __init__(self, runs: int, layout: Layout, costs: Costs, workload: Workload, seed: int = 1) -> None:
        self._runs, self._layout, self._costs, self._workload = runs, layout, costs, workload
        self._random = Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._now = 0.0
        self._server = Station(layout.server_processors)
        self._commit_queue = Station(1)
        self._workers = [_Worker() for _ in range(layout.workers(runs))]
        self._listeners = layout.listeners(runs)
        self._told = 0
        self._background = 0.0
        self._permits: list[float] = []
        self._texts: list[float] = []
        self._commits = 0

    def play(self, seconds: float, warm_up: float = 5.0) -> Simulated:
        for number in range(self._runs):
            is_model = self._random.random() < self._workload.streaming
            self._call(self._workers[number % len(self._workers)], is_model)
        for worker in self._workers:
            self._at(self._random.uniform(0, self._workload.text_seconds), partial(self._flush, worker))
        self._at(0.0, self._each_second)
        self._until(warm_up)
        self._permits, self._texts, self._commits = [], [], 0
        used = self._server.used
        self._until(warm_up + seconds)
        wanted = self._runs * self._workload.appends * seconds
        return Simulated(
            runs=self._runs,
            permit_p50=quantile(self._permits, 0.5),
            permit_p99=quantile(self._permits, 0.99),
            text_p99=quantile(self._texts, 0.99),
            steps=len(self._permits) / wanted,
            server=(self._server.used - used) / seconds / self._layout.server_processors,
            together=len(self._permits) / max(1, self._commits),
        )

    def _at(self, time: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), do))

    def _until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self._now, _, do = heapq.heappop(self._events)
            do()

    def _each_second(self) -> None:
        """What takes time of every event loop besides: text that passes through, and what others commit."""
        heard, self._told = self._told * self._costs.heard, 0
        text = min(self._runs, self._layout.slots) * self._workload.tokens * self._costs.token_worker
        self._background = min(0.99, heard + text)
        self._at(self._now + 1, self._each_second)

    # -- a run

    def _ask(self, worker: _Worker, is_model: bool) -> None:
        """The loop makes the next call, and asks for its permit."""
        seconds = self._costs.step_worker / self._workload.appends_per_step / (1 - self._background)
        asked = self._now
        self._at(worker.loop.work(self._now, seconds), lambda: self._append(worker, asked, is_model))

    def _append(self, worker: _Worker, asked: float, is_model: bool) -> None:
        worker.appends.append((asked, lambda: self._call(worker, is_model)))
        self._write(worker)

    def _call(self, worker: _Worker, is_model: bool) -> None:
        """It has its permit. A model streams, a tool works; each for as long as it takes."""
        usual = self._workload.stream_seconds if is_model else self._workload.tool_seconds
        worker.streaming += is_model
        self._at(self._now + self._random.expovariate(1 / usual), lambda: self._end(worker, is_model))

    def _end(self, worker: _Worker, is_model: bool) -> None:
        worker.streaming -= is_model
        self._ask(worker, not is_model)

    def _flush(self, worker: _Worker) -> None:
        worker.text_since = self._now - self._workload.text_seconds
        self._write(worker)

    # -- the store

    def _write(self, worker: _Worker) -> None:
        """The next commit of a worker, if it is not at one: text before appends, as the writer does it."""
        if worker.is_writing:
            return
        costs = self._costs
        if worker.text_since is not None:
            since, worker.text_since = worker.text_since, None
            row = costs.row_server + self._workload.readers * costs.read_server
            seconds = costs.commit_server + worker.streaming * row

            def flushed() -> None:
                self._texts.append(self._now - since)
                self._at(self._now + self._workload.text_seconds, lambda: self._flush(worker))

            self._commit(worker, seconds, costs.flush_serial, flushed)
        elif worker.appends:
            taken, worker.appends = worker.appends, []
            seconds = costs.commit_server + len(taken) * costs.append_server

            def permitted() -> None:
                self._commits += 1
                for asked, go_on in taken:
                    self._permits.append(self._now - asked)
                    go_on()

            self._commit(worker, seconds, costs.commit_serial, permitted)

    def _commit(self, worker: _Worker, seconds: float, serial: float, then: Callable[[], None]) -> None:
        worker.is_writing = True

        def queue() -> None:
            self._at(self._commit_queue.work(self._now, serial), done)

        def done() -> None:
            worker.is_writing = False
            self._told += 1
            # Every listener has a process of its own at the server, so it is work in small pieces.
            for _ in range(PIECES):
                self._server.work(self._now, self._listeners * self._costs.told_server / PIECES)
            then()
            self._write(worker)

        self._at(self._server.work(self._now, seconds), queue)


def simulate(
    runs: int,
    layout: Layout = LAYOUT,
    costs: Costs = COSTS,
    workload: Workload = WORKLOAD,
    *,
    seconds: float = 10.0,
) -> Simulated:
    return Simulation(runs, layout, costs, workload).play(seconds)


# -- for people


SWEEP: Final = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""Parts of the number of runs at which the first station is full."""
BEYOND: Final = 1.5
"""Where commits wait for each other, and nothing else is full yet."""


async def measure(room: Room) -> list[Measure]:
    print(table_of_needs([needs(runs) for runs in (10_000, 100_000, 1_000_000)]), end="\n\n")
    expected = full_at("commits")
    seconds = room.count(10, 3)
    points = [simulate(round(expected * part), seconds=seconds) for part in SWEEP]
    print(plot(points), end="\n\n")
    alone = Layout(slots=1_000_000, fronts=0)
    worker = full_at("worker", alone)
    slow = msgspec.structs.replace(COSTS, commit_serial=1e-3)
    afterwards = msgspec.structs.replace(COSTS, commit_serial=COSTS.flush_serial)
    found = knee(points[SWEEP.index(BEYOND)])
    return [
        Measure(
            what="runs of one server until commits wait for each other", value=expected, unit="", note="arithmetic"
        ),
        Measure(what="the same", value=found, unit="", note="simulated"),
        Measure(
            what="the one against the other",
            value=max(found / expected, expected / found),
            unit="×",
            target=Target("at most", CLOSE),
        ),
        Measure(what="runs of one server until its processors are full", value=full_at("server"), unit=""),
        Measure(what="runs of a worker process until it is full", value=worker, unit=""),
        Measure(what="commits wait for each other, a disk of 1 ms", value=full_at("commits", costs=slow), unit=""),
        Measure(what="the same if they told afterwards", value=full_at("commits", costs=afterwards), unit=""),
    ]


def knee(point: Simulated) -> float:
    """Where commits began to wait for each other, seen from a point that is well beyond it.

    Below, every append has a commit of its own. Beyond, a server makes as many commits as it can, and whatever more is
    asked of it goes together: so many times as many runs as it could serve one by one.
    """
    return point.runs / point.together


def plot(points: Sequence[Simulated]) -> str:
    """Each point a line, with the p99 of a permit as a bar: one # is 5 ms."""
    rows = [f"{'runs':>8} {'permit p50':>11} {'p99':>9} {'text p99':>9} {'server':>7} {'a commit':>9} {'steps':>6}"]
    for one in points:
        rows.append(
            f"{one.runs:>8,} {one.permit_p50 * MILLI:>8.1f} ms {one.permit_p99 * MILLI:>6.0f} ms "
            f"{one.text_p99 * MILLI:>6.0f} ms {one.server:>7.0%} {one.together:>9.1f} {one.steps:>6.0%}  "
            + "#"
            * min(40, round(one.permit_p99 * 200))
        )
    return "\n".join(rows)


def table_of_needs(rows: Sequence[Needs]) -> str:
    names = (
        f"{'runs':>10} {'servers':>8} {'processors':>11} {'log':>9} {'connections':>12} {'workers':>8} {'fronts':>7}"
    )
    lines = [f"{names}  first"]
    for one in rows:
        lines.append(
            f"{one.runs:>10,} {one.servers:>8} {one.server_processors:>6.1f} each {one.log / 2**20:>4.0f} MB/s "
            f"{one.connections:>7} each {one.workers:>8,} {one.fronts:>7,}  {one.first}"
        )
    return "\n".join(lines)


BENCHMARK: Final = Benchmark("capacity", "how many runs a server carries: arithmetic, and a simulation", measure)
