"""A new run from a finished step of another: which step that is, where it ended there, and what is written.

Whoever then drives the fork copies what it goes on from into its journal (`driver.fork`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from checkrein.agents.history import SEPARATOR, told_of
from checkrein.control.view import RunView, Shown, StepView
from checkrein.control.viewer import Viewer
from checkrein.core.conditions import Condition
from checkrein.core.effects import Effect
from checkrein.core.enums import CallKind, EffectState
from checkrein.core.events import (
    ApprovalDecided,
    CallFinished,
    CallResolved,
    CallReused,
    CallStarted,
    Origin,
    OriginEffect,
    RunCreated,
    StepFinished,
)
from checkrein.driver.fork import StillAtWork, taken_over
from checkrein.errors import MisuseError, Refused, RunNotFound
from checkrein.journal.base import Journal, Recorded
from checkrein.secrets import Secrets

MOST_EFFECTS: Final = 100
"""So many effects of the origin are named in the record of the fork; of the others how many there are."""
_ENDED_BY_ITSELF: Final = frozenset({Shown.DONE, Shown.FAILED, Shown.UNDONE})


class ForkRun(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody wants to go on otherwise from a finished step of a run, which stays as it is."""

    run: str
    at: int
    """The number of the last step that is kept, as `view.steps` has it."""
    instruction: str | None = None
    by: str = ""


async def fork(
    journal: Journal,
    wanted: ForkRun,
    *,
    stop_when: Condition | None,
    secrets: Secrets,
    clock: Callable[[], float],
) -> str:
    """Write a fork down, and say its id. `stop_when` is what it may spend itself, whatever its origin has spent.

    The origin may be at work, paused or over, and is not touched. Raises `RunNotFound`; `Refused` for a step that there
    is not (`step_not_found`) or that is not finished (`step_not_finished`), and for a program under `exec`
    (`not_replayed`); `MisuseError` for what cannot be meant; and what `Journal.create` raises.
    """
    _check(wanted)
    at, records = clock(), await journal.read(wanted.run)
    _check_replayed(wanted.run, records)
    created, kept = _first(records), _kept(records, wanted.at, at=at)
    effects = await _effects(journal, created, kept.calls)
    run = f"r-{uuid.uuid4().hex[:12]}"
    await journal.create(
        RunCreated(
            id=f"{run}.created",
            at=at,
            run=run,
            agent=created.agent,
            goal=created.goal,
            thread=run,
            owner=created.owner,
            stop_when=stop_when,
            forked_from=_origin(created, kept, effects, wanted, secrets),
        )
    )
    return run


def _origin(
    created: RunCreated, kept: _Kept, effects: Sequence[OriginEffect], wanted: ForkRun, secrets: Secrets
) -> Origin:
    """Where the fork comes from, as its record has it."""
    before = created.forked_from
    return Origin(
        run=created.run,
        step=kept.step.number,
        title=kept.step.title,
        seq=kept.seq,
        hash=kept.hash,
        calls=len(kept.calls),
        first=created.run if before is None else before.first,
        thread=created.thread if before is None else before.thread,
        began_at=created.at if before is None else before.began_at,
        by=wanted.by,
        effects=tuple(effects[:MOST_EFFECTS]),
        more_effects=max(0, len(effects) - MOST_EFFECTS),
        told=_told(effects),
        instruction=None if wanted.instruction is None else secrets.text(wanted.instruction),
    )


def _check(wanted: ForkRun) -> None:
    """Raises `MisuseError` for what cannot be meant."""
    if isinstance(wanted.at, bool) or not isinstance(wanted.at, int):
        raise MisuseError(f"at is the number of a step, not {wanted.at!r}.", run=wanted.run)
    if wanted.instruction is not None and not wanted.instruction.strip():
        raise MisuseError("An instruction says what is wanted; leave it out to go on without one.", run=wanted.run)


def _first(records: Sequence[Recorded]) -> RunCreated:
    created = records[0].event
    assert isinstance(created, RunCreated), "a journal begins with run.created"
    return created


def _check_replayed(run: str, records: Sequence[Recorded]) -> None:
    """Raises `Refused` for a run of a program that knows nothing of Checkrein: nobody can play that from its middle."""
    if any(isinstance(r.event, CallStarted) and r.event.kind is CallKind.PROCESS for r in records):
        told = f"Run {run} is of a program that Checkrein only watches, and that cannot be played from its middle."
        raise Refused(f"{told} Begin it anew.", code="not_replayed", run=run)


# -- which step


class _Kept(msgspec.Struct, frozen=True):
    """What a fork takes over from its origin."""

    step: StepView
    seq: int
    """The last event of the origin that belongs to it."""
    hash: str
    """Of that event."""
    calls: Sequence[CallReused]


