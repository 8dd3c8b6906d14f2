"""A durable run of two hundred trivial steps over HTTP, against those who make the same requests.

A step is a request to a provider in a process of its own, and the call of a tool that does nothing. The bare loop sends
the very bodies that a run has sent, with the same HTTP library, and reads the answers without looking into them.
LangGraph does the same work in the way that costs it least, with every step in its SQLite saver before the next one
(`durability="sync"`), once with the `openai` package as its client and once with bare HTTP. Both count: that package
goes through the whole history again for every request, and what it takes is not LangGraph's.

The time of single steps is taken from the provider's own log: from a request to the next one. What the provider takes
is in it on every side. The processor time of a side, which has nothing of the provider's, stands beside, and so does
what a commit takes another process on the same disk: a step needs two, and the bare loop none.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

import aiohttp
import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from bench.actors import CAPS, NO_ARGUMENTS, nothing
from bench.committer import committer
from bench.harness import MICRO, Benchmark, Measure, Room, Rounds, Target, latencies, left_out
from bench.peers import NotToBeHad, python_of_peers
from bench.report import ROOT
from checkrein import Agent, Runtime
from checkrein.models.openai import OpenAIModel
from checkrein.testing.provider.scenario import Reply
from checkrein.testing.provider.server import ProviderProcess

AGAINST_BARE: Final = Target("at most", 2.0)
AGAINST_LANGGRAPH: Final = Target("at most", 0.2)
GROWTH: Final = Target("at most", 1.0)
STORE: Final = Target("at most", 0.5)
STEPS: Final = 200
EARLY: Final = slice(10, 30)
LATE: Final = slice(STEPS - 20, STEPS)
MODEL: Final = "gpt-4o"
SCENARIO: Final = [*[Reply(calls=[(nothing.name, {})])] * STEPS, Reply("Done.")]
LANGGRAPH: Final = {
    "openai": "the same, against LangGraph on the openai package",
    "bare": "the same, against LangGraph on bare HTTP",
}


class Took(msgspec.Struct, frozen=True):
    seconds: float
    processor: float


async def measure(room: Room) -> list[Measure]:
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(ProviderProcess(SCENARIO, by_turn=True))
        runtime = await stack.enter_async_context(Runtime(room.address("runs")))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        ours = _Runs(runtime, provider)
        theirs = await _Bare.after(ours, session, provider)
        sides: dict[str, _Side] = {"run": ours, "bare": theirs}
        whole = Rounds(**{name: side.turn for name, side in sides.items()})
        await whole.warm_up(2)
        for side in sides.values():
            side.forget()
        async with committer(room.folder) as commits:
            await whole.run(room.count(15, 3))
        megabytes = await _store_of_a_run(room, provider)
        others = await _langgraph(room, provider, ours)
    return [
        whole.ratio(f"a run of {STEPS} steps, against a bare HTTP loop", "run", "bare", AGAINST_BARE),
        *others,
        _growth(ours, theirs),
        Measure(what=f"the store of a run of {STEPS} steps", value=megabytes, unit="MB", target=STORE),
        *_steps("a step of the run", ours),
        *_steps("a step of the bare loop", theirs),
        *latencies("meanwhile: a commit of another process", commits),
    ]


# -- sides


class _Side:
    """Makes whole runs, and has the provider's word on how long each step took."""

    def __init__(self, provider: ProviderProcess) -> None:
        self.early: list[float] = []
        self.late: list[float] = []
        self.processor: list[float] = []
        self._provider = provider

    def forget(self) -> None:
        """What came before was a rehearsal."""
        self.early, self.late, self.processor = [], [], []

    async def turn(self) -> Sequence[float]:
        await self._provider.clear()
        took = await self._go()
        at = [request.at for request in await self._provider.log(bodies=False)]
        assert len(at) == STEPS + 1, f"{len(at)} requests instead of {STEPS + 1}"
        steps = [after - before for before, after in pairwise(at)]
        self.early.append(median(steps[EARLY]))
        self.late.append(median(steps[LATE]))
        self.processor.append(took.processor / STEPS)
        return [took.seconds]

    async def _go(self) -> Took:
        began, used = time.perf_counter(), time.process_time()
        await self._run()
        return Took(time.perf_counter() - began, time.process_time() - used)

    async def _run(self) -> None:
        raise NotImplementedError


class _Runs(_Side):
    def __init__(self, runtime: Runtime, provider: ProviderProcess) -> None:
        super().__init__(provider)
        self._runtime = runtime
        self._agent = _agent(provider)

    async def _run(self) -> None:
        assert await (await self._runtime.start(self._agent, NO_ARGUMENTS)).result() == "Done."


