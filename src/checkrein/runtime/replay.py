"""Playing a program again over what its run has recorded.

A program in a new process asks for the same calls again. What is recorded comes back instead of being done: a call is
recognised by its place (or kind, name and arguments) and how often that was asked for before. Outcomes are released in
the order of the journal, each once every call that was recorded as started before it has been asked for; so concurrent
calls meet the same order as the first time. The first call that is not recorded goes live.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from checkrein.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallResolved,
    CallStarted,
    Event,
    InstructionDelivered,
    VerbAccepted,
)
from checkrein.core.evolve import evolve
from checkrein.core.state import State
from checkrein.core.words import Answer, CallKind, Decision, Outcome
from checkrein.errors import ReplayDiverged
from checkrein.journal.contract import Recorded
from checkrein.runtime.values import stored

STALL_SECONDS: Final = 2.0
"""How long a program may ask for nothing that is recorded before it is said to have diverged."""


class Ending(NamedTuple):
    """How a call ended, as the program sees it."""

    outcome: Outcome
    result: bytes | None = None
    error: str | None = None
    at: float = 0.0


def ending_of(decided: ApprovalDecided) -> Ending:
    """How a call ended that was not approved: denied by a person, or withdrawn because they wanted something else."""
    if decided.decision is not Decision.DENIED:
        return Ending(Outcome.ABORTED, at=decided.at)
    note = f" They said: {decided.note}" if decided.note else ""
    return Ending(Outcome.FAILED, error=f"A person declined this.{note}", at=decided.at)


class PastCall(msgspec.Struct, kw_only=True):
    """A call as the journal has it."""

    id: str
    key: str
    """What a program's request is compared with: `request_key`."""
    name: str
    attempts: int = 0
    partial: bytes | None = None
    """What its last attempt had said when it was stopped."""
    ending: Ending | None = None
    """None: it has no outcome that the program may see, and goes on where the run stands."""
    instruction: str | None = None
    """The instruction it carried to the agent."""
    released: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    is_asked: bool = False


def request_key(kind: CallKind, name: str, fingerprint: str, place: str) -> str:
    """What makes two requests the same: the place where the program stands if it has a name, else what is asked for."""
    return place or f"{kind.value}:{name}:{fingerprint}"


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
        state: State | None = None
        for record in records:
            state = evolve(state, record.event, record.seq)
            self.began_at = self.began_at or record.event.at
            self._read(state, record.event)

    def _read(self, state: State, event: Event) -> None:
        match event:
            case CallStarted() if event.kind not in (CallKind.UNDO, CallKind.ASK):
                self._begin(event.call, request_key(event.kind, event.name, event.fingerprint, event.place), event.name)
                self.calls[event.call].attempts = event.attempt
            case ApprovalRequested():
                self._begin(
                    event.call, event.place or request_key(CallKind.TOOL, event.name, event.fingerprint, ""), event.name
                )
            case ApprovalDecided() if event.decision is not Decision.APPROVED:
                self._endings[event.call] = ending_of(event)
            case CallFinished():
                self._endings[event.call] = Ending(event.outcome, stored(event.result), event.error, event.at)
                if event.call in self.calls:
                    said = event.result if event.outcome is Outcome.ABORTED else None
                    self.calls[event.call].partial = stored(said)
            case CallResolved():
                happened = event.answer is Answer.HAPPENED
                self._endings[event.call] = Ending(
                    Outcome.COMPLETED if happened else Outcome.ABORTED, stored(event.result), at=event.at
                )
            case VerbAccepted() if event.instruction is not None:
                self._instructions[event.id] = event.instruction
            case InstructionDelivered():
                self._delivered = (event.call, self._instructions[event.accepted])
            case _:
                self.steps.add(event.id)
        self._end_what_is_over(state)

    @property
    def number(self) -> int:
        """The highest number that a call has. Of calls made at the same time, a later one may be recorded alone."""
        return max((int(call[1:]) for call in self.calls), default=0)

    _delivered: tuple[str, str] | None = None

    def _begin(self, call: str, key: str, name: str) -> None:
        if call not in self.calls:
            past = self.calls[call] = self._unfinished[call] = PastCall(id=call, key=key, name=name)
            self.log.append(("asked", past))
        if self._delivered is not None and self._delivered[0] == call:
            self.calls[call].instruction = self._delivered[1]

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
        self._progress = asyncio.Event()
        self._advance()

    @property
    def is_over(self) -> bool:
        return not self._log

    async def ask(self, key: str, name: str) -> PastCall | None:
        """The recorded call for this request, once its outcome may be released; None when it is not recorded.

        Raises `ReplayDiverged` when the program asks for something that is not recorded while recorded calls wait in
        vain to be asked for.
        """
        queue = self._waiting.get(key)
        if queue:
            past = queue.popleft()
            past.is_asked = True
            self._advance()
            if past.ending is not None:
                await past.released.wait()
            return past
        while not self.is_over:
            self._progress.clear()
            try:
                async with asyncio.timeout(STALL_SECONDS):
                    await self._progress.wait()
            except TimeoutError:
                raise self._diverged(name) from None
        return None

    def knows(self, key: str) -> bool:
        """Whether a request with this key would be answered from the past."""
        return bool(self._waiting.get(key))

    def has_outcome(self, key: str) -> bool:
        """Whether a request with this key would be answered from the past with an outcome, and nothing done."""
        waiting = self._waiting.get(key)
        return waiting is not None and len(waiting) > 0 and waiting[0].ending is not None

    def check_all_asked(self) -> None:
        """The program has ended: it must have asked for everything that is recorded."""
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
            self._progress.set()

    def _diverged(self, asked: str) -> ReplayDiverged:
        recorded = next(past.name for what, past in self._log if what == "asked" and not past.is_asked)
        return ReplayDiverged(
            f"The program asked for {asked} where its run has recorded {recorded}. Put the program back, "
            "guard the change with ctx.version(), or cancel the run and continue from here.",
            asked=asked,
            recorded=recorded,
        )
