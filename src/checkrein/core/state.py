"""What a run is now: the fold of its events.

The state holds only what still matters: calls in flight, what is pending, counts. A finished call leaves it, effects
live in a ledger of their own (`effects`), outcomes stay in the journal; so its size does not grow with the run.

`evolve` never refuses: what is in the journal happened. Whether something may happen is for `decide` to say.
"""

from __future__ import annotations

import msgspec

from checkrein.core.conditions import Condition, Spent, Usage
from checkrein.core.enums import (
    AT_WORK,
    PAUSE_IN_FORCE,
    TERMINAL,
    CallKind,
    Decision,
    OnPause,
    Outcome,
    Status,
    Undo,
    Verb,
    When,
)
from checkrein.core.events import HELD_PREFIX, MaybeJson, Need, Origin
from checkrein.core.receipts import StoppedCall
from checkrein.core.transitions import Fate, Stop, fate
from checkrein.timings import LEASE_SECONDS


class LiveCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A call with a permit and no outcome."""

    kind: CallKind
    name: str
    epoch: int
    started_at: float
    attempt: int = 1
    on_pause: OnPause = OnPause.FINISH
    idempotent: bool = False
    effect: str | None = None
    fingerprint: str = ""
    stop: Verb | None = None
    """The verb that wants it stopped."""
    hold: bool = False
    """A pause wants it frozen where it is; a resume lets it go on."""
    waits_for: str = ""
    """What its stop waits for, in words, and at most how long."""
    hurried: bool = False
    """Somebody has asked for a cancel again: its stop waits for nothing any more."""

    def fate(self, stop: Stop) -> Fate:
        """What this verb does to it."""
        return fate(self.kind, self.on_pause, stop)


class Doubt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A call of which nobody knows whether it happened, or whose former owner may still perform it."""

    name: str
    attempt: int
    fingerprint: str = ""
    effect: str | None = None
    unanswered: tuple[int, ...] = ()
    """Epochs whose owner is neither known dead nor has answered: until then its effect must not be undone."""
    goes_on: bool = False
    """What is left of it is known to be at work: no word of a person makes that safe, only its end does."""
    person: bool = True
    """Only a person, or the owner's answer, can say what happened. False for a call that may simply be tried again."""
    blocks: bool = True
    """The program waits for it."""
    answer: Outcome | None = None
    began: bool = True


