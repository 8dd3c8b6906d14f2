"""What a program may ask of its driver. It never sees a verb: it asks for calls, and for little else.

A program that is played again asks for the same, and is told the same: what is recorded comes back.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec

from checkrein import asyncutil
from checkrein.calls.arguments import recordable
from checkrein.calls.base import CallRequest, Execution, Perform, Permit, UndoneCall
from checkrein.calls.executor import ToolExecutor
from checkrein.calls.sub_run import SubRun
from checkrein.core import commands as c
from checkrein.core.conditions import Condition
from checkrein.core.decide.endings import RUNTIME
from checkrein.core.effects import Effect
from checkrein.core.enums import CallKind, Status
from checkrein.core.events import ASK_PREFIX, UNDO_PREFIX, Event, Need, RunCreated, VersionChosen, WatcherFlagged
from checkrein.core.orders import may_permit
from checkrein.core.state import State
from checkrein.driver.ownership import OwnershipLost
from checkrein.driver.permits import CallRunner, Result
from checkrein.driver.replay import Past, Replay, need_id
from checkrein.driver.running_calls import check_outside_calls
from checkrein.driver.session import RunSession
from checkrein.errors import JournalError, MisuseError, ReplayDiverged
from checkrein.journal.base import stream_of
from checkrein.journal.evidence import Withheld
from checkrein.secrets import OFF, Secrets
from checkrein.timings import SETTLE_SECONDS
from checkrein.watchers.base import Flag

_log = logging.getLogger(__name__)


class ToolWarning(NamedTuple):
    """What the author of a tool should mend, or at least know."""

    what: str
    """Of the tool, which is not named: `says … and has no undo`."""
    why: str
    """What comes of it, in sentences."""


class ToolInfo(Protocol):
    """A tool of a program, as far as those care who drive it, describe it, or look for what it cannot do."""

    @property
    def name(self) -> str: ...
    @property
    def function(self) -> Callable[..., object]: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def isolation(self) -> str: ...
    @property
    def effect(self) -> str: ...
    @property
    def undo(self) -> Callable[..., object] | None: ...
    @property
    def verify(self) -> Callable[..., object] | None: ...
    @property
    def approval(self) -> str | None: ...

    def check_importable(self) -> None:
        """Raises `NotImportable` where a worker process could not find the tool, or what undoes and checks it."""

    def warnings(self) -> Iterable[ToolWarning]:
        """What could not be stopped, undone or known of its calls."""


class ToolServer(Protocol):
    """A server of tools that a program uses."""

    @property
    def name(self) -> str: ...
    @property
    def command(self) -> tuple[str, ...] | None: ...
    @property
    def env(self) -> Mapping[str, str]: ...

    def functions(self) -> Iterable[Callable[..., object]]:
        """What undoes and checks the calls of its tools."""


class Program(ABC):
    """An agent, as far as a driver cares."""

    name: str
    description: str = ""
    """What it is for, in words, for whoever may hand work to it."""
    goals: Sequence[str] = ()
    """Goals to try first, for whoever has none of their own yet."""
    stop_when: Condition | None = None
    """The caps on each of its runs."""
    tools: Mapping[str, ToolInfo] = MappingProxyType({})
    """The tools it is known to use, by name. It may use others as well."""
    team: Mapping[str, Program] = MappingProxyType({})
    """The programs that it may hand work to, by name."""
    sources: Sequence[ToolServer] = ()
    """Servers of tools. What tools they have is known when a run asks them."""
    replays: bool = True
    """Whether it asks for the same calls again when it is played again, and is told what is recorded of them. False for
    one that nobody can play again, such as a program that is not ours: all it asks for is new."""

    @abstractmethod
    async def play(self, driver: ProgramApi) -> bytes | None:
        """Run to the end and return the result as JSON. Every call goes through `driver.call`."""

    def result_of(self, result: bytes) -> Any:
        """The value behind the JSON that a run of it has recorded as its result."""
        return msgspec.json.decode(result)

    @abstractmethod
    def undo(self, effect: Effect, call: UndoneCall, driver: ProgramApi) -> Execution:
        """Begin to undo an effect."""

    @abstractmethod
    def answer(self, question: str, driver: ProgramApi) -> Perform:
        """How a side question is answered."""

    def check(self, call: UndoneCall, driver: ProgramApi) -> Execution | None:
        """Begin to find out whether a call in doubt happened; None where its tool cannot tell."""
        return None


EnsureDriven = Callable[[Program | None, str], Awaitable[None]]
"""Sees to it that somebody drives a sub-run, whose program is given if this process has it."""

Chunked = Callable[[str, str, int, str], None]
"""Told each piece of streamed text: run, call, offset, text."""


async def nobody(program: Program | None, run: str) -> None:
    """Whoever has the agent will find the run by itself."""


def unheard(run: str, call: str, offset: int, text: str) -> None:
    """Nobody listens."""


class _Play:
    """One playing of the program, from its beginning: what it has asked for so far, over what is recorded."""

    def __init__(self, session: RunSession, past: Past, *, replays: bool = True) -> None:
        self.past = past
        self.replay = Replay(past if replays else Past(()))
        self.calls = CallRunner(session, self.replay, past.number, past.began_at)
        self.uuids = 0
        self.versions: dict[str, bool] = {}


class ProgramApi:
    """What a program has in its hands. It lives as long as the driver, also when the program is played again.

    `executor` is where tools are performed, `secrets` what is taken out of everything that comes in.
    """

    def __init__(
        self,
        session: RunSession,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        executor: ToolExecutor | None = None,
        secrets: Secrets = OFF,
        ensure_driven: EnsureDriven = nobody,
        on_chunk: Chunked = unheard,
        replays: bool = True,
    ) -> None:
        self.journal = session.journal
        self.run = session.run
        self.secrets = secrets
        self._session = session
        self._executor = executor
        self._settle_seconds = settle_seconds
        self._ensure_driven = ensure_driven
        self._on_chunk = on_chunk
        self._replays = replays

        # Who answers for calls that ended late. They may outlive the driver, and must be kept until they are over.
        self._late: set[asyncio.Task[None]] = set()

        # Where the run stood when the program last tried to end it: it is worth another try when that has changed.
        self._tried_at = 0

        # Invariant: has everything that was recorded before the program began to be played, see `rewind`.
        self._play = _Play(session, Past(()))

    @property
    def state(self) -> State:
        return self._session.state

    @property
    def executor(self) -> ToolExecutor:
        """Where tools are performed. Raises `MisuseError` in a driver that was given none."""
        if self._executor is None:
            raise MisuseError("This driver performs no tools: it was made without an executor.")
        return self._executor

    async def end_workers(self) -> None:
        """End every worker process that has performed a call of this run, which makes none now."""
        if self._executor is not None:
            await self._executor.end_workers(self.run)

    async def rewind(self) -> None:
        """Make ready to play the program from its beginning again, over everything that is recorded by now."""
        await self._session.writer.flush()
        self._play = _Play(self._session, Past(await self.journal.read(self.run)), replays=self._replays)

    def check_all_asked(self) -> None:
        """The program has ended. Raises `ReplayDiverged` if it has not asked for everything that is recorded."""
        self._play.replay.check_all_asked()

    def check_divergence(self, error: BaseException) -> None:
        """The program has ended with `error`. Raises `ReplayDiverged` if that is behind it, whatever became of it."""
        if isinstance(error, ReplayDiverged):
            raise error
        if self._play.replay.diverged is not None:
            raise self._play.replay.diverged

    async def call(self, request: CallRequest) -> Result:
        """Make a call, or give back what is recorded of it.

        Raises `Interrupted` when a person stopped it, `CallFailed` when it failed or was declined, and `MisuseError`
        inside another call of the run.
        """
        check_outside_calls(self.run, request.name)
        if isinstance(request.arguments, bytes):
            request = msgspec.structs.replace(request, arguments=self.secrets.json(request.arguments))
        return await self._play.calls.call(request)

    def edited_arguments(self, call: str) -> bytes | None:
        """What a call was made with where a person wanted other arguments than were asked for; None where nobody did.

        Of calls that the program has asked for.
        """
        return self._play.calls.edited.get(call)

    def has_recorded(self, place: str) -> bool:
        """Whether a call at this place would be answered from the past."""
        return self._play.replay.knows(place)

    def recorded_name(self, place: str) -> str:
        """What is recorded of a call at this place under which name; empty when nothing is."""
        return self._play.replay.name_at(place)

    @property
    def is_replaying(self) -> bool:
        """Whether there is something recorded that the program has not come to yet."""
        return not self._play.replay.is_over

    def has_outcome(self, place: str) -> bool:
        """Whether a call at this place is over already: it would be answered from the past, and nothing done."""
        return self._play.replay.has_outcome(place)

    async def try_finish(
        self,
        status: Status = Status.COMPLETED,
        *,
        result: bytes | None = None,
        error: str | None = None,
        undelivered_ok: bool = False,
    ) -> bool:
        """Finish the run. False when it cannot finish now: paused, an instruction has come, an approval is pending."""
        await self._session.calls.abort_all(except_for=(UNDO_PREFIX, ASK_PREFIX))
        self._tried_at = self._session.writer.committed.seq
        if self.state.verbs:
            await self._session.writer.flush()  # or the ledger would not know what a redirect has just interrupted
        command = c.FinishRun(
            id=self._session.new_id("end"),
            at=self._session.now(),
            status=status,
            result=None if result is None else msgspec.Raw(self.secrets.json(result)),
            error=None if error is None else recordable(self.secrets.text(error)),
            undelivered_ok=undelivered_ok,
            effects=await self.journal.effects(self.run),
        )
        return await self._session.try_to(command)

    async def finish(self, status: Status, *, result: bytes | None = None, error: str | None = None) -> None:
        """The program has ended: finish the run, however long it takes until it may."""
        self._play.calls.is_over = True
        while not await self.try_finish(status, result=result, error=error, undelivered_ok=True):
            await self._session.change(self._tried_at)

    async def need(self, need: Need, *, about: str = "") -> None:
        """Pause the run until a person has given it what it needs and resumed it.

        `about` names the call because of which it is needed: when the program is played again, that was asked for.
        """
        session = self._session
        check_outside_calls(self.run, "A person's answer")
        verb = need_id(about) if about else session.new_id("need")
        if verb not in self._play.past.steps:
            await session.try_to(c.PauseRun(id=verb, at=session.now(), by=RUNTIME, reason=need.what, needs=need))
        await session.until_permitted()

    async def ask_person(self, question: str, place: str) -> None:
        """Pause the run with a question, once. Returns when a person has let it go on; what they said is for the next
        call that carries an instruction."""
        need = Need(code="question", what=self.secrets.text(question), remedy="Resume with the answer.")
        while await self.journal.find(self.run, f"need.{place}") is None:
            await self.need(need, about=place)  # again after a pause of somebody else's, which it could not join
        await self._session.until_permitted()

    async def withdraw_approvals(self, why: str, *, of: str = "") -> None:
        """Whoever asked for approvals waits for them no more: those that are pending are declined because of `why`.

        `of` is the fingerprint of a call: only that one's, where it can be told which it is.
        """
        pending = [
            call
            for call, approval in self.state.approvals.items()
            if approval.decision is None and of in ("", approval.fingerprint)
        ]
        for call in pending if len(pending) == 1 or not of else ():
            session = self._session
            await session.try_to(
                c.DenyCall(id=session.new_id("withdrawn"), at=session.now(), by=RUNTIME, reason=why, call=call)
            )

    async def until_it_may_go_on(self) -> None:
        """Wait until the run may begin calls, or something it waits for has come."""
        if self.state.instruction is None or not may_permit(self.state):
            await self._session.change(self._tried_at)
            await self._session.until_permitted()

    def now(self) -> float:
        """The time of the last thing this program has seen: the same when it is played again."""
        return self._play.calls.at

    def uuid(self) -> uuid.UUID:
        """A new UUID, the same when the program is played again.

        In a fork it is that of the origin as long as the origin's calls are still to be asked for, which may have been
        made with it; after that it is one that no other run has.
        """
        self._play.uuids += 1
        run = next((past.origin for past in self._play.past.reused if not past.is_asked), self.run)
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{run}/{self._play.uuids}")

    def version(self, name: str) -> bool:
        """Whether to take the newer way of a program that was changed on purpose at this place.

        False while a run that came by here before the change is played again, and from then on for that run.
        """
        event = VersionChosen(id=f"version.{name}", at=0.0, name=name)
        if name not in self._play.versions:
            self._play.versions[name] = event.id in self._play.past.steps or self._play.replay.is_over
        if self._play.versions[name]:
            self.note_once(event)
        return self._play.versions[name]

    def sub_run(self, program: Program, goal: str, *, place: str = "", step: int | None = None) -> CallRequest:
        """The call that begins a sub-run and waits for it."""
        state, goal = self.state, self.secrets.text(goal)

        def perform(permit: Permit) -> Execution:
            run = f"{self.run}.{permit.call}"
            created = RunCreated(
                id=f"{run}.created",
                at=self._session.now(),
                run=run,
                agent=program.name,
                goal=goal,
                thread=run,
                owner=state.owner,
                parent=self.run,
                root=state.root or self.run,
                stop_when=program.stop_when,
            )
            return SubRun(
                self.journal,
                created,
                ensure_driven=lambda: self._ensure_driven(program, run),
                clock=self._session.now,
                undo=lambda: self.state.undo,
                settle_seconds=self._settle_seconds,
                on_held=self.look_again,
            )

        arguments = msgspec.json.encode({"goal": goal})
        return CallRequest(
            kind=CallKind.RUN, name=program.name, perform=perform, arguments=arguments, place=place, step=step
        )

    async def ensure_driven(self, program: Program | None, run: str) -> None:
        """See to it that somebody drives a sub-run, whose program is given if this process has it."""
        await self._ensure_driven(program, run)

    async def change(self) -> None:
        """Return at the next change of the run."""
        await self._session.change()

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside the program; it ends with the driver at the latest."""
        return self._session.start(work)

    def look_again(self) -> None:
        """Something outside the journal has changed, such as a call that has come to rest."""
        self._session.wake.set()

    def ended_late(self, call: str) -> None:
        """A call that could not be stopped has ended after all: nothing keeps its effect from being undone any more."""
        # The driver may be over by now, and this is said in the context of the call, with which it must not end.
        task = asyncutil.start(self._answer_late(call))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _answer_late(self, call: str) -> None:
        try:
            await self._session.writer.flush()
        except OwnershipLost:  # then its doubt is recorded already, and the answer counts all the same
            _log.debug("a call has ended late, of a run that is lost", extra={"run": self.run, "call": call})
        await self._session.ownership.answer_late(call)

    def note_once(self, event: Event) -> None:
        """Record a fact of the program, at the present time, unless it is recorded already."""
        if event.id not in self._play.past.steps:
            self._play.past.steps.add(event.id)
            self._session.writer.record(msgspec.structs.replace(event, at=self._session.now()))

    def shows(self, permit: Permit) -> Callable[[int, str], None]:
        """Whoever is to be told the pieces of a call's text, with their offsets: they are shown at once, kept soon."""
        return partial(self._on_chunk, self.run, stream_of(permit.call, permit.attempt))

    def flag(self, call: str, flag: Flag, withheld: str = "", attempt: int = 1) -> None:
        """A watcher has noticed something; what it asks for is done at once, and what it withheld is kept aside."""
        session, at, reason, action = self._session, self._session.now(), f"{flag.watcher}: {flag.what}", flag.action
        flagged = WatcherFlagged(
            id=session.new_id("flag"),
            at=at,
            watcher=flag.watcher,
            what=flag.what,
            call=call,
            offset=flag.offset,
            withheld_from=flag.withheld_from,
            withheld_chars=len(withheld),
            withheld_hash=sha256(withheld.encode("utf-8", "replace")).hexdigest() if withheld else "",
        )
        if withheld:
            kept = Withheld(stream_of(call, attempt), flagged.id, flag.withheld_from or 0, withheld)
            self._late.add(task := asyncutil.start(self._keep_withheld(kept)))
            task.add_done_callback(self._late.discard)
        session.writer.record(flagged)
        verb_id = session.new_id("flagged")
        if action == "cancel":
            session.start(session.try_to(c.CancelRun(id=verb_id, at=at, by=RUNTIME, reason=reason)))
        elif action == "pause":
            need = Need(code="flagged", what=reason, remedy="Look at it, then resume or cancel.")
            session.start(session.try_to(c.PauseRun(id=verb_id, at=at, by=RUNTIME, reason=reason, needs=need)))

    async def _keep_withheld(self, withheld: Withheld) -> None:
        try:
            await self._session.journal.evidence.write_withheld(self.run, withheld)
        except JournalError as error:  # its hash is in the journal all the same
            _log.warning("what a watcher withheld was not kept: %s", error, extra={"run": self.run})
