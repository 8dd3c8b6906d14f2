"""What may be asked of a run: by people (verbs) and by the driver that holds its lease.

A command carries everything its decision needs that the state does not hold: the time, an id for the first event it
leads to, and what its maker has read from the journal's index or learned about the world.
"""

from __future__ import annotations

import msgspec

from checkrein.core.conditions import Trip, Usage
from checkrein.core.effects import Effect
from checkrein.core.enums import Answer, CallKind, OnPause, Outcome, Status, Undo, When
from checkrein.core.events import Json, Need
from checkrein.timings import SETTLE_SECONDS


class Command(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    at: float


# -- people


class VerbCommand(Command, frozen=True, kw_only=True):
    """`expected_seq` refuses a stale click: it is the `status_seq` of the state the person was looking at."""

    by: str
    reason: str = ""
    asked_at: float | None = None
    store_at: float | None = None
    """By the clock of the store; `at` is by that of the host."""
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
    """`fingerprint` is that of what the person was shown: another one refuses the click. `arguments` are what they want
    the call to be made with instead, all of them, and `edited` is its fingerprint then."""

    call: str
    fingerprint: str = ""
    arguments: Json | None = None
    edited: str = ""
    always: bool = False


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

    over: frozenset[int] = frozenset()
    """As of `TakeOver`."""
    alive_at: float = 0.0
    """As of `TakeOver`."""
    effects: tuple[Effect, ...] = ()


# -- the holder of the lease


class KeptText(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of an answer that ended with the process that asked for it, and what it has used, estimated."""

    result: Json | None
    chars: int
    usage: Usage


class TakeOver(Command, frozen=True, kw_only=True):
    """The first thing after a claim: what former owners left in flight is in doubt.

    `after_death` says that the former owner died while it had the run; one that gave its lease back did not. Control,
    which claims a run only to settle what needs no user code, does not drive it (`drives=False`). From `host` to
    `version` it is said who takes over.
    """

    epoch: int
    over: frozenset[int] = frozenset()
    """Epochs whose owners are known to be gone, with all that they began. A call is judged by the epoch that permitted
    it: whoever claimed the run last may have been another, which came to nothing before it took the run over."""
    drives: bool = True
    host: str = ""
    pid: int = 0
    process: str = ""
    boot_id: str = ""
    started: float | None = None
    version: str = ""
    after_death: bool = False
    alive_at: float = 0.0
    """When the former owner last gave a sign of life, by the clock of leases; 0: not known."""
    ahead: float | None = None
    """By how much the wall clock is ahead of that one."""
    kept: dict[str, KeptText] = {}
    """Of models that were in flight, by call: what is left of their answers."""


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
    carries: bool = False
    """It hears instructions: it may not begin without one that has come since it was asked for."""
    delivers: bool = False
    """The call carries the pending instruction to the agent."""
    effects: tuple[Effect, ...] = ()
    """With `delivers`: the run's whole ledger. What a redirect interrupted is undone first, and its receipt says so."""
    timeout_seconds: float | None = None
    priced: bool = True
    """False: nobody knows what it will cost."""


class StartUndo(Command, frozen=True, kw_only=True):
    """`below` are the sub-runs that are not over."""

    epoch: int
    effect: str
    effects: tuple[Effect, ...]
    attempt: int = 1
    below: tuple[str, ...] = ()


class FinishCall(Command, frozen=True, kw_only=True):
    call: str
    outcome: Outcome
    result: Json | None = None
    error: str | None = None
    refused: bool = False
    unasked: bool = False
    usage: Usage | None = None
    chunks: int = 0
    chars: int = 0
    chunk_hash: str = ""
    tokens_after_stop: int = 0
    retry: bool = False
    files: tuple[str, ...] = ()
    file_hashes: tuple[str, ...] = ()
    traceback: str | None = None
    left: tuple[str, ...] = ()
    shown_at: float | None = None
    shown: tuple[tuple[int, int], ...] = ()


class LeaveEffect(Command, frozen=True, kw_only=True):
    """Its undo was tried and did not work."""

    effect: str
    effects: tuple[Effect, ...]
    why: str


class RequestApproval(Command, frozen=True, kw_only=True):
    call: str
    name: str
    fingerprint: str
    place: str = ""
    arguments: Json | None = None
    blocks: bool = True
    what: str = ""
    can_undo: bool = False
    schema: Json | None = None


class TripCondition(Command, frozen=True, kw_only=True):
    trip: Trip


class SettleVerb(Command, frozen=True, kw_only=True):
    """`held` are the calls that are frozen now; `below` the sub-runs that are not over; `effects` the run's whole
    ledger."""

    accepted: str
    effects: tuple[Effect, ...] = ()
    held: frozenset[str] = frozenset()
    below: tuple[str, ...] = ()
    settle_seconds: float = SETTLE_SECONDS
    answer: str | None = None
    alive_at: float | None = None
    """As of `TakeOver`, by whoever settles it without a driver; None for a driver."""


class FinishRun(Command, frozen=True, kw_only=True):
    """`undelivered_ok`: the program cannot take the pending instruction any more; its receipt will say so."""

    status: Status
    result: Json | None = None
    error: str | None = None
    undelivered_ok: bool = False
    effects: tuple[Effect, ...] = ()
    """The run's whole ledger, for the receipts of verbs that are still pending."""
