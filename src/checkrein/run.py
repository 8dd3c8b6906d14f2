"""A handle on one run: what it is now, its events and its result, and every verb."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol

import msgspec

from checkrein.control.control import Control, Settling
from checkrein.control.view import RunEvent
from checkrein.core.consequences import VerbControl as Button
from checkrein.core.consequences import controls
from checkrein.core.enums import STOPPED, Answer, Outcome, Status, Undo, Verb, When
from checkrein.core.events import ApprovalRequested, CallFinished, Event, RunFinished, VerbAccepted
from checkrein.core.receipts import Receipt
from checkrein.core.state import State, Waiting
from checkrein.core.wording import ENDED
from checkrein.driver.program_api import Program
from checkrein.errors import Refused, RunCancelled, RunFailed
from checkrein.journal import shown
from checkrein.journal.base import Journal
from checkrein.timings import WAIT_SECONDS

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from checkrein.control.view import RunView

    T = TypeVar("T", default=Any, covariant=True)
else:
    from typing import TypeVar

    T = TypeVar("T", covariant=True)

_log = logging.getLogger(__name__)


class Home(Protocol):
    """What a run needs of the runtime that it is held by."""

    journal: Journal
    control: Control

    @property
    def store(self) -> str: ...
    @property
    def agents(self) -> Mapping[str, Program]: ...
    def now(self) -> float: ...
    async def fork(self, run: str, *, at: int, instruction: str | None = None, by: str = "program") -> Run: ...


class Run(Generic[T]):
    """A handle on one run. Letting it go changes nothing: the run goes on."""

    def __init__(self, runtime: Home, run: str, agent: str = "") -> None:
        self._runtime = runtime
        self._control = runtime.control
        self._waiting: tuple[Waiting, ...] = ()
        """What `result` has said that the run waits for."""
        self._seen: Status | None = None
        self.id = run
        self.agent = agent
        """The name of its agent."""

    def __repr__(self) -> str:
        seen = "" if self._seen is None else f", {self._seen} when last looked at"
        return f"<Run {self.id} of {self.agent}{seen}>"

    async def state(self) -> State:
        """What the run is now, as far as decisions need it; `view` has what a person sees."""
        state = await self._runtime.journal.load(self.id)
        self.agent, self._seen = state.agent, state.status
        return state

    async def status(self) -> Status:
        """Where it stands: `queued`, `running`, `pausing`, `paused`, `redirecting`, `cancelling`, `completed`, …"""
        return (await self.state()).status

    async def view(self) -> RunView:
        """The run as a person sees it, and as HTTP gives it: steps, calls, effects, what it waits for, its result."""
        from checkrein.control.viewer import look  # only who looks pays for it

        view = await look(self._runtime.journal, self.id, at=self._runtime.now())
        self.agent, self._seen = view.agent, view.status
        return view

    async def controls(self) -> dict[Verb, Button]:
        journal = self._runtime.journal
        return controls(await journal.load(self.id), await journal.effects(self.id))

    async def events(self, *, after: int = 0) -> AsyncIterator[RunEvent]:
        """Every event from the beginning, or after that number, then each new one; ends after `run.finished`."""
        follower = self._runtime.journal.follow(self.id, after=after)
        try:
            async for record in follower:
                yield RunEvent.of(record)
                if isinstance(record.event, RunFinished):
                    return
        finally:
            await follower.aclose()

    async def result(self, *, on_waiting: Callable[[Waiting], None] | None = None) -> T:
        """Wait for the end and return the result: a value of the agent's `output`, or what its program says it returns.

        Raises `RunCancelled` if somebody stopped it, `RunFailed` if it failed.

        While the run waits for a person this waits too. It says on stderr what for, or tells `on_waiting`.
        """
        tell = on_waiting or self._say
        state = await self.state()
        self._told_of(state, tell)
        records = self._runtime.journal.follow(
            self.id,
            after=0 if state.is_finished else state.seq,
            wants=lambda record: isinstance(record.event, RunFinished) or _begins_to_wait(record.event),
        )
        try:
            async for record in records:
                if isinstance(record.event, RunFinished):
                    self._seen = record.event.status
                    return _result(self.id, record.event, self._runtime.agents.get(self.agent))  # type: ignore[no-any-return]
                state = await self.state()
                if state.seq >= record.seq:
                    self._told_of(state, tell)
        finally:
            await records.aclose()
        raise AssertionError("a journal is followed until its run has ended")

    def _told_of(self, state: State, tell: Callable[[Waiting], None]) -> None:
        """Tell each thing that the run waits for, once until it has gone on."""
        waiting = state.asked()
        for one in waiting:
            if one not in self._waiting:
                _log.warning("run %s waits for a person: %s", self.id, one.what, extra={"run": self.id})
                tell(one)
        self._waiting = waiting

    def _say(self, waiting: Waiting) -> None:
        store = self._runtime.store
        where = "" if store.startswith("memory:") else f" (checkrein watch {self.id} --store {shown(store)})"
        sentence = f"Run {self.id} waits for you: {waiting.what}. {waiting.remedy}".rstrip()
        print(sentence + where, file=sys.stderr, flush=True)

    # -- verbs: what each takes and does is told in `core.verb_specs`
    #
    # A repeat with the same `request_id` is not done twice, and gets the same answer.

    async def pause(
        self, *, by: str = "program", reason: str = "", request_id: str = "", wait: float = WAIT_SECONDS
    ) -> Receipt | Settling:
        return await self._control.pause(self.id, by=by, reason=reason, request_id=request_id, wait=wait)

    async def resume(
        self,
        instruction: str | None = None,
        *,
        by: str = "program",
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = WAIT_SECONDS,
    ) -> Receipt | Settling:
        return await self._control.resume(
            self.id, instruction, by=by, reason=reason, request_id=request_id, expected_seq=expected_seq, wait=wait
        )

    async def redirect(
        self,
        instruction: str,
        *,
        when: When | str = When.NOW,
        by: str = "program",
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = WAIT_SECONDS,
    ) -> Receipt | Settling:
        return await self._control.redirect(
            self.id,
            instruction,
            when=When(when),
            by=by,
            reason=reason,
            request_id=request_id,
            expected_seq=expected_seq,
            wait=wait,
        )

    async def cancel(
        self,
        *,
        undo: Undo | str = Undo.OPEN,
        by: str = "program",
        reason: str = "",
        request_id: str = "",
        wait: float = 60.0,
    ) -> Receipt | Settling:
        return await self._control.cancel(
            self.id, undo=Undo(undo), by=by, reason=reason, request_id=request_id, wait=wait
        )

    async def ask(
        self,
        question: str,
        *,
        by: str = "program",
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = 60.0,
    ) -> str:
        """The answer. Raises `Refused` when there is none by then."""
        receipt = await self._control.ask(
            self.id, question, by=by, reason=reason, request_id=request_id, expected_seq=expected_seq, wait=wait
        )
        if isinstance(receipt, Settling):
            why = f"it still waits for {receipt.waiting_for}"
        elif receipt.answer is None:
            why = await self._control.why_unanswered(receipt)
        else:
            return receipt.answer
        raise Refused(f"The question to run {self.id} got no answer: {why}.", code="no_answer", run=self.id)

    async def add_reason(self, reason: str, *, by: str = "program", note: str = "", request_id: str = "") -> None:
        """Say why it was stopped, also afterwards."""
        await self._control.add_reason(self.id, reason, by=by, note=note, request_id=request_id)

    async def abort(
        self, call: str, *, by: str = "program", reason: str = "", request_id: str = "", wait: float = WAIT_SECONDS
    ) -> Receipt | Settling:
        return await self._control.abort(self.id, call, by=by, reason=reason, request_id=request_id, wait=wait)

    async def approve(
        self,
        call: str,
        *,
        by: str = "program",
        note: str = "",
        fingerprint: str = "",
        arguments: dict[str, Any] | None = None,
        always: bool = False,
        request_id: str = "",
    ) -> None:
        """Let a call be made that waits for consent; `arguments` are made use of instead of those it asked for."""
        await self._control.approve(
            self.id,
            call,
            by=by,
            note=note,
            fingerprint=fingerprint,
            arguments=arguments,
            always=always,
            request_id=request_id,
        )

    async def deny(self, call: str, *, by: str = "program", note: str = "", request_id: str = "") -> None:
        await self._control.deny(self.id, call, by=by, note=note, request_id=request_id)

    async def resolve(
        self,
        call: str,
        answer: Answer | str,
        *,
        by: str = "program",
        result: Any = None,
        note: str = "",
        request_id: str = "",
    ) -> None:
        await self._control.resolve(
            self.id, call, Answer(answer), by=by, result=result, note=note, request_id=request_id
        )

    async def check(self, call: str, *, by: str = "program", request_id: str = "") -> None:
        """Have the tool of a call in doubt asked once more whether it happened."""
        await self._control.check(self.id, call, by=by, request_id=request_id)

    async def retry_undo(self, effect: str, *, by: str = "program", request_id: str = "") -> None:
        await self._control.retry_undo(self.id, effect, by=by, request_id=request_id)

    async def fork(self, *, at: int, instruction: str | None = None, by: str = "program") -> Run[T]:
        """A new run of the same agent that goes on after step `at`, which is finished, with an instruction if given.

        The numbers are those of `view().steps`. What was done up to there is taken over and not done again; this run
        stays as it is, whether it is over or not, and what it did to the world stays its own: the fork undoes none of
        it. The fork has a thread of its own, belongs to the same owner, and its caps count what it spends itself.

        Raises `Refused`, with `code` `step_not_found` or `step_not_finished`.
        """
        return await self._runtime.fork(self.id, at=at, instruction=instruction, by=by)


def _begins_to_wait(event: Event) -> bool:
    """Whether the run may wait for a person after this."""
    return (
        isinstance(event, ApprovalRequested)
        or (isinstance(event, VerbAccepted) and event.needs is not None)
        or (isinstance(event, CallFinished) and event.outcome is Outcome.IN_DOUBT)
    )


def _result(run: str, finished: RunFinished, program: Program | None) -> Any:
    if finished.status is Status.COMPLETED:
        if finished.result is None:
            return None
        result = bytes(finished.result)
        return msgspec.json.decode(result) if program is None else program.result_of(result)
    message = f"Run {run} has no result: it {ENDED[finished.status]}."
    if finished.error:
        message += f" {finished.error}"
    kind = RunCancelled if finished.status in STOPPED else RunFailed
    raise kind(message, run=run, status=finished.status, error=finished.error)
