"""What somebody asks of a run: known again by its id, and waited for until there is a receipt.

Whoever makes a request gives it an id, which is that of the event which records it, and may repeat it as often as it
takes until there is an answer. What was taken is found in the journal, and nothing is done twice. That holds for a verb
that only joined another's receipt, too.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, Self

from checkrein.control.undriven import UndrivenRuns
from checkrein.control.worker_roster import WorkerRoster
from checkrein.core.decide.verdict import known_of
from checkrein.core.enums import Decision, Verb
from checkrein.core.events import (
    HELD_PREFIX,
    ApprovalDecided,
    CallResolved,
    CheckAsked,
    EffectReopened,
    Event,
    ReasonAdded,
    VerbAccepted,
    VerbJoined,
    VerbSettled,
)
from checkrein.core.orders import obstacle
from checkrein.core.receipts import Receipt, VerbAnswer
from checkrein.driver.ownership import is_driven
from checkrein.driver.sub_runs import unfinished_sub_runs
from checkrein.errors import Refused
from checkrein.journal.base import Journal, Recorded

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.25
_LOOK_SECONDS_MOST: Final = 2.0
"""How often it is looked whether a run whose verb is waited for has lost its driver."""


class VerbRequest(NamedTuple):
    """Somebody wants a verb, on a run or on a call of it."""

    run: str
    verb: str
    call: str
    id: str
    """Of the event that records it: the request id, or a new one where none was given."""
    is_named: bool
    """Whether there may be a repeat of it."""
    by: str = ""
    """Who wants it, where it may join what is in force."""
    is_renamed: bool = False
    """It has an id of its own, because the one that it was given was used for something else."""

    @classmethod
    def made(cls, run: str, verb: str, request_id: str, call: str = "", *, by: str = "") -> Self:
        id = request_id or new_id()
        if id.startswith(HELD_PREFIX):
            # Under that id it would be resumed with a parent.
            id = f"request:{id}"
        return cls(run, verb, call, id, is_named=bool(request_id), by=by)

    def renamed(self) -> Self:
        """A stop is not refused because of its id: it is taken under one that nobody has used."""
        own = new_id() if self.is_renamed else id_of_its_own(self.id, verb=self.verb, call=self.call)
        _log.warning(
            "the request_id %s was used for something else; the %s is taken under %s",
            self.id,
            self.verb,
            own,
            extra=self.logged,
        )
        return self._replace(id=own, is_renamed=True)

    @property
    def logged(self) -> dict[str, str]:
        return {"run": self.run, "call": self.call}


def new_id() -> str:
    return uuid.uuid4().hex


async def find_repeat(journal: Journal, run: str, request_id: str, *, verb: str, call: str = "") -> Recorded | None:
    """What this request led to when it was made before; None when it was not.

    An id is that of one verb on one call: raises `Refused` where it was used for something else, so that nobody gets
    an answer to what they did not ask.
    """
    known = await journal.find(run, request_id)
    if known is None or recorded_request(known.event) == (verb, call):
        return known
    told = f"The request_id {request_id} was used for something else in run {run}; make a new one for each verb."
    raise Refused(told, code="request_id_used", run=run)


def id_of_its_own(request_id: str, *, verb: str, call: str = "") -> str:
    """The id under which a stop is taken whose request id was used for something else: the same each time."""
    return ".".join(part for part in (request_id, verb, call) if part)


def recorded_request(event: Event) -> tuple[str, str] | None:
    """The verb, and the call that it is about, which `event` records under the id of its request."""
    match event:
        case VerbAccepted(verb=verb, call=call):
            return verb.value, call or ""
        case VerbJoined(verb=verb):
            return verb.value, ""
        case ApprovalDecided(decision=Decision.APPROVED, call=call):
            return "approve", call
        case ApprovalDecided(decision=Decision.DENIED, call=call):
            return "deny", call
        case CallResolved(call=call):
            return "resolve", call
        case EffectReopened(effect=effect):
            return "retry_undo", effect
        case CheckAsked(call=call):
            return "check", call
        case ReasonAdded():
            return "add_reason", ""
    return None


# -- the receipt


class Settling(VerbAnswer, frozen=True, kw_only=True, omit_defaults=True):
    """What is known so far of a verb that is accepted and in force and has not settled: also what it waits for.

    It has everything that a `Receipt` has, so that a program may read either without asking which it is.
    """

    accepted: str
    waiting_for: str

    @property
    def is_settled(self) -> bool:
        return False


class ReceiptWaiter:
    """Waits for receipts. What nobody drives is settled meanwhile, as far as that needs no driver."""

    def __init__(self, journal: Journal, undriven: UndrivenRuns, clock: Callable[[], float]) -> None:
        self._journal = journal
        self._undriven = undriven
        self._clock = clock
        self._roster = WorkerRoster(journal)
        self._deadlines: set[asyncio.Timeout] = set()
        self._is_hurried = False

    def hurry(self) -> None:
        """From now on nobody is kept waiting for a receipt: whoever does is told what their verb waits for."""
        self._is_hurried = True
        for deadline in self._deadlines:
            with suppress(RuntimeError):  # it has just run out by itself
                deadline.reschedule(0.0)

    async def wait(self, run: str, accepted: str, after: int, wait: float) -> Receipt | Settling:
        """The receipt of a verb, or, when that takes too long, what it waits for."""
        settled = asyncio.get_running_loop().create_task(self._settled(run, accepted, after))
        deadline = asyncio.timeout(0.0 if self._is_hurried else wait)
        self._deadlines.add(deadline)
        try:
            async with deadline:
                pause = _LOOK_SECONDS
                while not settled.done():
                    # Also later on: a driver that is wedged in user code is killed after a while.
                    if not await self._is_driven(run):
                        await self._undriven.settle(run)
                    await asyncio.wait([settled], timeout=pause)
                    pause = min(2 * pause, _LOOK_SECONDS_MOST)
                return settled.result()
        except TimeoutError:
            return await self._still_settling(run, accepted, after)
        finally:
            self._deadlines.discard(deadline)
            settled.cancel()
            await asyncio.gather(settled, return_exceptions=True)

    async def _settled(self, run: str, accepted: str, after: int) -> Receipt:
        follower = self._journal.follow(run, after=after)
        try:
            async for record in follower:
                if isinstance(record.event, VerbSettled) and record.event.accepted == accepted:
                    return record.event.receipt
        finally:
            await follower.aclose()
        raise AssertionError("a follower never ends by itself")

    async def _still_settling(self, run: str, accepted: str, after: int) -> Receipt | Settling:
        state, effects = await self._journal.load(run), await self._journal.effects(run)
        verb = state.verb(accepted)
        if verb is None:
            return await self._settled(run, accepted, after)
        sub_runs = await unfinished_sub_runs(self._journal, state) if verb.verb is Verb.CANCEL else []
        waits_for = obstacle(state, verb, effects, below=[row.id for row in sub_runs]) or "its driver"
        if not await self._is_driven(run):
            waits_for = (await self._roster.wanted([state])).get(run, waits_for)
        return Settling(**known_of(verb), run=run, status=state.status, accepted=accepted, waiting_for=waits_for)

    async def _is_driven(self, run: str) -> bool:
        return await is_driven(self._journal, run, at=self._clock())