class Again(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A call that is to be asked again: which attempt may be permitted, and, of a tool, with which arguments."""

    attempt: int
    fingerprint: str = ""


class Approval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A call that waits for a person's consent, or has it and was not begun yet."""

    name: str
    fingerprint: str
    """Of the call that may be made: as it was asked for, or as the person who approved it wants it."""
    blocks: bool = True
    decision: Decision | None = None
    arguments: MaybeJson = None
    """What the person who approved it wants it to be made with instead."""


class Instruction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a person told the agent and the agent has not been given yet."""

    accepted: str
    text: str
    before: str = ""
    """The step it rewrites, if there was a plan."""
    earlier: tuple[Instruction, ...] = ()
    """What was told before it and has not been given yet either, oldest first."""

    @property
    def each(self) -> tuple[Instruction, ...]:
        """Everything that is to be given, in the order it was told, each on its own."""
        return (*self.earlier, msgspec.structs.replace(self, earlier=())) if self.earlier else (self,)


class PendingVerb(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A verb that was accepted and is not settled, with what is known so far for its receipt."""

    id: str
    verb: Verb
    seq: int
    by: str
    reason: str = ""
    asked_at: float = 0.0
    accepted_at: float = 0.0
    attended_from: float = 0.0
    """When a driver came to it, if for long nobody had been there to attend to it."""
    question: str | None = None
    when: When = When.NOW
    undo: Undo = Undo.OPEN
    call: str | None = None
    calls: tuple[StoppedCall, ...] = ()
    touched: tuple[str, ...] = ()
    """Effects that changed since it was accepted."""
    stopped_at: float | None = None
    unstopped: bool = False
    """Something it wanted stopped may still act: it was detached, or its owner is not known to be dead."""
    tokens_after_stop: int = 0
    chars: int = 0
    instructs: bool = False
    """It carries an instruction to the agent."""
    answered: bool = False
    """A side question: its answer is in the journal."""
    superseded_by: str | None = None

    @property
    def counts_from(self) -> float:
        """From when on the time counts that it may take to settle."""
        return max(self.accepted_at, self.attended_from)


class Waiting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Something the run cannot go on without: an approval, a word on a call in doubt, or something to mend."""

    kind: str
    what: str
    call: str | None = None
    remedy: str = ""


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    run: str
    agent: str
    goal: str = ""
    thread: str = ""
    owner: str = ""
    parent: str | None = None
    root: str | None = None
    forked_from: Origin | None = None

    status: Status = Status.QUEUED
    seq: int = 0
    decided: int = 0
    """The seq of the last deciding event: what decisions are made after."""
    status_seq: int = 0
    """The seq of the last change of status: what `expected_seq` is compared with."""
    at: float = 0.0
    epoch: int = 0
    deaths: int = 0
    """How many drivers have died with the run in their hands since it last got on, or a person had it go on."""
    started_at: float = 0.0
    """When a driver last took it up after such a death; 0 if there was none."""

    live: dict[str, LiveCall] = {}
    doubts: dict[str, Doubt] = {}
    approvals: dict[str, Approval] = {}
    always: tuple[str, ...] = ()
    """Tools whose calls need no approval any more in this run."""
    again: dict[str, Again] = {}
    """Calls that are to be asked again at the same place."""
    verbs: tuple[PendingVerb, ...] = ()
    instruction: Instruction | None = None
    needs: Need | None = None
    paused_by: str | None = None
    """The verb of the latest pause: a second pause answers with its receipt."""
    resumes_itself: bool = False
    cancelled_by: str | None = None
    undo: Undo = Undo.OPEN

    usage: Usage = Usage()
    elapsed_seconds: float = 0.0
    active_since: float | None = None
    """Since when its driver has been at work, by that one's clock. Only a word of a driver begins it: others may have
    another clock, and need not know whether anybody drives the run."""
    driven_at: float = 0.0
    """When its driver was last heard of: the time of the last event that only the holder of its lease appends."""
    ahead: float | None = None
    """By how much the wall clock is ahead of the clock of leases, as its driver knows it; None: not known."""
    recent: tuple[str, ...] = ()
    stop_when: Condition | None = None
    grants: dict[str, int] = {}
    tripped: tuple[str, ...] = ()
    last_calls: int | None = None
    """After a condition that says `finish`: how many more model calls there may be. None: no such condition tripped."""

    plan: tuple[str, ...] = ()
    step: str | None = None
    steps_begun: int = 0
    steps_finished: int = 0

    @property
    def is_finished(self) -> bool:
        return self.status in TERMINAL

    @property
    def is_held(self) -> bool:
        """Whether it is paused with its parent alone: nobody has paused it for itself."""
        return self.status in PAUSE_IN_FORCE and (self.paused_by or "").startswith(HELD_PREFIX)

    @property
    def next_step(self) -> str:
        """The step a redirect would rewrite: the one at work, or the next of the plan."""
        if self.step is not None:
            return self.step
        return self.plan[self.steps_begun] if self.steps_begun < len(self.plan) else ""

    def waiting(self) -> tuple[Waiting, ...]:
        """What the run waits for from a person; empty when it does not wait."""
        return (
            *(
                Waiting(kind="approval", what=f"approve {approval.name}", call=call)
                for call, approval in self.approvals.items()
                if approval.blocks and approval.decision is None
            ),
            *(
                Waiting(kind="in_doubt", what=f"say whether {doubt.name} happened", call=call)
                for call, doubt in self.doubts.items()
                if doubt.person and doubt.blocks
            ),
            *((Waiting(kind=self.needs.code, what=self.needs.what, remedy=self.needs.remedy),) if self.needs else ()),
        )

    def asked(self) -> tuple[Waiting, ...]:
        """What a person is asked for: what the run waits for, then approvals that its agent does not wait for. With
        those it does not complete."""
        if not self.approvals:
            return self.waiting()
        beside = (
            Waiting(kind="approval", what=f"approve {approval.name}", call=call)
            for call, approval in self.approvals.items()
            if not approval.blocks and approval.decision is None
        )
        return (*self.waiting(), *beside)

    @property
    def waits_for_person(self) -> bool:
        """Whether nothing more happens to the run before a person has decided something: what it waits for are
        approvals and words on calls in doubt, and beside that nothing is in flight, asked for, or left to be given."""
        if self.status is not Status.RUNNING or self.live or self.verbs or self.again or self.needs is not None:
            return False
        if self.instruction is not None or any(doubt.goes_on for doubt in self.doubts.values()):
            return False
        return bool(self.waiting()) and all(approval.decision is None for approval in self.approvals.values())

    def spent(self, at: float) -> Spent:
        """What conditions look at, as of the time `at`."""
        running = 0.0 if self.active_since is None else max(0.0, at - self.active_since)
        return Spent(self.usage, self.elapsed_seconds + running, self.recent)

    def worked_until(self, alive_at: float) -> float | None:
        """When that was, given by the clock of leases, by the wall clock as the run's driver knew it: whoever has set
        the clock since has changed nothing about it. None: it cannot be told."""
        return None if not alive_at or self.ahead is None else alive_at + self.ahead

    def left_at(self, worked_until: float | None) -> float:
        """Until when a driver was at work that is there no more: when it was last heard of or, if later, when its lease
        was last renewed. Later than the end of that lease is the time of another clock."""
        if worked_until is None:
            return self.driven_at
        return min(max(self.driven_at, worked_until), worked_until + LEASE_SECONDS)

    @property
    def is_at_work(self) -> bool:
        """Whether time counts, as long as somebody drives the run."""
        is_asking = self.approvals or self.doubts or self.needs
        return self.status in AT_WORK and not (is_asking and self.waiting())

    def attempt_due(self, call: str) -> int:
        """Which attempt of a call may be permitted next, as far as it may be permitted at all."""
        return self.again[call].attempt if call in self.again else 1

    def verb(self, accepted: str) -> PendingVerb | None:
        return next((verb for verb in self.verbs if verb.id == accepted), None)

    def pending(self, *kinds: Verb) -> PendingVerb | None:
        """The verb of these kinds that is still in force and not settled."""
        return next((v for v in reversed(self.verbs) if v.verb in kinds and v.superseded_by is None), None)

    def is_undelivered(self, accepted: str) -> bool:
        """Whether the agent has yet to be given the instruction that this verb brought."""
        return self.instruction is not None and any(one.accepted == accepted for one in self.instruction.each)

    def is_blocked(self, effect: str) -> bool:
        """Whether somebody may still perform the call behind this effect: then it must not be undone yet."""
        doubt = self.doubts.get(effect)
        return effect in self.live or (doubt is not None and bool(doubt.unanswered))
