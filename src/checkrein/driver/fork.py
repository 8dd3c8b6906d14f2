"""What a fork takes over from its origin: outcomes of calls, and the steps that people saw, up to one event there.

It becomes part of the fork's own journal before its program is played, so that the fork is replayed and verified from
that alone. Nothing of it is done again, and nothing of it is undone: effects stay with the run that caused them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from checkrein.core.enums import CallKind, Outcome
from checkrein.core.events import (
    ApprovalRequested,
    CallReused,
    CallStarted,
    Event,
    PlanPublished,
    StepFinished,
    StepStarted,
    VersionChosen,
)
from checkrein.driver.replay import Ending, Past, PastCall
from checkrein.driver.session import RunSession
from checkrein.journal.base import Recorded

_log = logging.getLogger(__name__)

AT_ONCE: Final = 200
"""So many events are recorded with one append."""

Asked = CallStarted | ApprovalRequested | CallReused
_SHOWN: Final = (PlanPublished, StepStarted, StepFinished, VersionChosen)


class StillAtWork(Exception):
    """A call that had begun by then has no outcome yet, so that it could only be done again."""

    def __init__(self, call: str, name: str) -> None:
        super().__init__(f"{name} is still at work")
        self.call = call
        self.name = name


def taken_over(records: Sequence[Recorded], seq: int, *, at: float) -> tuple[Event, ...]:
    """What a fork of the run with these records takes over that begins after event `seq`, as its own journal has it.

    Every call that had begun by then is answered from its outcome, also from one that came later. A model that had not
    answered by then, and a call that was asked for and not begun, are left to the fork. Raises `StillAtWork`.
    """
    then = Past(record for record in records if record.seq <= seq)
    now = Past(records)
    endings = {call: _ending(past, now.calls[call], records) for call, past in then.calls.items()}
    places = _places(now, endings)
    events: list[Event] = []
    seen: set[str] = set()
    for record in records:
        event = record.event
        if record.seq > seq:
            break
        if isinstance(event, _SHOWN):
            events.append(msgspec.structs.replace(event, at=at))
        elif isinstance(event, Asked) and event.call in then.calls and event.call not in seen:
            seen.add(event.call)
            ending = endings[event.call]
            made = event if ending is None else _permit(records, event.call) or event
            reused = _reused(made, now.calls[event.call], ending, places[event.call], record.run)
            # What is compared with when the program asks is what it asked for, which is not always what was made.
            same = {"fingerprint": event.fingerprint, "place": event.place}
            events.append(msgspec.structs.replace(reused, id=f"reused.{len(seen)}", at=at, **same))
    return tuple(events)


def _permit(records: Sequence[Recorded], call: str) -> CallStarted | None:
    return next((r.event for r in records if isinstance(r.event, CallStarted) and r.event.call == call), None)


def _ending(then: PastCall, now: PastCall, records: Sequence[Recorded]) -> Ending | None:
    """How a call ended, as the fork's program is told; None where the fork makes it itself."""
    if then.ending is not None:
        return then.ending
    if not then.attempts:
        return None
    started = _permit(records, then.id)
    if started is not None and started.kind is CallKind.MODEL:
        is_answered = now.ending is not None and now.ending.outcome is Outcome.COMPLETED
        return now.ending if is_answered else None
    if now.ending is None:
        raise StillAtWork(then.id, then.name)
    return now.ending


def _places(now: Past, endings: Mapping[str, Ending | None]) -> dict[str, dict[str, int]]:
    """Of each call when it was asked for and when it ended, counted over all of them."""
    places: dict[str, dict[str, int]] = {call: {} for call in endings}
    kept = [(what, past.id) for what, past in now.log if past.id in endings]
    for number, (what, call) in enumerate(kept):
        if what == "asked" or endings[call] is not None:
            places[call][what] = number
    return places


def _reused(made: Asked, past: PastCall, ending: Ending | None, places: Mapping[str, int], run: str) -> CallReused:
    return CallReused(
        id="",
        at=0.0,
        call=past.id,
        kind=CallKind.TOOL if isinstance(made, ApprovalRequested) else made.kind,
        name=past.name,
        origin=past.origin or run,
        asked=places["asked"],
        ended=None if ending is None else places["ended"],
        outcome=None if ending is None else ending.outcome,
        result=None if ending is None else _raw(ending.result),
        error=None if ending is None else ending.error,
        instruction=None if ending is None else ending.instruction,
        carried=past.instruction,
        step=None if isinstance(made, ApprovalRequested) else made.step,
        arguments=made.arguments,
        edited=None if ending is None else _raw(past.edited),  # consent to a call of the origin is none to the fork's
        started_at=made.started_at if isinstance(made, CallReused) else made.at,
        ended_at=None if ending is None else ending.at,
    )


def _raw(value: bytes | None) -> msgspec.Raw | None:
    return None if value is None else msgspec.Raw(value)


async def take_over_origin(session: RunSession) -> None:
    """Record what a fork takes over, unless that is done. After a crash in the middle the rest is recorded.

    Raises `RunNotFound` where the origin is not there any more.
    """
    origin = session.state.forked_from
    if origin is None or await session.journal.find(session.run, f"reused.{origin.calls}") is not None:
        return
    has = {record.event.id for record in await session.journal.read(session.run)}
    events = taken_over(await session.journal.read(origin.run), origin.seq, at=session.now())
    for some in _batches([event for event in events if event.id not in has]):
        session.writer.record(*some)
        await session.writer.flush()
    _log.info("%d calls of run %s are taken over", origin.calls, origin.run, extra={"run": session.run})


def _batches(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    for start in range(0, len(events), AT_ONCE):
        yield events[start : start + AT_ONCE]
