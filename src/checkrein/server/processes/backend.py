"""What the API stands on in a front: the journal, a control, and drivers in other processes.

A run is begun by writing it down; a driver that has its agent hears of it from the journal and takes it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from checkrein.control.control import Control
from checkrein.control.evidence.keys import SigningKey
from checkrein.control.fork import ForkRun, fork
from checkrein.control.live_text import Listeners
from checkrein.control.start import StartRun, begin
from checkrein.control.worker_roster import AgentCard, WorkerRoster, cards_of
from checkrein.core.conditions import DEFAULT
from checkrein.core.state import State
from checkrein.errors import MisuseError
from checkrein.journal.base import Chunk, Journal
from checkrein.secrets import Secrets
from checkrein.server.backend import Hear
from checkrein.server.processes.drivers import DriverSlots, Told

AGENTS_SECONDS: Final = 20.0
"""How long whoever asks for an agent waits while the very first driver still loads them."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What /healthz says. Anybody may read it, so it names no file and no process."""

    status: str
    drivers: list[Told]


class FrontBackend:
    """A `Backend` that drives nothing itself. `slots` is set once there are drivers to be asked.

    The agents of workers elsewhere are those that the roster of the store names. Where there is no driver here, a run
    may also be begun of an agent that nobody has yet: it waits for a worker.
    """

    slots: DriverSlots
    is_ending = False
    signing_key: SigningKey | None = None
    """What signs evidence here, where there is a key."""

    def __init__(self, journal: Journal, control: Control, secrets: Secrets, *, store: str = "") -> None:
        self.journal = journal
        self.store = store
        self.control = control
        self._secrets = secrets
        self._listeners = Listeners()
        self._roster = WorkerRoster(journal)
        self._elsewhere: Mapping[str, AgentCard] = {}

    def now(self) -> float:
        return self.journal.now()

    def agents(self) -> Mapping[str, AgentCard]:
        return {**self._elsewhere, **self.slots.cards}

    @property
    def is_alone(self) -> bool:
        """Whether all that is begun here is driven elsewhere."""
        return not self.slots.each

    async def _look_elsewhere(self) -> None:
        self._elsewhere = cards_of(await self._roster.seen())

    async def workers_wanted(self, states: Collection[State]) -> Mapping[str, str]:
        if not self.slots.has_loaded and not self.is_alone:
            return {}  # which agents its own drivers have is not known yet
        return await self._roster.wanted([state for state in states if state.agent not in self.slots.cards])

    async def know_agents(self) -> bool:
        await self._look_elsewhere()
        with suppress(TimeoutError):
            async with asyncio.timeout(AGENTS_SECONDS):
                await self.slots.loaded()
        return self.slots.has_loaded or self.is_alone

    async def start(self, wanted: StartRun) -> str:
        card = self.agents().get(wanted.agent)
        if card is None and not self.is_alone:
            known = ", ".join(self.agents()) or "none"
            raise MisuseError(f"There is no agent {wanted.agent} here; there are: {known}.", agent=wanted.agent)
        # What an agent's own caps are is known once some worker has it; until then, those that an agent has by itself.
        caps = DEFAULT if card is None else card.stop_when
        run, _ = await begin(self.journal, self.control, wanted, stop_when=caps, secrets=self._secrets, clock=self.now)
        return run

    async def fork(self, wanted: ForkRun) -> str:
        origin = await self.journal.load(wanted.run)
        card = self.agents().get(origin.agent)
        caps = origin.stop_when if card is None else card.stop_when
        return await fork(self.journal, wanted, stop_when=caps, secrets=self._secrets, clock=self.now)

    def listen(self, run: str, listener: Hear) -> Callable[[], None]:
        return self._listeners.add(run, listener)

    def heard(self, run: str, chunk: Chunk) -> None:
        """A driver has streamed this."""
        self._listeners.tell(run, chunk)

    def health(self) -> Health:
        """Whether some driver is at work, and how each of them is."""
        drivers = [slot.told for slot in self.slots.each]
        is_well = self.is_alone or any(one.phase == "ready" for one in drivers)
        return Health(status="ok" if is_well else "no driver", drivers=drivers)
