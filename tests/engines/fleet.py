"""Workers of one engine on one store, and what they drive: what the engine contract is told about an engine.

The witness is a log that the programs write themselves; what they wait for is a file.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from checkrein import Context, Runtime, agent
from checkrein.control.control import Control
from checkrein.core.enums import Status
from checkrein.core.events import RunCreated
from checkrein.core.state import State
from checkrein.engines.base import MakeEngine
from checkrein.engines.dispatcher import Dispatcher
from checkrein.engines.leases import LeaseEngine
from checkrein.engines.temporal import TemporalEngine, TemporalOptions
from checkrein.journal import Journal
from checkrein.processes.identity import in_role, this_process
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Witness, note, until

ROOT = Path(__file__).parents[2]
LEASE_SECONDS = 5.0


# -- what is driven


async def _until_let(log: str, name: str) -> AsyncIterator[str]:
    """Text of a model, as it were: a pause closes it at once."""
    note(log, f"begin {name}")
    while not Path(f"{log}.{name}").exists():
        yield "word "
        await asyncio.sleep(0.02)


async def _say(log: str, word: str) -> None:
    note(log, word)


def _take_back(call: Any) -> None:
    note(call.arguments["log"], f"undo {call.arguments['word']}")


@agent(name="gated")
async def gated(ctx: Context, goal: str) -> str:
    """Does something once, then waits until it is let through."""
    log, name = goal.split()
    await ctx.call(_say, log, f"once {name}", undo=_take_back)
    await ctx.stream(partial(_until_let, log, name))
    await ctx.call(_say, log, f"end {name}")
    return name


@agent(name="child")
async def child(ctx: Context, goal: str) -> str:
    log, name = goal.split()
    await ctx.stream(partial(_until_let, log, name))
    await ctx.call(_say, log, f"end {name}")
    return name


@agent(name="parent")
async def parent(ctx: Context, goal: str) -> str:
    log, name = goal.split()
    note(log, f"parent {name}")
    return await ctx.spawn(child, f"{log} {name}.child")


async def _send(log: str, word: str) -> None:
    """In the process of the driver, and not done before it is let."""
    note(log, f"sending {word}")
    while not Path(f"{log}.{word}").exists():
        await asyncio.sleep(0.02)
    note(log, f"sent {word}")


@agent(name="sender")
async def sender(ctx: Context, goal: str) -> str:
    log, name = goal.split()
    await ctx.call(_send, log, name, undo=_take_back)
    return name


AGENTS = (gated, child, parent, sender)


# -- where


class Fleet:
    """`engine` names a function of this or another module that makes the engine, with `options`: a process of its own
    finds it by that name."""

    def __init__(
        self, address: str, journal: Journal, witness: Witness, engine: str, options: dict[str, Any] | None = None
    ) -> None:
        self.address = address
        self.journal = journal
        self.witness = witness
        self.control = Control(journal, in_role(this_process(), "control"))
        self._engine = engine
        self._options = options or {}
        self._workers: dict[Runtime, AsyncExitStack] = {}
        self._numbers = itertools.count(1)

    async def worker(self, *agents: Any, **options: Any) -> Runtime:
        """Another one, in this process."""
        opened = AsyncExitStack()
        engine = made_by(self._engine, self._options)
        options = {"lease_seconds": LEASE_SECONDS, "engine": engine, **options}
        runtime = await opened.enter_async_context(Runtime(self.address, agents=agents or AGENTS, **options))
        self._workers[runtime] = opened
        return runtime

    async def shut_down(self, runtime: Runtime) -> None:
        await self._workers.pop(runtime).aclose()

    async def close(self) -> None:
        for runtime in list(self._workers):
            await self.shut_down(runtime)

    @contextmanager
    def process(self, **options: Any) -> Iterator[Popen[bytes]]:
        """Another one, in a process of its own, which can be killed."""
        told = json.dumps({"engine": self._engine, "options": self._options, "worker": options})
        command = [sys.executable, "-m", "tests.engines.fleet", self.address, told]
        with Popen(command, cwd=ROOT, stdout=PIPE) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
                yield process
            finally:
                process.kill()

    # -- runs

    async def begin(self, agent: str = "gated", name: str = "") -> str:
        """A run that was just created, by nobody who could drive it."""
        run = name or f"r{next(self._numbers)}"
        goal = f"{self.witness.log} {run}"
        created = RunCreated(id="created", at=time.time(), run=run, agent=agent, goal=goal, thread=run)
        await self.journal.create(created)
        return run

    def let(self, *names: str) -> None:
        """Let these through."""
        for name in names:
            Path(f"{self.witness.log}.{name}").touch()

    async def begun(self, *runs: str, times: int = 1) -> None:
        await self.witness.saw(*(f"begin {run}" for run in runs), times=times)

    async def state(self, run: str) -> State:
        return await self.journal.load(run)

    async def ended(self, *runs: str, status: Status = Status.COMPLETED) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            for run in runs:
                while (state := await self.state(run)).status is not status:
                    assert not state.is_finished, f"{run} is {state.status}"
                    await asyncio.sleep(0.02)

    async def is_driven_by(self, runtime: Runtime, *runs: str) -> None:
        """Return when this worker drives all of them."""
        await until(lambda: set(runs) <= set(runtime._engine.runs))


def made_by(engine: str, options: dict[str, Any]) -> MakeEngine:
    module, _, name = engine.partition(":")
    make = getattr(import_module(module), name)
    return lambda dispatcher: make(dispatcher, **options)


leases = LeaseEngine


def temporal(dispatcher: Dispatcher, **options: Any) -> TemporalEngine:
    return TemporalEngine(dispatcher, options=TemporalOptions(**options))


async def main(address: str, told: str) -> None:
    given = json.loads(told)
    engine = made_by(given["engine"], given["options"])
    async with Runtime(address, agents=AGENTS, engine=engine, **{"lease_seconds": LEASE_SECONDS, **given["worker"]}):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    # By the name under which another process finds what undoes.
    asyncio.run(import_module("tests.engines.fleet").main(*sys.argv[1:]))
