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

from checkrein.core.effects import Effect
from checkrein.core.events import RunCreated
from checkrein.core.words import CallKind, OnPause, Outcome
from checkrein.journal.contract import Journal, Owner
from checkrein.runtime.calling import Result
from checkrein.runtime.driver import Driver
from checkrein.runtime.spec import Ended, Perform, Performance, Permit, Spec, UndoneCall


class Outside:
    """What really happened, as those who did it say."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def times(self, line: str) -> int:
        return self.log.count(line)


class Scripted:
    """A performance that waits, and can be aborted or held."""

    def __init__(self, work: Callable[[], Awaitable[Any]], outside: Outside, name: str) -> None:
        self._outside, self._name = outside, name
        self._task = asyncio.ensure_future(work())

    async def ended(self) -> Ended:
        await asyncio.wait([self._task])
        if self._task.cancelled():
            return Ended(outcome=Outcome.ABORTED)
        if error := self._task.exception():
            return Ended(outcome=Outcome.FAILED, error=f"{type(error).__name__}: {error}")
        return Ended(outcome=Outcome.COMPLETED, result=msgspec.json.encode(self._task.result()))

    async def abort(self) -> None:
        if not self._task.done():
            self._outside.log.append(f"abort {self._name}")
            self._task.cancel()
        await asyncio.wait([self._task])

    async def hold(self) -> bool:
        self._outside.log.append(f"hold {self._name}")
        return True

    async def go_on(self) -> None:
        self._outside.log.append(f"go on {self._name}")


class Playing:
    """A program of which the test says what it does."""

    name = "player"

    def __init__(self, outside: Outside, script: Callable[[Stage], Awaitable[Any]]) -> None:
        self._outside, self._script = outside, script
        self.failing_undos = 0

    async def play(self, driver: Driver) -> bytes | None:
        return msgspec.json.encode(await self._script(Stage(driver, self._outside)))

    def undo(self, effect: Effect, call: UndoneCall, driver: Driver) -> Performance:
        async def undo() -> None:
            self._outside.log.append(f"undo {effect.what}")
            if self.failing_undos:
                self.failing_undos -= 1
                raise OSError("the mailbox is gone")

        return Scripted(undo, self._outside, f"undo {effect.what}")

    def check(self, call: UndoneCall, driver: Driver) -> Performance | None:
        return None

    def answer(self, question: str, driver: Driver) -> Perform:
        async def answer() -> str:
            self._outside.log.append(f"asked {question}")
            return f"about {question}: fine"

        return lambda permit: Scripted(answer, self._outside, "answer")


class Stage:
    """What a scripted program has in its hands."""

    def __init__(self, driver: Driver, outside: Outside) -> None:
        self.driver, self.outside = driver, outside

    async def call(
        self,
        name: str,
        *,
        seconds: float = 0.0,
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
            if fails:
                raise ValueError("no such customer")
            self.outside.log.append(f"end {name}")
            return f"{name} done"

        spec = Spec(
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
    await journal.create(
        RunCreated(id="created", at=time.time(), run=run, agent="player", goal="play", thread="t", **fields)
    )
    return run


async def drive(
    journal: Journal, program: Playing, run: str = "r", *, by: str = "first", owner_dead: bool = True, **options: Any
) -> asyncio.Task[None]:
    """Claim the run by force and drive it in a task."""
    lease = await journal.claim(run, owner(by), seconds=60, force=True)
    driver = Driver(journal, program, lease, owner_dead=owner_dead, **options)
    driving = asyncio.ensure_future(driver.drive())
    DRIVERS[driving] = driver
    return driving


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until something is true outside."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


__all__ = ["DRIVERS", "Outside", "Permit", "Playing", "Stage", "drive", "new_run", "owner", "until"]
