"""Runs in whose hands drivers have died: which is to blame is found out by taking them up one at a time.

A run may end the process that drives it, and every other run there with it. Nobody sees which one it was, so all that
were in the hands of a dead driver more than once are suspects.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from checkrein.core.enums import PERMITTING
from checkrein.core.state import State
from checkrein.journal.base import Owner

DEATHS: Final = 3
"""A run of which so many drivers have died is not played again before a person says so."""
PROBATION_SECONDS: Final = 1.0
"""How long a run is watched alone of which a driver has died; twice as long for every further one."""
LONGEST_PROBATION_SECONDS: Final = 30.0


class Suspect(NamedTuple):
    """A run that was in the hands of a driver when that died, and not for the first time since it last got on."""

    run: str
    root: str
    deaths: int
    started_at: float
    owner: str
    """The process that died last."""

    @property
    def probation_seconds(self) -> float:
        """How long it is watched alone, unless it gets on before."""
        return min(PROBATION_SECONDS * 2.0**self.deaths, LONGEST_PROBATION_SECONDS)


class Suspects:
    """Runs that wait to be taken up one at a time."""

    def __init__(self) -> None:
        self._waiting: dict[str, Suspect] = {}
        self._died_last: Suspect | None = None
        """The one that was taken up last, and so was in the hands of the driver that died last."""
        self._in_dead_hands: dict[str, set[str]] = {}
        """Of each process that has died: the roots of the suspects that were in its hands."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, run: object) -> bool:
        return run in self._waiting

    def add(self, state: State, owner: Owner) -> None:
        """`owner` has died, and had this run in its hands."""
        root = state.root or state.run
        suspect = self._waiting[state.run] = Suspect(state.run, root, state.deaths, state.started_at, owner.process)
        if self._died_last is None or suspect.started_at > self._died_last.started_at:
            self._died_last = suspect
        self._in_dead_hands.setdefault(owner.process, set()).add(root)

    def take(self) -> Suspect:
        """The one that was taken up last: the others were at work before it, and their driver lived. So whichever ends
        its driver is alone the next time."""
        suspect = max(self._waiting.values(), key=lambda one: one.started_at)
        del self._waiting[suspect.run]
        return suspect

    def is_guilty(self, suspect: Suspect) -> bool:
        """Drivers have died of it often enough, and the last one had nothing else in its hands that had been in those
        of another dead one. Which runs an earlier one had is not known any more: they were in other hands since."""
        in_the_last = self._died_last is not None and self._died_last.owner == suspect.owner
        return suspect.deaths + 1 >= DEATHS and in_the_last and self._in_dead_hands[suspect.owner] == {suspect.root}


def plays(state: State) -> bool:
    """Whether code of the run goes on: it may begin calls, and does not just wait for a person's consent."""
    return state.status in PERMITTING and not (state.waiting() and not state.doubts)