def _agent(provider: ProviderProcess) -> Agent:
    model = OpenAIModel(MODEL, base_url=provider.openai_url, api_key=provider.key)
    return Agent("over HTTP", model=model, tools=[nothing], stop_when=CAPS)


class _Bare(_Side):
    def __init__(self, provider: ProviderProcess, session: aiohttp.ClientSession, bodies: Sequence[bytes]) -> None:
        super().__init__(provider)
        self._session = session
        self._bodies = bodies
        self._url = f"{provider.openai_url}/chat/completions"
        self._headers = {"content-type": "application/json", "authorization": f"Bearer {provider.key}"}

    @classmethod
    async def after(cls, runs: _Runs, session: aiohttp.ClientSession, provider: ProviderProcess) -> _Bare:
        """With the bodies that a run sends."""
        await runs.turn()
        return cls(provider, session, [bytes(request.raw) for request in await provider.log()])

    async def _run(self) -> None:
        for body in self._bodies:
            async with self._session.post(self._url, data=body, headers=self._headers) as response:
                assert response.status == 200
                await response.read()


class _Graph(_Side):
    """LangGraph in its own process, which measures itself."""

    def __init__(self, provider: ProviderProcess, child: Process) -> None:
        super().__init__(provider)
        assert child.stdin is not None
        assert child.stdout is not None
        self._stdin = child.stdin
        self._lines = BufferedByteReceiveStream(child.stdout)

    async def _go(self) -> Took:
        await self._stdin.send(b"go\n")
        return msgspec.json.decode(await self._lines.receive_until(b"\n", 1000), type=Took)


@asynccontextmanager
async def _graph(python: Path, room: Room, provider: ProviderProcess, client: str) -> AsyncIterator[_Graph]:
    script, store = ROOT / "bench" / "langgraph_steps.py", room.folder / f"langgraph-{client}.db"
    command = [str(python), str(script), provider.openai_url, provider.key, str(store), str(STEPS), client]
    quiet = {**os.environ, "LANGSMITH_TRACING": "false"}
    async with await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None, cwd=ROOT, env=quiet) as child:
        yield _Graph(provider, child)
        assert child.stdin is not None
        await child.stdin.aclose()


# -- what is shown


async def _langgraph(room: Room, provider: ProviderProcess, ours: _Side) -> list[Measure]:
    """The run against LangGraph, which takes so long that it has rounds of its own, and fewer."""
    try:
        python = await python_of_peers()
    except NotToBeHad as why:
        return [left_out(what, "×", str(why)) for what in LANGGRAPH.values()]
    async with (
        _graph(python, room, provider, "openai") as with_openai,
        _graph(python, room, provider, "bare") as without,
    ):
        rounds = Rounds(run=ours.turn, openai=with_openai.turn, bare=without.turn)
        await rounds.warm_up(1)
        with_openai.forget()
        without.forget()
        await rounds.run(room.count(5, 2))
    return [
        rounds.ratio(LANGGRAPH["openai"], "run", "openai", AGAINST_LANGGRAPH),
        rounds.ratio(LANGGRAPH["bare"], "run", "bare", AGAINST_LANGGRAPH),
        *_steps("a step of LangGraph, openai package", with_openai),
        *_steps("a step of LangGraph, bare HTTP", without),
    ]


async def _store_of_a_run(room: Room, provider: ProviderProcess) -> float:
    """Megabytes of a journal that holds one run, with nothing left in SQLite's log."""
    path = room.folder / "one.db"
    async with Runtime(f"sqlite:///{path}") as runtime:
        await _Runs(runtime, provider).turn()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0, "nobody else has it open"
    return path.stat().st_size / 1e6


def _growth(ours: _Side, theirs: _Side) -> Measure:
    def growths(side: _Side) -> list[float]:
        return [late / early for early, late in zip(side.early, side.late, strict=True)]

    ours_of, theirs_of = median(growths(ours)), median(growths(theirs))
    added = [(median(side.late) - median(side.early)) * MICRO for side in (ours, theirs)]
    return Measure(
        what=f"growth from step 20 to {STEPS}, against the bare loop's",
        value=ours_of / theirs_of,
        unit="×",
        target=GROWTH,
        note=f"{ours_of:.3g} against {theirs_of:.3g}; by {added[0]:.0f} µs against {added[1]:.0f} µs",
    )


def _steps(what: str, side: _Side) -> list[Measure]:
    processor = f"processor time {median(side.processor) * MICRO:.0f} µs"
    return [
        Measure(what=f"{what}, near 20", value=median(side.early) * MICRO, unit="µs", note=processor),
        Measure(what=f"{what}, near {STEPS}", value=median(side.late) * MICRO, unit="µs"),
    ]


BENCHMARK: Final = Benchmark("wire_steps", f"a run of {STEPS} steps over HTTP, against others", measure)
