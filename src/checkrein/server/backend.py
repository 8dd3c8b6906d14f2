"""What the API stands on: a journal to read, a control to steer with, and somebody who begins runs.

`RuntimeBackend` is the one over a `Runtime` of this process. A front that drives nothing itself brings its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from checkrein.control.control import Control
from checkrein.control.evidence.keys import SigningKey
from checkrein.control.fork import ForkRun
from checkrein.control.start import StartRun
from checkrein.control.worker_roster import AgentCard, WorkerRoster, card_of
from checkrein.core.state import State
from checkrein.errors import CheckreinError, StoreUnavailable
from checkrein.journal.base import Chunk, Journal

if TYPE_CHECKING:
    from checkrein.runtime import Runtime

READY_SECONDS: Final = 1.0
"""A store that does not answer within so long makes a server that is not ready."""

Hear = Callable[[Chunk], None]
"""Told each piece of text as it streams."""


class Backend(Protocol):
    """What `create_app` needs. All of it is used from one event loop."""

    @property
    def journal(self) -> Journal: ...

    @property
    def control(self) -> Control: ...

    @property
    def store(self) -> str:
        """The address of the store."""
        ...

    @property
    def signing_key(self) -> SigningKey | None:
        """What bundles are signed with; None where agents' code runs in this process, or there is no key."""
        ...

    def now(self) -> float:
        """Unix seconds, by the clock that the runs go by."""
        ...

    def agents(self) -> Mapping[str, AgentCard]:
        """Every agent that a run can be begun of, by name."""
        ...

    async def know_agents(self) -> bool:
        """Wait for a while, if need be, until it is known which agents there are; whether it is."""
        ...

    async def start(self, wanted: StartRun) -> str:
        """Begin a run and return its id; with `if_busy="redirect"`, perhaps that of the live run that was redirected.

        Raises `MisuseError`, `Refused`, `RunNotFound` or another `JournalError`, as `Runtime.start` does.
        """
        ...

    async def fork(self, wanted: ForkRun) -> str:
        """Begin a run after a finished step of another and return its id. Raises what `Run.fork` does."""
        ...

    def listen(self, run: str, listener: Hear) -> Callable[[], None]:
        """Have `listener` called with each piece of text of a run as it streams, in the event loop. Returns an undo.

        What nobody tells of is read from the journal, a little later.
        """
        ...

    @property
    def is_ending(self) -> bool:
        """Whether requests should come here no more."""
        ...

    async def workers_wanted(self, states: Collection[State]) -> Mapping[str, str]:
        """What each of these runs, which nobody drives, waits for; one that somebody who is known could take up, here
        or elsewhere, is left out."""
        ...


async def store_answers(journal: Journal) -> bool:
    """Whether the store answers within `READY_SECONDS`."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            await journal.workers()
    except (TimeoutError, CheckreinError):
        return False
    return True


class RuntimeBackend:
    """A `Runtime` that is open in this event loop by the time requests come in."""

    signing_key: SigningKey | None = None
    """A program that runs agents has none: whoever can read the key can sign what never happened."""
    is_ending = False
    """When it ends is the application's to say, which it is mounted in."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._roster: WorkerRoster | None = None

    @property
    def journal(self) -> Journal:
        return self._open().journal

    @property
    def control(self) -> Control:
        return self._open().control

    @property
    def store(self) -> str:
        return self._runtime.store

    def _open(self) -> Runtime:
        if not self._runtime.is_open:
            raise StoreUnavailable("The runtime behind this is not open; open it before requests come in.")
        return self._runtime

    def now(self) -> float:
        return self._runtime.now()

    def agents(self) -> Mapping[str, AgentCard]:
        return {name: card_of(program) for name, program in self._runtime.agents.items()}

    async def know_agents(self) -> bool:
        return True

    async def start(self, wanted: StartRun) -> str:
        return (await self._open().start(**msgspec.structs.asdict(wanted))).id

    async def fork(self, wanted: ForkRun) -> str:
        return (await self._open().fork(**msgspec.structs.asdict(wanted))).id

    def listen(self, run: str, listener: Hear) -> Callable[[], None]:
        return self._open().listen(run, listener)

    async def workers_wanted(self, states: Collection[State]) -> Mapping[str, str]:
        roster = self._roster = self._roster or WorkerRoster(self.journal)
        return await roster.wanted([state for state in states if state.agent not in self._runtime.agents])
