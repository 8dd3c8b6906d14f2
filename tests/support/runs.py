"""What the tests of whole runs share: an agent with a script, waiting for what a run does, and reading its receipts.

The witness of what was done is the log that the tools write, and the process table; the journal only says what the
runtime believes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from checkrein import Agent, Receipt, Run, Runtime, Settling
from checkrein.core.enums import EffectState, Status
from checkrein.core.events import Event, VerbAccepted, VerbSettled
from checkrein.core.state import State
from checkrein.models import Request, ScriptedModel, Turn
from checkrein.models.base import Delta, TextDelta
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Line, Witness, is_alive, until

CLOCK_SECONDS = 0.005
"""How far apart two processes may read the same clock."""

E = TypeVar("E", bound=Event)


# -- agents


def agent(turns: Sequence[Any], tools: Sequence[Any], *, pace: float | None = None, **options: Any) -> Agent:
    return Agent("churn", model=ScriptedModel(turns, tokens_per_second=pace), tools=tools, **options)


def calls(*named: tuple[str, dict[str, Any]]) -> Turn:
    """A turn in which the model asks for these tools at the same time."""
    return Turn("Working.", calls=named)


def model(of: Agent) -> ScriptedModel:
    assert isinstance(of.model, ScriptedModel)
    return of.model


# -- work that is let finish once something else has happened


def until_let(witness: Witness) -> dict[str, str]:
    """Arguments for `work` and the like: it takes until `let_go`."""
    return {"log": witness.log, "file": f"{witness.log}.go"}


def let_go(witness: Witness) -> None:
    Path(f"{witness.log}.go").touch()


async def at_work(runtime: Runtime, churn: Agent, witness: Witness, word: str = "work") -> Run:
    """A run whose tool has begun, which writes `word` when it does."""
    run = await runtime.start(churn, "Go.")
    await witness.saw(word)
    return run


async def paused_at_work(runtime: Runtime, churn: Agent, witness: Witness) -> Run:
    """A run that was paused in the middle of a tool that is `until_let`."""
    run = await at_work(runtime, churn, witness)
    await pause_at_work(run, witness)
    return run


async def pause_at_work(run: Run, witness: Witness) -> Receipt:
    """Pause a run in the middle of a tool that is `until_let`, which finishes once the pause is in force."""
    pausing = asyncio.create_task(run.pause())
    await until_status(run, Status.PAUSING)
    let_go(witness)
    return settled(await pausing)


class StallingModel(ScriptedModel):
    """Falls silent in the middle of some replies until it is let go: `lets` has the event of each, by the number of the
    request. The first `after` pieces of text come before it."""

    def __init__(self, turns: Any, lets: Mapping[int, asyncio.Event], *, after: int = 1, **options: Any) -> None:
        super().__init__(turns, **options)
        self._lets, self._after = lets, after

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        let = self._lets.get(self.requests + 1)
        said = 0
        async with aclosing(super().stream(request)) as deltas:
            async for delta in deltas:
                yield delta
                said += isinstance(delta, TextDelta)
                if let is not None and said >= self._after:
                    await let.wait()


# -- waiting


async def until_state(run: Run, holds: Callable[[State], object]) -> State:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds(state := await run.state()):
            await asyncio.sleep(0.01)
    return state


async def until_event(
    runtime: Runtime, run: Run, kind: type[E], holds: Callable[[E], object] = lambda event: True
) -> E:
    """The first such event of the run, once it is recorded."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := [event for event in await events(runtime, run, kind) if holds(event)]):
            await asyncio.sleep(0.01)
    return found[0]


async def until_status(run: Run, *wanted: Status) -> State:
    return await until_state(run, lambda state: state.status in wanted)


async def asked(run: Run) -> str:
    """The call that waits for an approval."""
    state = await until_state(run, lambda state: state.approvals)
    (call,) = state.approvals
    return call


async def in_flight(run: Run, name: str) -> str:
    """The id of the call of this name, once it is in flight."""
    state = await until_state(run, lambda state: any(live.name == name for live in state.live.values()))
    return next(call for call, live in state.live.items() if live.name == name)


async def result(run: Run) -> Any:
    """The result of the run, which must come in time."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await run.result()


# -- receipts and the journal


def settled(receipt: Receipt | Settling) -> Receipt:
    assert isinstance(receipt, Receipt), receipt
    return receipt


def outcomes(receipt: Receipt) -> dict[str, str]:
    """What became of each call, by name."""
    return {call.name: str(call.now) for call in receipt.calls}


def effects(receipt: Receipt) -> dict[str, EffectState]:
    return {effect.what: effect.now for effect in receipt.effects}


async def events(runtime: Runtime, run: Run, kind: type[E]) -> list[E]:
    return [record.event for record in await runtime.journal.read(run.id) if isinstance(record.event, kind)]


async def ledger(runtime: Runtime, run: Run) -> dict[str, EffectState]:
    return {effect.what: effect.state for effect in await runtime.journal.effects(run.id)}


async def receipts(runtime: Runtime, run: Run) -> list[Receipt]:
    return [event.receipt for event in await events(runtime, run, VerbSettled)]


async def stopped_at(runtime: Runtime, receipt: Receipt) -> float:
    """When, on the clock, the receipt says that the calls had stopped."""
    record = next(record for record in await runtime.journal.read(receipt.run) if record.seq == receipt.seq)
    assert isinstance(record.event, VerbAccepted)
    asked_at, after_ms = record.event.asked_at, receipt.timing_ms.calls_stopped
    assert asked_at is not None
    assert after_ms is not None, "the receipt does not say when the calls had stopped"
    return asked_at + after_ms / 1000


async def nothing_ticks_after(witness: Witness, moment: float) -> None:
    """By the tools' own log nothing was done after `moment`, nor is it now; and whoever wrote is gone."""
    ours = os.getpid()
    assert all(not is_alive(line.pid) for line in witness.lines() if line.pid != ours)
    assert await witness.is_quiet()
    assert late(witness, moment) == []


def late(witness: Witness, moment: float) -> list[Line]:
    return [line for line in witness.lines() if line.at > moment + CLOCK_SECONDS]


# -- programs that are killed


@asynccontextmanager
async def program(folder: Path, source: str, *arguments: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run a script in a process of its own. It is killed with SIGKILL on leaving, if it has not ended."""
    script = folder / "program.py"
    script.write_text(source)
    root = str(Path(__file__).parents[2])
    process = subprocess.Popen([sys.executable, str(script), *arguments], env={**os.environ, "PYTHONPATH": root})
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)


async def gone(pids: Iterable[int]) -> None:
    for pid in set(pids):
        await until(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]
