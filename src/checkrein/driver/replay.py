"""Deterministic replay: playing a program again over what its run has recorded.

A program in a new process asks for the same calls again. What is recorded comes back instead of being done: a call is
recognised by its place (or kind, name and arguments) and how often that was asked for before. Outcomes are released in
the order of the journal, each once every call that was recorded as started before it has been asked for; so concurrent
calls meet the same order as the first time. The first call that is not recorded goes live.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from checkrein.calls.arguments import stored
from checkrein.core.enums import Answer, CallKind, Decision, Outcome
from checkrein.core.events import (
    WITHDRAWS_APPROVALS,
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallResolved,
    CallReused,
    CallStarted,
    Event,
    InstructionDelivered,
    RunCreated,
    VerbAccepted,
    withdrawal,
)
from checkrein.core.evolve import evolve
from checkrein.core.state import State
from checkrein.errors import ReplayDiverged
from checkrein.journal.base import Recorded

STALL_SECONDS: Final = 2.0
"""How long a program that asks for something new may ask for nothing that is recorded before it has diverged."""
RELEASE_SECONDS: Final = 10.0
"""How long what a program has asked for may wait for a call that was recorded before. Longer, since another branch of
the program may be at work on something that is no call."""


class Ending(NamedTuple):
    """How a call ended, as the program sees it."""

    outcome: Outcome
    result: bytes | None = None
    error: str | None = None
    at: float = 0.0
    instruction: str | None = None
    """Of one that was interrupted: what the person who did so wants instead."""

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody stopped it; else it completed or failed."""
        return self.outcome not in (Outcome.COMPLETED, Outcome.FAILED) and self.error is None


def ending_of(decided: ApprovalDecided) -> Ending:
    """How a call ended that was not approved: denied by a person, withdrawn because they wanted something else, or
    never put to anybody."""
    if decided.decision is Decision.REFUSED:
        return Ending(Outcome.FAILED, error=decided.note, at=decided.at)
    if decided.decision is not Decision.DENIED:
        return Ending(Outcome.ABORTED, at=decided.at)
    note = f" They said: {decided.note}" if decided.note else ""
    return Ending(Outcome.FAILED, error=f"A person declined this.{note}", at=decided.at)


def stopped_by(ended: Event) -> str | None:
    """The id of the verb because of which a call was over with this event; None where it was over by itself."""
    if isinstance(ended, ApprovalDecided) and ended.decision is Decision.WITHDRAWN:
        return ended.id.removesuffix(f".{ended.call}")  # as it is withdrawn by a verb
    return ended.verb if isinstance(ended, CallFinished) else None


class PastCall(msgspec.Struct, kw_only=True):
    """A call as the journal has it."""

    id: str
    key: str
    """What a program's request is compared with: `request_key`."""
    name: str
    attempts: int = 0
    partial: bytes | None = None
    """What its last attempt had said when it was stopped or broke off."""
    edited: bytes | None = None
    """What the person who approved it wants it to be made with, instead of what the program asks for."""
    ending: Ending | None = None
    """None: it has no outcome that the program may see, and goes on where the run stands."""
    instruction: str | None = None
    """What a person told the agent and this call carried, over all its attempts and in the order it was said."""
    origin: str = ""
    """Of a call that a fork has taken over: the run that made it."""
    released: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    is_asked: bool = False


def joined(*said: str | None) -> str | None:
    """What a person has said, one thing after the other; None when nothing."""
    return "\n\n".join(text for text in said if text is not None) or None


def request_key(kind: CallKind, name: str, fingerprint: str, place: str) -> str:
    """What makes two requests the same: the place where the program stands if it has a name, else what is asked for."""
    return place or f"{kind.value}:{name}:{fingerprint}"


def need_id(call: str) -> str:
    """The id of the pause because of something that a person has to mend before a call can succeed."""
    return f"need.{call}"


