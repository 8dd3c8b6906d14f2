"""Many races at once, in one process, on one runtime, and what they came to."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

import msgspec

from checkrein import Receipt, Runtime
from checkrein.core.enums import Undo, When
from tests.torture.races.moments import Aim, Gate, GatedMemory, GatedSqlite, Moment, Turn
from tests.torture.races.race import Move, Raced, race
from tests.torture.races.racers import LOG, RACERS
from tests.torture.races.referee import Foul, Referee

AT_ONCE: Final = 24
"""How many races are run side by side."""
IN_ONE_JOURNAL: Final = 400
IN_FLIGHT: Final = range(6, 11)
"""The turns of a driver around which its first call is in flight."""

Draw = Callable[[Callable[[], Moment], Random], tuple[Move, ...]]


def _cancel(moment: Callable[[], Moment], dice: Random) -> tuple[Move, ...]:
    return (Move(verb="cancel", moment=moment(), undo=dice.choice(list(Undo))),)


def _two_cancels(moment: Callable[[], Moment], dice: Random) -> tuple[Move, ...]:
    first, second = dice.sample(list(Undo), 2)
    return (Move(verb="cancel", moment=moment(), undo=first), Move(verb="cancel", moment=moment(), undo=second))


def _redirect(moment: Callable[[], Moment], dice: Random) -> tuple[Move, ...]:
    return (Move(verb="redirect", moment=moment(), when=dice.choice(list(When))),)


def _pause(moment: Callable[[], Moment], dice: Random) -> tuple[Move, ...]:
    return (Move(verb="pause", moment=moment()),)


def _abort(moment: Callable[[], Moment], dice: Random) -> tuple[Move, ...]:
    return (Move(verb="abort", moment=moment()),)


def _several(moment: Callable[[], Moment], dice: Random) -> tuple[Move, ...]:
    verbs = dice.choice([("redirect", "cancel"), ("pause", "cancel"), ("redirect", "redirect"), ("pause", "redirect")])
    return tuple(Move(verb=verb, moment=moment(), when=dice.choice(list(When))) for verb in verbs)


KINDS: Final[dict[str, Draw]] = {
    "cancel": _cancel,
    "two cancels": _two_cancels,
    "redirect": _redirect,
    "pause": _pause,
    "abort": _abort,
    "several": _several,
}


class Score(msgspec.Struct):
    """What a series of races came to."""

    races: int = 0
    verb_won: int = 0
    end_won: int = 0
    fouls: list[str] = []

    def counts(self) -> dict[str, int]:
        return {
            "races": self.races,
            "won_by_the_verb": self.verb_won,
            "won_by_completion": self.end_won,
            "fouls": len(self.fouls),
        }

    def __str__(self) -> str:
        return f"{self.races} races, verb won {self.verb_won}, completion won {self.end_won}, fouls {len(self.fouls)}"


class Meeting:
    """A series of races of one kind on one kind of journal. The aim gets better while it lasts."""

    def __init__(self, store: str, kind: str, seed: int) -> None:
        self._store = store
        self._kind = kind
        self._dice = Random(f"{seed} {store} {kind}")
        self._aims = {name: Aim(self._dice) for name in RACERS}
        self._turns = dict.fromkeys(RACERS, 10)
        self.score = Score()

    async def hold(self, races: int) -> Score:
        while (left := races - self.score.races) > 0:
            async with opened(self._store) as (runtime, gates):
                places = asyncio.Semaphore(AT_ONCE)
                await asyncio.gather(*(self._one(runtime, gates, places) for _ in range(min(left, IN_ONE_JOURNAL))))
            LOG.clear()
        return self.score

    async def _one(self, runtime: Runtime, gates: dict[str, Gate], places: asyncio.Semaphore) -> None:
        async with places:
            racer = self._dice.choice(list(RACERS))
            moves = KINDS[self._kind](lambda: self._moment(racer), self._dice)
            try:
                raced = await race(runtime, gates, racer, moves)
            except TimeoutError:
                self.score.races += 1
                self.score.fouls.append(f"{racer} never ended, or a verb was never settled: {moves}")
            else:
                await self._count(runtime, raced)

    def _moment(self, racer: str) -> Moment:
        # Too early is as bad as too late for an abort, so it is not aimed: half of them come where calls are in flight.
        if self._kind == "abort" and self._dice.random() < 0.5:
            return Turn(self._dice.choice(IN_FLIGHT), self._dice.random() < 0.5)
        if self._kind == "abort" or self._dice.random() < 0.3:
            return Turn(self._dice.randrange(1, self._turns[racer] + 2), self._dice.random() < 0.5)
        return self._aims[racer].rounds()

    async def _count(self, runtime: Runtime, raced: Raced) -> None:
        records, effects = await runtime.journal.read(raced.run), await runtime.journal.effects(raced.run)
        score = self.score
        score.races += 1
        try:
            Referee(raced, records, effects, LOG[raced.goal]).judge()
        except Foul as foul:
            score.fouls.append(str(foul))
        verb_won = any(isinstance(told.answer, Receipt) for told in raced.told)
        score.verb_won += verb_won
        score.end_won += not verb_won
        self._aims[raced.racer].learn(was_late=not verb_won)
        self._turns[raced.racer] = max(self._turns[raced.racer], raced.turns)


@asynccontextmanager
async def opened(store: str) -> AsyncIterator[tuple[Runtime, dict[str, Gate]]]:
    """A runtime whose drivers can be met at any of their turns."""
    with tempfile.TemporaryDirectory() as folder:
        journal: Any = GatedMemory() if store == "memory" else GatedSqlite(str(Path(folder) / "runs.db"))

        async def open_journal(address: str, **options: Any) -> Any:
            return journal

        with patch("checkrein.runtime.open_journal", open_journal):
            async with Runtime("memory:", agents=list(RACERS.values())) as runtime:
                yield runtime, journal.gates
