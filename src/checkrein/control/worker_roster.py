"""The roster of a store: its workers and their agents, and what a run that nobody drives waits for."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from checkrein.core.conditions import Condition
from checkrein.core.state import State
from checkrein.core.wording import worker_wanted
from checkrein.driver.ownership import needs_no_slot
from checkrein.journal.base import Journal, Worker

if TYPE_CHECKING:
    from checkrein.driver.program_api import Program

_log = logging.getLogger(__name__)


class AgentCard(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an agent without its code: enough to choose it, and to begin a run of it."""

    name: str
    description: str = ""
    tools: tuple[str, ...] = ()
    stop_when: Condition | None = None
    goals: tuple[str, ...] = ()
    """Goals to try first."""
    warnings: tuple[str, ...] = ()
    """What its author should mend: tools that could not be stopped, or that say nothing about what they do."""


def card_of(program: Program) -> AgentCard:
    """The card of an agent, from its code."""
    return AgentCard(
        name=program.name,
        description=program.description,
        tools=(*program.tools, *program.team),
        stop_when=program.stop_when,
        goals=tuple(program.goals),
        warnings=tuple(
            f"{tool.name} {one.what}. {one.why}" for tool in program.tools.values() for one in tool.warnings()
        ),
    )


_DECODER: Final = msgspec.json.Decoder(tuple[AgentCard, ...])


def encode_cards(cards: Iterable[AgentCard]) -> bytes:
    """As the roster has them."""
    return msgspec.json.encode(tuple(cards))


def cards_of(workers: Iterable[Worker]) -> Mapping[str, AgentCard]:
    """The cards of these workers by the names of the agents; of two for one name, the first.

    What a later version has written, and this one cannot read, is left out.
    """
    found: dict[str, AgentCard] = {}
    for worker in workers:
        try:
            cards = _DECODER.decode(worker.cards)
        except msgspec.MsgspecError as error:
            _log.warning("the agents of worker %s cannot be read: %s", worker.name, error)
            continue
        for card in cards:
            found.setdefault(card.name, card)
    return found


def differing(worker: Worker, others: Iterable[Worker]) -> list[tuple[AgentCard, AgentCard, Worker]]:
    """The agents of `worker` of which another worker of the same version has another card, and who that is."""
    own = cards_of([worker])
    return [
        (own[name], card, other)
        for other in others
        if other.owner.process != worker.owner.process and other.version == worker.version
        for name, card in cards_of([other]).items()
        if name in own and own[name] != card
    ]


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