class Past:
    """What a run's journal says about its calls."""

    def __init__(self, records: Iterable[Recorded]) -> None:
        self.calls: dict[str, PastCall] = {}
        self.log: list[tuple[str, PastCall]] = []
        self.steps: set[str] = set()
        self.began_at = 0.0
        self._instructions: dict[str, str] = {}
        self._unfinished: dict[str, PastCall] = {}
        self._endings: dict[str, Ending] = {}
        self._delivered: list[tuple[str, str]] = []
        reused: list[tuple[int, str, PastCall]] = []
        state: State | None = None
        for record in records:
            if state is not None and isinstance(record.event, VerbAccepted):
                self._withdraw(state, record.event)
            state = evolve(state, record.event, record.seq)
            if isinstance(record.event, CallReused):
                reused += self._reuse(record.event)
            else:
                self._read(state, record.event)
        # What a fork has taken over comes before all that it does itself, in the order in which it came about there.
        reused.sort(key=lambda entry: entry[0])
        self.log[:0] = [(what, past) for _, what, past in reused]
        self.reused = [past for _, what, past in reused if what == "asked"]

    def _reuse(self, event: CallReused) -> Iterable[tuple[int, str, PastCall]]:
        """Take in a call of a fork's origin; what it adds to the log, each with its place."""
        past = PastCall(
            id=event.call,
            key=request_key(event.kind, event.name, event.fingerprint, event.place),
            name=event.name,
            edited=stored(event.edited),
            instruction=event.carried,
            origin=event.origin,
        )
        self.calls[event.call] = past
        self.steps.add(need_id(event.call))  # whatever a person had to mend there is mended
        yield event.asked, "asked", past
        if event.outcome is None or event.ended is None:
            self._unfinished[event.call] = past
            return
        past.attempts = 1
        at = 0.0 if event.ended_at is None else event.ended_at
        past.ending = Ending(event.outcome, stored(event.result), event.error, at, event.instruction)
        yield event.ended, "ended", past

    def _read(self, state: State, event: Event) -> None:
        match event:
            case RunCreated():
                self.began_at = event.at if event.forked_from is None else event.forked_from.began_at
                if event.forked_from is not None and event.forked_from.words is not None:
                    self._instructions[event.id] = event.forked_from.words
            case CallStarted() if event.kind not in (CallKind.UNDO, CallKind.ASK):
                self._begin(event.call, request_key(event.kind, event.name, event.fingerprint, event.place), event.name)
                self.calls[event.call].attempts = event.attempt
            case ApprovalRequested():
                self._begin(
                    event.call, event.place or request_key(CallKind.TOOL, event.name, event.fingerprint, ""), event.name
                )
            case ApprovalDecided() if event.decision is not Decision.APPROVED:
                wanted = self._instructions.get(stopped_by(event) or "")
                self._endings[event.call] = ending_of(event)._replace(instruction=wanted)
            case ApprovalDecided() if event.arguments is not None and event.call in self.calls:
                self.calls[event.call].edited = stored(event.arguments)
            case CallFinished():
                wanted = self._instructions.get(stopped_by(event) or "")
                self._endings[event.call] = Ending(event.outcome, stored(event.result), event.error, event.at, wanted)
                if event.call in self.calls:
                    self.calls[event.call].partial = stored(event.result)
            case CallResolved():
                happened = event.answer is Answer.HAPPENED
                self._endings[event.call] = Ending(
                    Outcome.COMPLETED if happened else Outcome.ABORTED, stored(event.result), at=event.at
                )
            case VerbAccepted() if event.instruction is not None:
                self._instructions[event.id] = event.instruction
            case InstructionDelivered():
                self._delivered.append((event.call, self._instructions[event.accepted]))
            case _:
                self.steps.add(event.id)
        self._end_what_is_over(state)

    def _withdraw(self, before: State, event: VerbAccepted) -> None:
        """A redirect and a cancel end every call that was asked about and has not begun."""
        if event.verb in WITHDRAWS_APPROVALS:
            for call in before.approvals:
                self._endings[call] = ending_of(withdrawal(event, call))._replace(instruction=event.instruction)

    @property
    def number(self) -> int:
        """The highest number that a call has. Of calls made at the same time, a later one may be recorded alone."""
        return max((int(call[1:]) for call in self.calls), default=0)

    def _begin(self, call: str, key: str, name: str) -> None:
        if call not in self.calls:
            past = self.calls[call] = self._unfinished[call] = PastCall(id=call, key=key, name=name)
            self.log.append(("asked", past))
        for carrier, text in self._delivered:
            if carrier == call:
                self.calls[call].instruction = joined(self.calls[call].instruction, text)
        self._delivered = [one for one in self._delivered if one[0] != call]

    def _end_what_is_over(self, state: State) -> None:
        """A call is over for the program when it is neither in flight, nor to be asked again, nor waited for."""
        for call, past in list(self._unfinished.items()):
            doubt = state.doubts.get(call)
            is_open = (
                call in state.live
                or call in state.again
                or call in state.approvals
                or (doubt is not None and doubt.blocks)
            )
            if not is_open and call in self._endings:
                past.ending = self._endings[call]
                del self._unfinished[call]
                self.log.append(("ended", past))


