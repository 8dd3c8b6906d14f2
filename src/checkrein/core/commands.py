"""What may be asked of a run: by people (verbs) and by the driver that holds its lease.

A command carries everything its decision needs that the state does not hold: the time, an id for the first event it
leads to, and what its maker has read from the journal's index or learned about the world.
"""

from __future__ import annotations

import msgspec

from checkrein.core.conditions import Trip, Usage
from checkrein.core.effects import Effect
from checkrein.core.events import Json, Need
from checkrein.core.words import Answer, CallKind, OnPause, Outcome, Status, Undo, When

SETTLE_SECONDS = 30.0
"""How long a cancel may wait for what is in doubt or being undone before it settles without."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    at: float


# -- people


class VerbCommand(Command, frozen=True, kw_only=True):
    """`expected_seq` refuses a stale click: it is the `status_seq` of the state the person was looking at."""

    by: str
    reason: str = ""
    asked_at: float | None = None
    expected_seq: int | None = None


class PauseRun(VerbCommand, frozen=True, kw_only=True):
    needs: Need | None = None
    resumes_itself: bool = False


class ResumeRun(VerbCommand, frozen=True, kw_only=True):
    instruction: str | None = None
    driven: bool = True
    """Whether a driver lives to take it up at once."""


class RedirectRun(VerbCommand, frozen=True, kw_only=True):
    instruction: str
    when: When = When.NOW
    driven: bool = True


class CancelRun(VerbCommand, frozen=True, kw_only=True):
    undo: Undo = Undo.OPEN


class AskRun(VerbCommand, frozen=True, kw_only=True):
    question: str


class AbortCall(VerbCommand, frozen=True, kw_only=True):
    call: str


class ApproveCall(VerbCommand, frozen=True, kw_only=True):
    call: str


class DenyCall(VerbCommand, frozen=True, kw_only=True):
    call: str


class ResolveCall(VerbCommand, frozen=True, kw_only=True):
    call: str
    answer: Answer
    result: Json | None = None
    effects: tuple[Effect, ...] = ()
    """The run's whole ledger: an interrupted call has its outcome, and its effect may still be in doubt."""


class RetryUndo(VerbCommand, frozen=True, kw_only=True):
    effect: str
    effects: tuple[Effect, ...]


class HaltRun(VerbCommand, frozen=True, kw_only=True):
    """Made by whoever has just claimed the run by force, so that nobody else can begin a call meanwhile."""

    owner_dead: bool = False
    effects: tuple[Effect, ...] = ()


# -- the holder of the lease


class TakeOver(Command, frozen=True, kw_only=True):
    """The first thing after a claim: what the former owner left in flight is in doubt.

    `owner_dead` says that the former owner is known to be gone. Control, which claims a run only to settle what needs
    no user code, does not drive it (`drives=False`).
    """

    epoch: int
    owner_dead: bool
    drives: bool = True
    host: str = ""
    pid: int = 0


class StartCall(Command, frozen=True, kw_only=True):
    """Ask for a permit. `opens` describes the effect of a tool call that may have one."""

    epoch: int
    call: str
    kind: CallKind
    name: str
    attempt: int = 1
    key: str = ""
    step: int | None = None
    arguments: Json | None = None
    fingerprint: str = ""
    place: str = ""
    on_pause: OnPause = OnPause.FINISH
    idempotent: bool = False
    opens: Effect | None = None
    needs_approval: bool = False
    delivers: bool = False
    """The call carries the pending instruction to the agent."""
    effects: tuple[Effect, ...] = ()
    """With `delivers`: the run's whole ledger. What a redirect interrupted is undone first, and its receipt says so."""
    timeout_seconds: float | None = None


class StartUndo(Command, frozen=True, kw_only=True):
    epoch: int
    effect: str
    effects: tuple[Effect, ...]
    attempt: int = 1


class FinishCall(Command, frozen=True, kw_only=True):
    call: str
    outcome: Outcome
    result: Json | None = None
    error: str | None = None
    usage: Usage | None = None
    chunks: int = 0
    chars: int = 0
    chunk_hash: str = ""
    tokens_after_stop: int = 0
    retry: bool = False
    files: tuple[str, ...] = ()


class LeaveEffect(Command, frozen=True, kw_only=True):
    """Its undo was tried and did not work."""

    effect: str
    effects: tuple[Effect, ...]
    why: str


class SettleEffect(Command, frozen=True, kw_only=True):
    """The author says the effect is meant to stay (`call.settle()`)."""

    effect: str
    effects: tuple[Effect, ...]


class RequestApproval(Command, frozen=True, kw_only=True):
    call: str
    name: str
    fingerprint: str
    place: str = ""
    arguments: Json | None = None
    blocks: bool = True


class TripCondition(Command, frozen=True, kw_only=True):
    trip: Trip


class SettleVerb(Command, frozen=True, kw_only=True):
    """`held` are the calls that are frozen now; `effects` the run's whole ledger."""

    accepted: str
    effects: tuple[Effect, ...] = ()
    held: frozenset[str] = frozenset()
    settle_seconds: float = SETTLE_SECONDS
    answer: str | None = None


class FinishRun(Command, frozen=True, kw_only=True):
    """`undelivered_ok`: the program cannot take the pending instruction any more; its receipt will say so."""

    status: Status
    result: Json | None = None
    error: str | None = None
    undelivered_ok: bool = False
    effects: tuple[Effect, ...] = ()
    """The run's whole ledger, for the receipts of verbs that are still pending."""