def _kept(records: Sequence[Recorded], number: int, *, at: float) -> _Kept:
    """What a fork after the step of this number takes over. Raises `Refused` where there is none that could."""
    view = Viewer(records).view(at)
    step = _finished_step(view, number)
    seq = _end_of(records, step, is_planned=view.planned)
    try:
        events = taken_over(records, seq, at=at)
    except StillAtWork as busy:
        told = f"{busy.name}, which had begun by the end of step {step.number} of run {view.id}, is still at work"
        raise _not_finished(view, f"{told}, and would be done again.") from None
    calls = [event for event in events if isinstance(event, CallReused)]
    return _Kept(step, seq, records[seq - 1].hash.hex(), calls)


def _finished_step(view: RunView, number: int) -> StepView:
    """The step of this number. Raises `Refused` where there is none, or it is not finished."""
    step = next((one for one in view.steps if one.number == number), None)
    if step is None:
        there = f"its steps are 1 to {len(view.steps)}" if view.steps else "it has none yet"
        raise Refused(f"Run {view.id} has no step {number}: {there}.", code="step_not_found", run=view.id)
    if not _is_finished(step, is_planned=view.planned):
        word = step.shown.value.replace("_", " ")
        raise _not_finished(view, f"Step {number} of run {view.id}, {step.title}, is not finished ({word}).")
    return step


def _is_finished(step: StepView, *, is_planned: bool) -> bool:
    return step.finished_at is not None and (is_planned or step.shown in _ENDED_BY_ITSELF)


def _not_finished(view: RunView, why: str) -> Refused:
    before = [step.number for step in view.steps if _is_finished(step, is_planned=view.planned)]
    remedy = f" Finished: {', '.join(map(str, before))}." if before else " None is finished yet."
    return Refused(why + remedy, code="step_not_finished", run=view.id, status=view.status.value)


# -- where it ended


def _end_of(records: Sequence[Recorded], step: StepView, *, is_planned: bool) -> int:
    """The last event of the run that belongs to what is kept."""
    if is_planned:
        ended = [r.seq for r in records if isinstance(r.event, StepFinished) and r.event.step == step.number]
        return _before_the_next_turn(records, ended[-1])
    call = step.calls[0]
    endings = CallFinished | CallResolved | ApprovalDecided | CallReused
    last = [r for r in records if isinstance(r.event, endings) and r.event.call == call][-1]
    if not isinstance(last.event, CallReused) or last.event.ended is None:
        return last.seq
    # Of what a fork has taken over, everything that had begun by the end of this call.
    ended_at = last.event.ended
    return max(r.seq for r in records if isinstance(r.event, CallReused) and r.event.asked < ended_at)


def _before_the_next_turn(records: Sequence[Recorded], seq: int) -> int:
    """The model that ends a step of its plan begins the next one with the same answer. That is asked for anew: what it
    wanted to do next belongs to what comes after the step."""
    asked = [r for r in records if r.seq <= seq and isinstance(r.event, CallStarted | CallReused)]
    last = asked[-1] if asked else None
    if last is None or not isinstance(last.event, CallStarted | CallReused) or last.event.kind is not CallKind.MODEL:
        return seq
    call, place = last.event.call, last.event.place
    told = told_of(_answer(records, call))
    is_turn_of_loop = place.startswith("turn:") and SEPARATOR not in place
    if not is_turn_of_loop or told is None or not told.message.calls:
        return seq
    first = next(r.seq for r in records if isinstance(r.event, CallStarted | CallReused) and r.event.call == call)
    return first - 1


def _answer(records: Sequence[Recorded], call: str) -> msgspec.Raw | None:
    ended = [r.event for r in records if isinstance(r.event, CallFinished | CallReused) and r.event.call == call]
    return ended[-1].result if ended else None


# -- what it did to the world


async def _effects(journal: Journal, created: RunCreated, calls: Sequence[CallReused]) -> list[OriginEffect]:
    """What the calls that are taken over did, and what has become of it, whichever run made them."""
    ledgers = {run: await _ledger(journal, run) for run in {call.origin for call in calls}}
    known = {} if created.forked_from is None else {one.call: one for one in created.forked_from.effects}
    found = []
    for call in calls:
        effect = ledgers[call.origin].get(call.call)
        if effect is not None and effect.happened:
            found.append(OriginEffect(call=call.call, what=effect.what, now=effect.state))
        elif call.call in known and call.origin != created.run:
            found.append(known[call.call])  # its run is not in the store any more
    return found


async def _ledger(journal: Journal, run: str) -> Mapping[str, Effect]:
    try:
        return {effect.id: effect for effect in await journal.effects(run)}
    except RunNotFound:
        return {}


def _told(effects: Iterable[OriginEffect]) -> str:
    """What the agent must know that does not stand any more, although it was told that it had done it."""
    undone = [one.what for one in effects if one.now is EffectState.UNDONE]
    unknown = [one.what for one in effects if one.now is EffectState.IN_DOUBT]
    sentences = []
    if undone:
        sentences.append(f"What you did earlier was taken back since, and is not in place any more: {_list(undone)}.")
    if unknown:
        sentences.append(f"Of this nobody knows whether it is in place: {_list(unknown)}.")
    return " ".join(sentences)


def _list(words: Sequence[str]) -> str:
    shown = words[:20]
    return "; ".join(shown) + (f"; and {len(words) - len(shown)} more" if len(words) > len(shown) else "")
