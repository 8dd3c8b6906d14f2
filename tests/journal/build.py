"""Short ways to say what happened to a run, for tests. Ids are made up where none is given."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec

from checkrein.core import events as e
from checkrein.core.enums import Answer, CallKind, Outcome, Status, Verb
from checkrein.core.receipts import Receipt
from checkrein.journal import Journal, Lease, Owner, answer_id

Fields = dict[str, Any]

_numbers = count(1)

ALICE = Owner(process="alice-1", host="here", boot_id="boot", pid=11, started=1.5)
BOB = Owner(process="bob-1", host="there", boot_id="boot", pid=22, started=2.5)


def new_id() -> str:
    return f"e{next(_numbers)}"


def created(run: str, **fields: Any) -> e.RunCreated:
    known: Fields = {"id": f"{run}.created", "at": 1.0, "agent": "churn", "goal": "who will leave?", "thread": "t1"}
    return e.RunCreated(run=run, **(known | fields))


def started(epoch: int, status: Status = Status.RUNNING) -> e.RunStarted:
    return e.RunStarted(id=new_id(), at=2.0, epoch=epoch, status=status)


def permit(call: str = "c1", epoch: int = 1, kind: CallKind = CallKind.TOOL, **fields: Any) -> e.CallStarted:
    known: Fields = {"id": new_id(), "at": 3.0, "name": "send"}
    return e.CallStarted(call=call, kind=kind, epoch=epoch, **(known | fields))


def undo(effect: str = "c1", epoch: int = 1) -> e.CallStarted:
    return permit(f"undo:{effect}", epoch, CallKind.UNDO, effect=effect)


def outcome(call: str = "c1", result: object = "done", **fields: Any) -> e.CallFinished:
    known: Fields = {"id": new_id(), "at": 4.0, "outcome": Outcome.COMPLETED}
    return e.CallFinished(call=call, result=msgspec.Raw(msgspec.json.encode(result)), **(known | fields))


def answered(call: str = "c1", epoch: int = 1, outcome: Outcome = Outcome.COMPLETED) -> e.CallAnswered:
    return e.CallAnswered(id=answer_id(call, epoch), at=5.0, call=call, epoch=epoch, outcome=outcome)


def resolved(call: str = "c1") -> e.CallResolved:
    return e.CallResolved(id=new_id(), at=5.0, call=call, answer=Answer.HAPPENED, by="p")


def opened(effect: str = "c1") -> e.EffectOpened:
    return e.EffectOpened(id=new_id(), at=3.0, effect=effect, what=f"a draft ({effect})", undo="m:f", key=effect)


def settled_effect(effect: str = "c1") -> e.EffectSettled:
    return e.EffectSettled(id=new_id(), at=5.0, effect=effect, why="kept")


def undone(effect: str = "c1") -> e.EffectUndone:
    return e.EffectUndone(id=new_id(), at=6.0, effect=effect)


def reopened(effect: str = "c1") -> e.EffectReopened:
    return e.EffectReopened(id=new_id(), at=7.0, effect=effect, undo=True, by="p")


_BECOMES = {Verb.CANCEL: Status.CANCELLING, Verb.HALT: Status.KILLED, Verb.PAUSE: Status.PAUSING}


def verb(kind: Verb = Verb.PAUSE, **fields: Any) -> e.VerbAccepted:
    known: Fields = {
        "id": new_id(),
        "at": 8.0,
        "by": "p",
        "reason": "enough",
        "status": _BECOMES.get(kind, Status.RUNNING),
    }
    return e.VerbAccepted(verb=kind, **(known | fields))


def settled(accepted: e.VerbAccepted, status: Status) -> e.VerbSettled:
    receipt = Receipt(verb=accepted.verb, run="r", status=status, seq=1, by="p")
    return e.VerbSettled(id=new_id(), at=9.0, accepted=accepted.id, verb=accepted.verb, status=status, receipt=receipt)


def reason() -> e.ReasonAdded:
    return e.ReasonAdded(id=new_id(), at=9.5, reason="wrong path", by="p")


def ended(status: Status = Status.COMPLETED) -> e.RunFinished:
    return e.RunFinished(id=new_id(), at=10.0, status=status)


async def driven(journal: Journal, run: str = "r", owner: Owner = ALICE, **fields: Any) -> Lease:
    """Create a run and claim it."""
    await journal.create(created(run, **fields))
    return await journal.claim(run, owner, seconds=60)


async def over(journal: Journal, run: str = "r", status: Status = Status.COMPLETED) -> Lease:
    """A run that has finished, and the lease of whoever finished it."""
    lease = await driven(journal, run)
    await journal.append(run, [ended(status)], after=1, epoch=lease.epoch)
    return lease
