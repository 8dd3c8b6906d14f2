"""Who could drive a run, by the roster of the store: what a run that nobody drives waits for."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from checkrein.core.state import State
from checkrein.core.wording import worker_wanted
from checkrein.driver.ownership import needs_no_slot
from checkrein.journal.base import Journal, Worker

KEPT_SECONDS: Final = 1.0
"""Asked again within so long, the workers are those that were found before."""


class WorkerRoster:
    """The workers of a store that are seen."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._seen: tuple[Worker, ...] = ()
        self._asked_at = float("-inf")

    async def seen(self) -> tuple[Worker, ...]:
        """Those that gave a sign of life lately, the last enlisted first."""
        if time.monotonic() - self._asked_at >= KEPT_SECONDS:
            workers, now = await self._journal.workers(), self._journal.now()
            self._seen = tuple(worker for worker in workers if worker.is_seen(now))
            self._asked_at = time.monotonic()
        return self._seen

    async def wanted(self, states: Collection[State]) -> Mapping[str, str]:
        """What each of these runs waits for, if nobody drives it; one that a worker could take up now is left out."""
        able = {agent: await self._with(agent) for agent in {state.agent for state in states}}
        # No version matters where no worker that has the agent has one.
        asked = [one.run for one in states if not able[one.agent] or any(w.version for w in able[one.agent])]
        versions = await self._journal.versions(asked) if asked else {}
        found = {one.run: _wanted(one, versions.get(one.run, ""), able[one.agent]) for one in states}
        return {run: wanted for run, wanted in found.items() if wanted}

    async def _with(self, agent: str) -> list[Worker]:
        return [worker for worker in await self.seen() if agent in worker.agents]


def _wanted(state: State, version: str, able: Collection[Worker]) -> str:
    if not able:
        return worker_wanted(state.agent, version)
    same = [worker for worker in able if version and worker.version == version]
    if needs_no_slot(state) or any(not worker.slots or worker.free for worker in same or able):
        return ""
    return worker_wanted(state.agent, version if same else "", is_full=True)
