"""What the API stands on in a front: the journal, a control, and drivers in other processes.

A run is begun by writing it down; a driver that has its agent hears of it from the journal and takes it up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from checkrein.control.starting import IfBusy, begin
from checkrein.control.texts import Listeners
from checkrein.control.verbs import Control
from checkrein.errors import MisuseError
from checkrein.journal.contract import Chunk, Journal
from checkrein.runtime.secrets import Secrets
from checkrein.server.backend import AgentCard, Hear
from checkrein.server.front.slots import Slots, Told


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What /healthz says. Anybody may read it, so it names no file and no process."""

    status: str
    drivers: list[Told]


class FrontBackend:
    """A `Backend` that drives nothing itself. `slots` is set once there are drivers to be asked."""

    slots: Slots

    def __init__(self, journal: Journal, control: Control, secrets: Secrets) -> None:
        self.journal = journal
        self.control = control
        self._secrets = secrets
        self._listeners = Listeners()

    def now(self) -> float:
        return time.time()

    def agents(self) -> Mapping[str, AgentCard]:
        return self.slots.cards

    async def start(
        self,
        agent: str,
        goal: str,
        *,
        thread: str | None = None,
        continues: str | None = None,
        owner: str = "",
        if_busy: IfBusy = "queue",
        by: str = "",
    ) -> str:
        card = self.agents().get(agent)
        if card is None:
            known = ", ".join(self.agents()) or "none"
            raise MisuseError(f"There is no agent {agent} here; there are: {known}.", agent=agent)
        run, _ = await begin(
            self.journal,
            self.control,
            agent,
            goal,
            stop_when=card.stop_when,
            secrets=self._secrets,
            clock=self.now,
            thread=thread,
            continues=continues,
            owner=owner,
            if_busy=if_busy,
            by=by,
        )
        return run

    def listen(self, run: str, listener: Hear) -> Callable[[], None]:
        return self._listeners.add(run, listener)

    def heard(self, run: str, chunk: Chunk) -> None:
        """A driver has streamed this."""
        self._listeners.tell(run, chunk)

    def health(self) -> Health:
        """Whether some driver is at work, and how each of them is."""
        drivers = [slot.told for slot in self.slots.each]
        return Health(status="ok" if any(one.phase == "ready" for one in drivers) else "no driver", drivers=drivers)
