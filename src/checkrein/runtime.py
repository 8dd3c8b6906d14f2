"""What a program holds in its hands: a `Runtime` on a journal, which starts, drives and finds runs."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, overload

import msgspec

from checkrein.asyncutil import run_to_completion
from checkrein.calls.arguments import RESULT_BYTES
from checkrein.calls.executor import ToolExecutor
from checkrein.calls.files import make_folder, sweep
from checkrein.control.control import Control
from checkrein.control.fork import ForkRun, fork
from checkrein.control.halt import Halted, Halting, LatchedHalt, Lifted
from checkrein.control.live_text import Listener, LiveText
from checkrein.control.start import IfBusy, StartRun, begin
from checkrein.control.worker_roster import card_of, differing, encode_cards
from checkrein.core.enums import Status
from checkrein.driver.driver import DriverOptions
from checkrein.driver.program_api import Program
from checkrein.engines.base import Engine, MakeEngine
from checkrein.engines.dispatcher import Dispatcher
from checkrein.engines.leases import LeaseEngine
from checkrein.engines.roster import RosterEntry
from checkrein.errors import MisuseError, NameTaken, StoreTooNew
from checkrein.journal import MEMORY, address_of, open_journal
from checkrein.journal.base import Journal, Owner, RunRow, Scope, Worker
from checkrein.processes import halt_flags
from checkrein.processes.identity import in_role, this_process
from checkrein.processes.supervisor import Supervisor
from checkrein.processes.table import ProcessInfo
from checkrein.run import Run, T
from checkrein.secrets import Secrets, SecretsGiven
from checkrein.timings import LEASE_SECONDS, SETTLE_SECONDS, SHUT_DOWN_SECONDS, WAIT_SECONDS

if TYPE_CHECKING:
    from checkrein.agents.agent import Agent
    from checkrein.agents.program import ProgramAgent
    from checkrein.control.waiting_watch import OnWaiting

_log = logging.getLogger(__name__)


# In a program of its own this is a library: whoever wants its log sets up logging, and nobody else reads it on stderr.
logging.getLogger("checkrein").addHandler(logging.NullHandler())


def functions_of(agent: Program) -> Iterator[Callable[..., Any]]:
    """What a worker may be asked to perform for `agent`: its tools, and what undoes and checks them."""
    for tool in agent.tools.values():
        yield from filter(None, (None if tool.is_async else tool.function, tool.undo, tool.verify))
    for source in agent.sources:
        yield from source.functions()


class StartOptions(TypedDict, total=False):
    """What may be said of a run that is started; `Runtime.start` has the defaults."""

    thread: str | None
    continues: str | None
    owner: str
    if_busy: IfBusy
    by: str


class Runtime:
    """A journal, the agents of this program, and a driver for each of their runs.

    Use it as an async context manager, or, where no block can span its life, as in a notebook, with `await open()` and
    `await aclose()`. Leaving it pauses what is at work, durably; opening the same journal again with the same agents
    lets it go on. What a person paused stays paused.

    `clock` gives Unix seconds; without it the store's clock does, which all hosts share.

    `lease_seconds` is how long a runtime that gives no sign of life keeps its runs from others.

    `secrets` are taken out of everything before anybody sees it or it is recorded. Without any given, those of the
    environment; none at all, `()`, turns it off; a `Secrets` says exactly what to look for. `result_bytes` is the
    most that the result of a tool or a program may be, as JSON; beyond it the call or the run fails.

    `on_waiting(view, waiting)` is called once for each thing that a run needs a person for: a coroutine function on
    the event loop, a plain one in a thread. What it raises is logged and harms nobody.

    `listen_store` is for a store in PostgreSQL behind a pooler in transaction mode: the address without it.

    `engine` decides which runs are driven here, and is made over the `Dispatcher` that drives them. The default
    finds them by their leases in the store. `slots` is how many runs are driven here at once, without their
    sub-runs; None: any number. One that is paused or waits for a person takes none.

    With `worker` this runtime is on the roster of the store under that name, as `checkrein worker` is. No two of a
    name may live at once: a new one is known to be the successor of one that died, wherever that was. `version`
    names its agents as they are deployed: a run goes on where its version is, as long as somebody has it.
    `shutdown_seconds` is how long a run is given to be paused durably when this is left.
    """

    def __init__(
        self,
        store: str = "sqlite:///.checkrein/runs.db",
        *,
        agents: Sequence[Program] = (),
        clock: Callable[[], float] | None = None,
        settle_seconds: float = SETTLE_SECONDS,
        evict_seconds: float = 60.0,
        lease_seconds: float = LEASE_SECONDS,
        secrets: SecretsGiven = None,
        result_bytes: int = RESULT_BYTES,
        on_waiting: OnWaiting | None = None,
        listen_store: str | None = None,
        engine: MakeEngine = LeaseEngine,
        worker: str = "",
        version: str = "",
        slots: int | None = None,
        shutdown_seconds: float = SHUT_DOWN_SECONDS,
    ) -> None:
        _check_given(slots, on_waiting)
        self._on_waiting = on_waiting
        self._secrets_given = None if secrets is None else Secrets.of(secrets)
        self.secrets: Secrets
        self._store = store
        self._listen_store = listen_store
        self._make_engine = engine
        self._programs: dict[str, Program] = {}
        self._clock_given = clock
        self._clock = clock or time.time
        self._options = DriverOptions(
            settle_seconds=settle_seconds,
            evict_seconds=evict_seconds,
            shutdown_seconds=shutdown_seconds,
            version=version,
        )
        self._worker = worker
        self._slots = slots
        self._entry: RosterEntry | None = None
        self._replaced: asyncio.Future[NameTaken]
        self._lease_seconds = lease_seconds
        self._result_bytes = result_bytes
        self.texts: LiveText
        self.journal: Journal
        self.control: Control
        self._engine: Engine
        self._executor: ToolExecutor
        self._supervisor: Supervisor
        self._opened: AsyncExitStack | None = None
        for agent in agents:
            self.add(agent)

    def add(self, agent: Program) -> None:
        """Let this runtime drive the runs of `agent`."""
        known = self._programs.get(agent.name)
        if known is not None and known is not agent:
            raise MisuseError(f"There are two agents with the name {agent.name}; a run could not tell them apart.")
        self._programs[agent.name] = agent
        for other in agent.team.values():
            self.add(other)

    @property
    def agents(self) -> Mapping[str, Program]:
        """The agents whose runs this runtime drives, by name."""
        return MappingProxyType(self._programs)

    @property
    def store(self) -> str:
        """Where its runs are kept: the address of the journal."""
        return address_of(self._store)

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def now(self) -> float:
        """The time by this runtime's clock: that of the store, once it is open, unless another one was given."""
        return self._clock()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> Self:
        """Open the store and take up what is to go on. `aclose` is to follow, on the same event loop."""
        if self._opened is not None:
            raise MisuseError("This runtime is open already; to open the store once more, make another Runtime.")
        opened = self._opened = AsyncExitStack()
        try:
            await self._open(opened)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def aclose(self) -> None:
        """Pause what is at work, durably, and close the store. Closing it twice does no harm."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await run_to_completion(opened.aclose())

    def _check_open(self) -> None:
        if self._opened is None:
            raise MisuseError(
                "This runtime is not open. Use it as `async with Runtime(…) as runtime:`, or `await runtime.open()`."
            )

    async def _open(self, opened: AsyncExitStack) -> None:
        """Open what is needed, each thing with a way to close it again: the last one first."""
        self.secrets = Secrets.of(self._secrets_given)
        self.journal = await open_journal(self._store, listen=self._listen_store)
        opened.push_async_callback(self.journal.close)
        self._clock = self._clock_given or self.journal.now
        if self._programs:
            self.journal.check_may_drive()
        self.texts = LiveText(self.journal)
        opened.push_async_callback(self.texts.kept)
        # Its name as an owner is the mark of its processes: by it those who take over find what is left of it.
        owner = msgspec.structs.replace(this_process(), process=uuid.uuid4().hex)
        # Not the same owner as the drivers: control must not take a run from a driver of its own process.
        controller = in_role(owner, "control")
        self.control = Control(self.journal, controller, clock=self._clock, secrets=self.secrets)
        await asyncio.to_thread(sweep)
        folder = make_folder()
        opened.callback(folder.cleanup)
        self._supervisor = await Supervisor.start(owner.process)
        opened.push_async_callback(self._supervisor.close)
        self._supervisor.heed_halts(self.store)
        functions = [function for agent in self._programs.values() for function in functions_of(agent)]
        self._executor = ToolExecutor(
            Path(folder.name),
            runtime=owner.process,
            secrets=self.secrets,
            preload=functions,
            result_bytes=self._result_bytes,
            keep_file=self.journal.write_file,
        )
        await opened.enter_async_context(self._executor)
        dispatcher = self._dispatcher(owner)
        self._engine = self._make_engine(dispatcher)
        if self._worker:
            await self._enlist(owner, opened)
        self._supervisor.has_waiting_stop = dispatcher.has_waiting_stop
        await opened.enter_async_context(self._engine)
        if self._on_waiting is not None:
            from checkrein.control.waiting_watch import WaitingWatch

            watch = WaitingWatch(self.journal, owner, self._on_waiting, agents=self._programs, clock=self._clock)
            await opened.enter_async_context(watch)

    def _dispatcher(self, owner: Owner) -> Dispatcher:
        options = replace(
            self._options,
            executor=self._executor,
            secrets=self.secrets,
            on_chunk=self.texts.hear,
            flags=None if self.store == MEMORY else halt_flags.Flags(self.store),
        )
        return Dispatcher(
            self.journal,
            owner,
            self._programs,
            clock=self._clock,
            lease_seconds=self._lease_seconds,
            driver_options=options,
            stop_waits=self._supervisor.stop_waits,
            slots=self._slots,
        )

    async def _enlist(self, owner: Owner, opened: AsyncExitStack) -> None:
        """Before anything is taken up: whoever finds what this process leaves behind finds its name too."""
        cards = [card_of(agent) for agent in self._programs.values()]
        worker = Worker(
            name=self._worker,
            owner=owner,
            version=self._options.version,
            cards=encode_cards(cards),
            agents=tuple(self._programs),
            slots=self._slots or 0,
            free=self._slots or 0,
            engine=self._engine.name,
        )
        self._replaced = asyncio.get_running_loop().create_future()
        self._entry = RosterEntry(
            self.journal, worker, seconds=self._lease_seconds, free=self._free, lost=self._replaced.set_result
        )
        enlisted = await opened.enter_async_context(self._entry)
        others = [other for other in await self.journal.workers() if other.is_seen(self.journal.now())]
        for own, theirs, other in differing(enlisted, others):
            _log.warning(
                "Agent %s is another one at worker %s, of the same version %r: here %s, there %s.",
                own.name,
                other.name,
                self._options.version,
                own,
                theirs,
            )

    def _free(self) -> int:
        """Asked in a thread of the roster."""
        return (self._engine.free if hasattr(self, "_engine") else self._slots) or 0

    @property
    def is_store_well(self) -> bool:
        """Whether the store took the last sign of life of this worker; True for one that is not on the roster."""
        return self._entry is None or self._entry.is_well

    # -- runs

    @overload
    async def start(
        self, agent: Agent[T] | ProgramAgent[T], goal: str = "", **options: Unpack[StartOptions]
    ) -> Run[T]: ...
    @overload
    async def start(self, agent: Program | str, goal: str = "", **options: Unpack[StartOptions]) -> Run: ...
    async def start(
        self,
        agent: Program | str,
        goal: str = "",
        *,
        thread: str | None = None,
        continues: str | None = None,
        owner: str = "",
        if_busy: IfBusy = "queue",
        by: str = "",
    ) -> Run:
        """Begin a run. On a thread with a live run it is queued behind it, redirects it, or is refused.

        `continues` names a run that has ended: the new one goes on from there, on the same thread. Finished work is
        known to it, undone work is named, and what is unknown is said to be. `by` is who asks, should it redirect.
        """
        self._check_open()
        self.journal.check_may_drive()
        name = agent if isinstance(agent, str) else agent.name
        if not isinstance(agent, str):
            self.add(agent)
        if name not in self._programs:
            known = ", ".join(self._programs) or "none"
            raise MisuseError(f"There is no agent {name} here; there are: {known}.", agent=name)
        wanted = StartRun(
            agent=name, goal=goal, thread=thread, continues=continues, owner=owner, if_busy=if_busy, by=by
        )
        stop_when = self._programs[name].stop_when
        run, is_new = await begin(
            self.journal, self.control, wanted, stop_when=stop_when, secrets=self.secrets, clock=self._clock
        )
        if is_new:
            await self._engine.take_up(run)
        return Run(self, run, name)

    async def fork(self, run: str, *, at: int, instruction: str | None = None, by: str = "program") -> Run:
        """A new run that goes on after the finished step `at` of another one; `Run.fork` says what that means."""
        self._check_open()
        self.journal.check_may_drive()
        origin = await self.journal.load(run)
        program = self._programs.get(origin.agent)
        caps = origin.stop_when if program is None else program.stop_when
        wanted = ForkRun(run=run, at=at, instruction=instruction, by=by)
        made = await fork(self.journal, wanted, stop_when=caps, secrets=self.secrets, clock=self._clock)
        if program is not None:
            await self._engine.take_up(made)
        return Run(self, made, origin.agent)

    @overload
    def run_sync(self, agent: Agent[T] | ProgramAgent[T], goal: str, **options: Any) -> T: ...
    @overload
    def run_sync(self, agent: Program, goal: str, **options: Any) -> Any: ...
    def run_sync(self, agent: Program, goal: str, **options: Any) -> Any:
        """Run an agent to its end from a program that is not async, and return the result."""

        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise MisuseError("run_sync is for programs that are not async; here, use `await runtime.start(…)`.")

        async def run() -> Any:
            async with self:
                return await (await self.start(agent, goal, **options)).result()

        return asyncio.run(run())

    async def get(self, run: str) -> Run:
        """A handle on an existing run. Raises `RunNotFound`."""
        self._check_open()
        handle: Run = Run(self, run)
        await handle.state()
        return handle

    async def runs(
        self, *, status: Sequence[Status] = (), agent: str | None = None, limit: int = 100
    ) -> tuple[RunRow, ...]:
        self._check_open()
        return await self.journal.runs(status=status, agent=agent, limit=limit)

    # -- the kill switch

    async def halt(
        self, scope: Scope | str, name: str = "", *, reason: str = "", by: str = "program", wait: float = WAIT_SECONDS
    ) -> Halted:
        """The operator's kill switch: nothing begins in the scope, on any host, until `reset`, and every live run in it
        is ended. `scope` is `run`, `agent` or `owner`, with a `name`, or `all`.

        Raises `MisuseError`, `RunNotFound`, or `StoreUnavailable`: then nothing is halted, and it is asked again.
        """
        self._check_open()
        return await self._halting().halt(scope, name, by=by, reason=reason, wait=wait)

    async def reset(self, scope: Scope | str, name: str = "", *, reason: str = "", by: str = "program") -> Lifted:
        """Lift a halt. Nothing is resumed by it. Raises `MisuseError` or `StoreUnavailable`."""
        self._check_open()
        lifted = await self._halting().reset(scope, name, by=by, reason=reason)
        halt_flags.take_down(self.store, lifted.scope.value, name)
        return lifted

    async def halts(self) -> tuple[LatchedHalt, ...]:
        """What is halted: who, why and since when, the oldest first."""
        self._check_open()
        return await self._halting().halts(self.store)

    def _halting(self) -> Halting:
        return Halting(self.journal, this_process(), clock=self._clock)

    def end_with(self, parent: ProcessInfo, *, grace_seconds: float) -> None:
        """Once the process `parent` is gone, this one has so long to end by itself; then it is killed from outside."""
        self._check_open()
        self._supervisor.end_with(parent, grace_seconds=grace_seconds)

    async def until_too_old(self) -> StoreTooNew:
        """Return once a later version has migrated the store so that this one may not drive runs there any more.

        By then the runs that were driven here are handed over, and no other is taken up: close this, and end.
        """
        self._check_open()
        return await self._engine.until_too_old()

    async def until_replaced(self) -> NameTaken:
        """Return once this worker may not drive any more: another process has its name, or it was buried."""
        self._check_open()
        return await asyncio.shield(self._replaced)

    # -- streamed text: shown at once, kept soon

    def listen(self, run: str, listener: Listener) -> Callable[[], None]:
        """Have `listener` told each piece of text as it streams, as far as the run is driven here. Returns an undo."""
        self._check_open()
        return self.texts.listen(run, listener)


def _check_given(slots: int | None, on_waiting: OnWaiting | None) -> None:
    if slots is not None and slots < 1:
        raise MisuseError(f"slots={slots} would drive nothing; give 1 or more, or None for any number.")
    if on_waiting is not None and not callable(on_waiting):
        raise MisuseError(f"on_waiting={on_waiting!r} is no function; it is called as on_waiting(view, waiting).")
