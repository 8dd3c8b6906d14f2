"""A program made of scripted calls, and a journal to play it on: what the tests of drivers share.

The witness is `Outside`: what the performances themselves say they did, in order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from checkrein.calls.base import CallRequest, CallResult, Execution, Perform, Permit, UndoneCall
from checkrein.core.effects import Effect
from checkrein.core.enums import CallKind, OnPause, Outcome
from checkrein.core.events import RunCreated
from checkrein.driver.driver import Driver, DriverOptions
from checkrein.driver.ownership import Ownership
from checkrein.driver.permits import Result
from checkrein.driver.program_api import Program, ProgramApi
from checkrein.journal.base import Journal, Lease, Owner
from tests.support.patience import PATIENCE_SECONDS


class Outside:
    """What really happened, as those who did it say."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def times(self, line: str) -> int:
        return self.log.count(line)


class Scripted(Execution):
    """A performance that waits, and can be aborted or held."""

    def __init__(self, work: Callable[[], Awaitable[Any]], outside: Outside, name: str) -> None:
        self._outside, self._name = outside, name
        self._task = asyncio.ensure_future(work())

    async def ended(self) -> CallResult:
        await asyncio.wait([self._task])
        if self._task.cancelled():
            return CallResult(outcome=Outcome.ABORTED)
        if error := self._task.exception():
            return CallResult(outcome=Outcome.FAILED, error=f"{type(error).__name__}: {error}")
        return CallResult(outcome=Outcome.COMPLETED, result=msgspec.json.encode(self._task.result()))

    async def abort(self) -> None:
        if not self._task.done():
            self._outside.log.append(f"abort {self._name}")
            self._task.cancel()
        await asyncio.wait([self._task])

    async def hold(self) -> bool:
        self._outside.log.append(f"hold {self._name}")
        return True

    async def resume(self) -> None:
        self._outside.log.append(f"go on {self._name}")


class Playing(Program):
    """A program of which the test says what it does."""

    name = "player"

    def __init__(self, outside: Outside, script: Callable[[Stage], Awaitable[Any]]) -> None:
        self.outside, self._script = outside, script
        self.failing_undos = 0

    async def play(self, driver: ProgramApi) -> bytes | None:
        return msgspec.json.encode(await self._script(Stage(driver, self.outside)))

    def undo(self, effect: Effect, call: UndoneCall, driver: ProgramApi) -> Execution:
        async def undo() -> None:
            self.outside.log.append(f"undo {effect.what}")
            if self.failing_undos:
                self.failing_undos -= 1
                raise OSError("the mailbox is gone")

        return Scripted(undo, self.outside, f"undo {effect.what}")

    def answer(self, question: str, driver: ProgramApi) -> Perform:
        async def answer() -> str:
            self.outside.log.append(f"asked {question}")
            return f"about {question}: fine"

        return lambda permit: Scripted(answer, self.outside, "answer")


class Stage:
    """What a scripted program has in its hands."""

    def __init__(self, driver: ProgramApi, outside: Outside) -> None:
        self.driver, self.outside = driver, outside

    async def call(
        self,
        name: str,
        *,
        seconds: float = 0.0,
        let: asyncio.Event | None = None,
        kind: CallKind = CallKind.TOOL,
        effect: bool = False,
        undo: bool = True,
        idempotent: bool = False,
        on_pause: OnPause = OnPause.FINISH,
        fails: bool = False,
        approval: str | None = None,
        place: str = "",
    ) -> Any:
        async def work() -> str:
            self.outside.log.append(f"begin {name}")
            await asyncio.sleep(seconds)
            if let is not None:
                await let.wait()
            if fails:
                raise ValueError("no such customer")
            self.outside.log.append(f"end {name}")
            return f"{name} done"

        spec = CallRequest(
            kind=kind,
            name=name,
            perform=lambda permit: Scripted(work, self.outside, name),
            arguments=msgspec.json.encode({"of": name}),
            place=place,
            carries=kind is CallKind.MODEL,
            on_pause=on_pause,
            idempotent=idempotent,
            effect=name if effect else None,
            undo=f"undo:{name}" if effect and undo else None,
            approval=approval,
        )
        result: Result = await self.driver.call(spec)
        return None if result.value is None else msgspec.json.decode(result.value)


DRIVERS: WeakKeyDictionary[asyncio.Task[None], Driver] = WeakKeyDictionary()
"""Which driver a task is of, for tests that make it crash."""


def owner(name: str = "first") -> Owner:
    return Owner(process=name, host="here")


async def new_run(journal: Journal, run: str = "r", **fields: Any) -> str:
    known: dict[str, Any] = {"agent": "player", "goal": "play", "thread": "t"}
    await journal.create(RunCreated(id="created", at=time.time(), run=run, **(known | fields)))
    return run


async def driver_of(
    journal: Journal, program: Program, lease: Lease, *, owner_dead: bool = True, **options: Any
) -> Driver:
    """A driver of the run of a lease, as an engine makes it. `owner_dead`: so are all who had the run before."""
    state = await journal.load(lease.run)
    ownership = Ownership(journal, lease)
    over = frozenset(range(lease.epoch)) if owner_dead else frozenset[int]()
    return Driver(journal, program, ownership, state, over=over, options=DriverOptions(**options))


async def drive(
    journal: Journal, program: Playing, run: str = "r", *, by: str = "first", owner_dead: bool = True, **options: Any
) -> asyncio.Task[None]:
    """Claim the run by force and drive it in a task."""
    lease = await journal.claim(run, owner(by), seconds=60, force=True)
    driver = await driver_of(journal, program, lease, owner_dead=owner_dead, **options)
    driving = asyncio.ensure_future(driver.drive())
    DRIVERS[driving] = driver
    return driving


async def at_work(journal: Journal, program: Playing, word: str, **options: Any) -> asyncio.Task[None]:
    """A new run, driven until its program has written this word."""
    await new_run(journal)
    driving = await drive(journal, program, **options)
    await until(lambda: word in program.outside.log)
    return driving


async def draft_and_score(stage: Stage) -> None:
    """A script: something that can be undone, then work that takes until it is stopped."""
    await stage.call("draft", effect=True)
    await stage.call("score", seconds=3600)


async def crash(driving: asyncio.Task[None]) -> None:
    """As good as a dead process: nothing of the driver runs any more and nothing of what it did is recorded."""
    writer = DRIVERS[driving]._session.writer
    writer.record = lambda *events: None  # type: ignore[method-assign]
    driving.cancel()
    await asyncio.wait([driving])
    assert driving.cancelled()


async def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until something is true outside."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


__all__ = [
    "DRIVERS",
    "Outside",
    "Permit",
    "Playing",
    "Stage",
    "crash",
    "drive",
    "driver_of",
    "new_run",
    "owner",
    "until",
]
