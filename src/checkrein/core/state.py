"""What a run is now: the fold of its events.

The state holds only what still matters: calls in flight, what is pending, counts. A finished call leaves it, effects
live in a ledger of their own (`effects`), outcomes stay in the journal; so its size does not grow with the run.

`evolve` never refuses: what is in the journal happened. Whether something may happen is for `decide` to say.
"""

from __future__ import annotations

from typing import Final

import msgspec

from checkrein.core.conditions import Condition, Spent, Usage
from checkrein.core.events import Need
from checkrein.core.receipts import StoppedCall
from checkrein.core.words import TERMINAL, CallKind, Decision, OnPause, Outcome, Status, Undo, Verb, When

AT_WORK: Final = frozenset({Status.RUNNING, Status.PAUSING, Status.REDIRECTING, Status.CANCELLING})
"""Statuses in which time counts as elapsed, unless the run waits for a person."""


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


class Doubt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A call of which nobody knows whether it happened, or whose former owner may still perform it."""

    name: str
    attempt: int
    fingerprint: str = ""
    effect: str | None = None
    unanswered: tuple[int, ...] = ()
    """Epochs whose owner is neither known dead nor has answered: until then its effect must not be undone."""
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
    blocks: bool = True
    decision: Decision | None = None


class Instruction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a person told the agent and the agent has not been given yet."""

    accepted: str
    text: str
    before: str = ""
    """The step it rewrites, if there was a plan."""


class PendingVerb(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A verb that was accepted and is not settled, with what is known so far for its receipt."""

    id: str
    verb: Verb
    seq: int
    by: str
    reason: str = ""
    asked_at: float = 0.0
    accepted_at: float = 0.0
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

    status: Status = Status.QUEUED
    seq: int = 0
    decided: int = 0
    """The seq of the last deciding event: what decisions are made after."""
    status_seq: int = 0
    """The seq of the last change of status: what `expected_seq` is compared with."""
    at: float = 0.0
    epoch: int = 0

    live: dict[str, LiveCall] = {}
    doubts: dict[str, Doubt] = {}
    approvals: dict[str, Approval] = {}
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

    def spent(self, at: float) -> Spent:
        """What conditions look at, as of the time `at`."""
        running = 0.0 if self.active_since is None else max(0.0, at - self.active_since)
        return Spent(self.usage, self.elapsed_seconds + running, self.recent)

    def attempt_due(self, call: str) -> int:
        """Which attempt of a call may be permitted next, as far as it may be permitted at all."""
        return self.again[call].attempt if call in self.again else 1

    def verb(self, accepted: str) -> PendingVerb | None:
        return next((verb for verb in self.verbs if verb.id == accepted), None)

    def pending(self, *kinds: Verb) -> PendingVerb | None:
        """The verb of these kinds that is still in force and not settled."""
        return next((v for v in reversed(self.verbs) if v.verb in kinds and v.superseded_by is None), None)

    def is_blocked(self, effect: str) -> bool:
        """Whether somebody may still perform the call behind this effect: then it must not be undone yet."""
        doubt = self.doubts.get(effect)
        return effect in self.live or (doubt is not None and bool(doubt.unanswered))
