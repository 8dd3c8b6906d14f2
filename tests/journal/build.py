"""Short ways to say what happened to a run, for tests. Ids are made up where none is given."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec

from checkrein.core.events import (
    CallAnswered,
    CallFinished,
    CallResolved,
    CallStarted,
    EffectOpened,
    EffectReopened,
    EffectSettled,
    EffectUndone,
    ReasonAdded,
    RunCreated,
    RunFinished,
    RunStarted,
    VerbAccepted,
    VerbSettled,
)
from checkrein.core.receipts import Receipt
from checkrein.core.words import Answer, CallKind, Outcome, Status, Verb
from checkrein.journal import Journal, Lease, Owner, answer_id

Fields = dict[str, Any]

_numbers = count(1)

ALICE = Owner(process="alice-1", host="here", boot_id="boot", pid=11, started=1.5)
BOB = Owner(process="bob-1", host="there", boot_id="boot", pid=22, started=2.5)


def new_id() -> str:
    return f"e{next(_numbers)}"


def created(run: str, **fields: Any) -> RunCreated:
    known: Fields = {"id": f"{run}.created", "at": 1.0, "agent": "churn", "goal": "who will leave?", "thread": "t1"}
    return RunCreated(run=run, **(known | fields))


def started(epoch: int, status: Status = Status.RUNNING) -> RunStarted:
    return RunStarted(id=new_id(), at=2.0, epoch=epoch, status=status)


def permit(call: str = "c1", epoch: int = 1, kind: CallKind = CallKind.TOOL, **fields: Any) -> CallStarted:
    known: Fields = {"id": new_id(), "at": 3.0, "name": "send"}
    return CallStarted(call=call, kind=kind, epoch=epoch, **(known | fields))


def undo(effect: str = "c1", epoch: int = 1) -> CallStarted:
    return permit(f"undo:{effect}", epoch, CallKind.UNDO, effect=effect)


def outcome(call: str = "c1", result: object = "done", **fields: Any) -> CallFinished:
    known: Fields = {"id": new_id(), "at": 4.0, "outcome": Outcome.COMPLETED}
    return CallFinished(call=call, result=msgspec.Raw(msgspec.json.encode(result)), **(known | fields))


def answered(call: str = "c1", epoch: int = 1, outcome: Outcome = Outcome.COMPLETED) -> CallAnswered:
    return CallAnswered(id=answer_id(call, epoch), at=5.0, call=call, epoch=epoch, outcome=outcome)


def resolved(call: str = "c1") -> CallResolved:
    return CallResolved(id=new_id(), at=5.0, call=call, answer=Answer.HAPPENED, by="p")


def opened(effect: str = "c1") -> EffectOpened:
    return EffectOpened(id=new_id(), at=3.0, effect=effect, what=f"a draft ({effect})", undo="m:f", key=effect)


def settled_effect(effect: str = "c1") -> EffectSettled:
    return EffectSettled(id=new_id(), at=5.0, effect=effect, why="kept")


def undone(effect: str = "c1") -> EffectUndone:
    return EffectUndone(id=new_id(), at=6.0, effect=effect)


def reopened(effect: str = "c1") -> EffectReopened:
    return EffectReopened(id=new_id(), at=7.0, effect=effect, undo=True, by="p")


_BECOMES = {Verb.CANCEL: Status.CANCELLING, Verb.HALT: Status.KILLED, Verb.PAUSE: Status.PAUSING}


def verb(kind: Verb = Verb.PAUSE, **fields: Any) -> VerbAccepted:
    known: Fields = {
        "id": new_id(),
        "at": 8.0,
        "by": "p",
        "reason": "enough",
        "status": _BECOMES.get(kind, Status.RUNNING),
    }
    return VerbAccepted(verb=kind, **(known | fields))


def settled(accepted: VerbAccepted, status: Status) -> VerbSettled:
    receipt = Receipt(verb=accepted.verb, run="r", status=status, seq=1, by="p")
    return VerbSettled(id=new_id(), at=9.0, accepted=accepted.id, verb=accepted.verb, status=status, receipt=receipt)


def reason() -> ReasonAdded:
    return ReasonAdded(id=new_id(), at=9.5, reason="wrong path", by="p")


def ended(status: Status = Status.COMPLETED) -> RunFinished:
    return RunFinished(id=new_id(), at=10.0, status=status)


async def driven(journal: Journal, run: str = "r", owner: Owner = ALICE, **fields: Any) -> Lease:
    """Create a run and claim it."""
    await journal.create(created(run, **fields))
    return await journal.claim(run, owner, seconds=60)


async def over(journal: Journal, run: str = "r", status: Status = Status.COMPLETED) -> Lease:
    """A run that has finished, and the lease of whoever finished it."""
    lease = await driven(journal, run)
    await journal.append(run, [ended(status)], after=1, epoch=lease.epoch)
    return lease