class Replay:
    """Answers a program's requests from the past, as long as there is one."""

    def __init__(self, past: Past) -> None:
        self._log = deque(past.log)
        self._waiting: dict[str, deque[PastCall]] = {}
        for call in past.calls.values():
            self._waiting.setdefault(call.key, deque()).append(call)
        # Those who wait for the next progress, each with an event of its own.
        self._waiting_for_progress: set[asyncio.Event] = set()
        self.diverged: ReplayDiverged | None = None
        """Why this playing came to nothing. A program that swallows it is told again, whatever it asks for next."""
        self._advance()

    @property
    def is_over(self) -> bool:
        return not self._log

    async def ask(self, key: str, name: str) -> PastCall | None:
        """The recorded call for this request, once its outcome may be released; None when it is not recorded.

        Raises `ReplayDiverged` when the program asks for something that is not recorded while recorded calls wait in
        vain to be asked for, or for another one than is recorded before it.
        """
        if self.diverged is not None:
            raise self.diverged
        queue = self._waiting.get(key)
        if queue:
            past = queue.popleft()
            past.is_asked = True
            self._advance()
            if past.ending is not None:
                await self._until(past.released.is_set, RELEASE_SECONDS, name)
            return past
        await self._until(lambda: self.is_over, STALL_SECONDS, name)
        return None

    async def _until(self, come: Callable[[], bool], seconds: float, name: str) -> None:
        """Wait until it has come. Raises `ReplayDiverged` when nothing moves for so many seconds."""
        while not come():
            if self.diverged is not None:
                raise self.diverged
            progress = asyncio.Event()
            self._waiting_for_progress.add(progress)
            try:
                async with asyncio.timeout(seconds):
                    await progress.wait()
            except TimeoutError:
                raise self._diverged(name) from None
            finally:
                self._waiting_for_progress.discard(progress)

    def knows(self, key: str) -> bool:
        """Whether a request with this key would be answered from the past."""
        return bool(self._waiting.get(key))

    def name_at(self, key: str) -> str:
        """The name of the recorded call that would answer a request with this key; empty when there is none."""
        waiting = self._waiting.get(key)
        return waiting[0].name if waiting else ""

    def has_outcome(self, key: str) -> bool:
        """Whether a request with this key would be answered from the past with an outcome, and nothing done."""
        waiting = self._waiting.get(key)
        return waiting is not None and len(waiting) > 0 and waiting[0].ending is not None

    def check_all_asked(self) -> None:
        """The program has ended: it must have asked for everything that is recorded."""
        if self.diverged is not None:
            raise self.diverged
        if not self.is_over:
            raise self._diverged("its end")

    def _advance(self) -> None:
        while self._log:
            what, past = self._log[0]
            if what == "asked" and not past.is_asked:
                return
            if what == "ended":
                past.released.set()
            self._log.popleft()
            self._tell_progress()

    def _tell_progress(self) -> None:
        for progress in self._waiting_for_progress:
            progress.set()

    def _diverged(self, asked: str) -> ReplayDiverged:
        recorded = next(past.name for what, past in self._log if what == "asked" and not past.is_asked)
        self.diverged = ReplayDiverged(
            f"The program asked for {asked} where its run has recorded {recorded}. Put the program back, "
            "guard the change with ctx.version(), or cancel the run and continue from here.",
            asked=asked,
            recorded=recorded,
        )
        self._tell_progress()
        return self.diverged
