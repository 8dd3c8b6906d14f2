"""What is known of an agent without its code: what a front shows of it, and what a worker puts on the roster."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from checkrein.core.conditions import Condition
from checkrein.journal.base import Worker

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
