"""Where the runs are that a command is about: an open store, or a server that is reached over HTTP.

A `Session` is all that a verb needs to find a run and to steer it, in whichever process it lives.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from checkrein.cli import output
from checkrein.core.enums import PAUSE_IN_FORCE, UNFINISHED, CallKind, EffectState, Status
from checkrein.core.escape import one_line
from checkrein.errors import RunNotFound, WrongInput
from checkrein.journal.address import shown

if TYPE_CHECKING:
    from checkrein.cli.options import Place
    from checkrein.control.control import Control, Settling
    from checkrein.control.view import ApprovalView
    from checkrein.core.events import Origin
    from checkrein.core.receipts import Receipt
    from checkrein.core.state import State
    from checkrein.core.verb_specs import VerbSpec
    from checkrein.journal.base import Journal

T = TypeVar("T")

PAGE: Final = 500
TAKE_UP_SECONDS: Final = 1.5
"""How long a process that has the agent may take to notice that a run is resumed."""
UNDRIVEN_SECONDS: Final = 1.0
"""How long it is worth to wait for the receipt of a run that nobody drives."""


class Row(NamedTuple):
    """A run, as far as it must be known to be found."""

    id: str
    parent: str | None
    agent: str


class Session(ABC):
    where: str
    """What people call it: the address of the store, or of the server."""

    @abstractmethod
    async def rows(self, *, unfinished: bool = False, before: str | None = None) -> Sequence[Row]:
        """At most `PAGE` runs, the newest first; those before the run `before`."""

    async def halts(self) -> Sequence[tuple[str, str, str, str, float]]:
        """What is halted: scope, name, by whom, why, since when."""
        return ()

    @abstractmethod
    async def has(self, run: str) -> bool:
        """Whether there is a run of exactly this id."""

    @abstractmethod
    async def calls_for(self, verb: str, run: str) -> Mapping[str, str]:
        """The calls of a run that a verb on a call is for: the name of each by its id."""

    @abstractmethod
    async def approval(self, run: str, call: str) -> ApprovalView | None:
        """What a person is shown of a call that waits for consent."""

    @abstractmethod
    async def take(self, spec: VerbSpec, run: str, **given: Any) -> Receipt | Settling | None:
        """Have a verb taken; None where there is no receipt to wait for. Raises what the verb raises."""

    @abstractmethod
    async def fork(self, run: str, *, at: int, instruction: str | None, by: str) -> tuple[str, Origin]:
        """Have a run begun after a finished step of another: its id, and what it goes on from."""

    @abstractmethod
    async def waits_for(self, run: str) -> str:
        """What the newest verb on a run still waits for."""

    @abstractmethod
    async def why_unanswered(self, receipt: Receipt) -> str:
        """Why a question got no answer."""

    async def go_on_from(self, run: str) -> str:
        """The command that goes on from where a run has ended."""
        return output.go_on_from(run)

    @abstractmethod
    async def unattended(self, run: str) -> Sequence[str]:
        """Lines that say who would have to act on the run, where nobody is there who does; else nothing."""


class StoreSession(Session):
    """The store itself. A verb goes into it and is heeded by whoever drives the run."""

    def __init__(self, store: str, journal: Journal, control: Control) -> None:
        self.store = store
        self.where = shown(store)
        self.journal = journal
        self.control = control

    async def is_driven(self, run: str) -> bool:
        """Whether a living process drives the run."""
        from checkrein.driver.ownership import is_driven

        return await is_driven(self.journal, run, at=self.journal.now())

    async def rows(self, *, unfinished: bool = False, before: str | None = None) -> Sequence[Row]:
        status = UNFINISHED if unfinished else frozenset(Status)
        rows = await self.journal.runs(status=status, limit=PAGE, before=before)
        return [Row(row.id, row.parent, row.agent) for row in rows]

    async def halts(self) -> Sequence[tuple[str, str, str, str, float]]:
        from checkrein.control.halt import Halting
        from checkrein.processes.identity import this_process

        found = await Halting(self.journal, this_process()).halts(self.store)
        return [(one.scope.value, one.name, one.by, one.reason, one.at) for one in found]

    async def has(self, run: str) -> bool:
        try:
            await self.journal.read(run, limit=1)
        except RunNotFound:
            return False
        return True

    async def calls_for(self, verb: str, run: str) -> Mapping[str, str]:
        if verb == "resolve":
            from checkrein.control.viewer import look

            if await self._is_orphaned(run):
                await self.control.settle_undriven(run)  # what its process died over is in doubt from here on
            return {doubt.call: doubt.name for doubt in (await look(self.journal, run, at=0.0)).doubts}
        if verb == "retry_undo":
            effects = await self.journal.effects(run, {EffectState.LEFT})
            return {effect.id: effect.what for effect in effects if effect.undo is not None}
        state = await self.journal.load(run)
        if verb == "abort":
            return {call: one.name for call, one in state.live.items() if one.kind is not CallKind.UNDO}
        return {call: approval.name for call, approval in state.approvals.items() if approval.decision is None}

    async def _is_orphaned(self, run: str) -> bool:
        return not (await self.journal.load(run)).is_finished and not await self.is_driven(run)

    async def approval(self, run: str, call: str) -> ApprovalView | None:
        from checkrein.control.viewer import look

        view = await look(self.journal, run, at=self.journal.now())
        return next((approval for approval in view.approvals if approval.call == call), None)

    async def take(self, spec: VerbSpec, run: str, **given: Any) -> Receipt | Settling | None:
        if "wait" in given and not await self.is_driven(run):
            given["wait"] = min(given["wait"], UNDRIVEN_SECONDS)
        answer: Receipt | Settling | None = await getattr(self.control, spec.name)(run, **given)
        return answer

    async def fork(self, run: str, *, at: int, instruction: str | None, by: str) -> tuple[str, Origin]:
        from checkrein.control.fork import ForkRun, fork
        from checkrein.secrets import Secrets

        caps = (await self.journal.load(run)).stop_when
        wanted = ForkRun(run=run, at=at, instruction=instruction, by=by)
        made = await fork(self.journal, wanted, stop_when=caps, secrets=Secrets.of(None), clock=self.journal.now)
        origin = (await self.journal.load(made)).forked_from
        assert origin is not None, "a fork says where it comes from"
        return made, origin

    async def waits_for(self, run: str) -> str:
        from checkrein.core.orders import obstacle

        state, effects = await self.journal.load(run), await self.journal.effects(run)
        verb = next((verb for verb in reversed(state.verbs) if verb.superseded_by is None), None)
        return "its driver" if verb is None else obstacle(state, verb, effects) or "its driver"

    async def why_unanswered(self, receipt: Receipt) -> str:
        return await self.control.why_unanswered(receipt)

    async def unattended(self, run: str) -> Sequence[str]:
        if await self.is_taken_up(run):
            return ()
        state = await self.journal.load(run)
        if (other := await self._queued_behind(state)) is not None:
            return (f"Queued behind run {other}, which is at work on thread {one_line(state.thread)}.",)
        if (command := await self._program(run)) is not None:
            return _ended_program(state, command)
        nobody = f"no process with agent {one_line(state.agent)} is running."
        is_fenced = state.status is Status.CANCELLING
        said = "Fenced: nothing more begins. Its undos wait, because" if is_fenced else "Queued:"
        return (f"{said} {nobody}", f"Take it up with: {output.take_up(run)}")

    async def go_on_from(self, run: str) -> str:
        from checkrein.exec.profiles import started_again

        command = await self._program(run)
        return output.go_on_from(run) if command is None else output.command(started_again(command))

    async def _program(self, run: str) -> list[str] | None:
        """The command of a run whose agent is a program that knows nothing of Checkrein; None for every other."""
        import msgspec

        from checkrein.core.events import CallStarted

        for record in await self.journal.read(run):
            event = record.event
            if isinstance(event, CallStarted) and event.kind is CallKind.PROCESS:
                return [str(word) for word in msgspec.json.decode(event.arguments or b"{}").get("command", ())] or None
        return None

    async def _queued_behind(self, state: State) -> str | None:
        """The run that a queued one waits for, if it does."""
        if state.status is not Status.QUEUED:
            return None
        rows = await self.journal.runs(thread=state.thread, owner=state.owner, status=UNFINISHED)
        for row in rows:
            if row.id != state.run and await self.is_driven(row.id):
                return row.id
        return None

    async def is_taken_up(self, run: str) -> bool:
        """Whether a run that ought to be at work is; a process that has its agent may take a moment to notice."""
        deadline = asyncio.get_running_loop().time() + TAKE_UP_SECONDS
        while await self._needs_process(run):
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    async def _needs_process(self, run: str) -> bool:
        """Whether something is to be done that only a process with the agent can do, and none is at it."""
        state = await self.journal.load(run)
        if state.is_finished:
            return any(effect.wanted for effect in await self.journal.effects(run, {EffectState.OPEN}))
        if state.status in PAUSE_IN_FORCE and not state.resumes_itself:
            return False
        return not await self.is_driven(run)


@asynccontextmanager
async def opened(store: str, listen_store: str | None = None) -> AsyncIterator[StoreSession]:
    """The store, which must exist: looking at one never makes it."""

    from checkrein.control.control import Control
    from checkrein.journal import open_journal
    from checkrein.processes.identity import in_role, this_process

    _must_exist(store)
    owner = this_process()
    async with await open_journal(store, listen=listen_store) as journal:
        # Not the name that a driver of this process would have: control must not take a run from it.
        yield StoreSession(store, journal, Control(journal, in_role(owner, "control")))


def with_store(store: str, act: Callable[[StoreSession], Awaitable[T]], listen_store: str | None = None) -> T:
    """Open the store, do one thing, close it."""

    async def run() -> T:
        async with opened(store, listen_store) as session:
            return await act(session)

    return asyncio.run(run())


def with_session(place: Place, act: Callable[[Session], Awaitable[T]]) -> T:
    """Reach the store, or the server, do one thing, and leave it."""
    if place.server is None:
        return with_store(place.store, act, place.listen_store)
    from checkrein.cli.remote import with_server

    return with_server(place.server, place.token, act)


def check_writable(store: str) -> None:
    """Raise `WrongInput`, with what would help, where no run could be recorded in the store."""
    if (obstacle := why_not_writable(store)) is not None:
        raise WrongInput(
            f"The store {store} {obstacle}. Name a place that is yours with --store, or have this one opened to you.",
            code="store_not_writable",
        )


def why_not_writable(store: str) -> str | None:
    """What keeps a run from being recorded in the file of a store, as far as that is seen from outside."""
    from checkrein.journal import file_of

    said = file_of(store)
    if said is None:
        return None
    path = Path(said).absolute()
    if os.path.exists(path):
        is_open = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
        return None if is_open else "may not be written to: no run can be started here, and none stopped"
    folder = next(parent for parent in path.parents if os.path.lexists(parent))
    if not folder.is_dir():
        return f"cannot be made: {folder} is not a folder"
    return None if os.access(folder, os.W_OK) else f"cannot be made: {folder} may not be written to"


def _must_exist(store: str) -> None:
    from checkrein.journal import MEMORY, file_of

    if store == MEMORY:
        raise WrongInput(
            "memory: is the journal of one process and cannot be reached from another; name a file with --store.",
            code="store_not_found",
        )
    path = file_of(store)
    if path is not None and not os.path.exists(path):
        raise WrongInput(
            f"There is no store {store} yet: the first `checkrein run` makes it. Another one is named with --store or "
            "CHECKREIN_STORE.",
            code="store_not_found",
        )


def _ended_program(state: State, command: Sequence[str]) -> Sequence[str]:
    """What is true of a program whose process has ended: nobody takes it up, and its own record is its own affair."""
    from checkrein.exec.profiles import started_again

    cancel = "" if state.status is Status.CANCELLING else f" This run is closed with: {output.command('cancel')}"
    return (
        f"{one_line(state.agent)} has ended with its process, and is not started again by itself: nobody knows how far "
        f"it had come.{cancel and f'{cancel} {state.run}'}",
        f"To go on with it: {output.command(started_again(command))}",
    )
