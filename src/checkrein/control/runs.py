"""What a program holds in its hands: a `Runtime` on a journal, and its runs."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import msgspec

from checkrein.control.starting import IfBusy, begin
from checkrein.control.texts import Listener, Texts
from checkrein.control.verbs import WAIT_SECONDS, Control, Settling
from checkrein.core.controls import Control as Button
from checkrein.core.controls import controls
from checkrein.core.events import RunFinished
from checkrein.core.receipts import Receipt
from checkrein.core.state import State
from checkrein.core.words import Answer, Status, Undo, Verb, When
from checkrein.engines.local import LocalEngine
from checkrein.errors import MisuseError, Refused, RunFailed
from checkrein.journal import open_journal
from checkrein.journal.contract import Journal, Recorded, RunRow
from checkrein.journal.surely import surely
from checkrein.runtime.identity import this_process
from checkrein.runtime.leases import LEASE_SECONDS
from checkrein.runtime.pulse import Pulse
from checkrein.runtime.secrets import Secrets, SecretsGiven
from checkrein.runtime.spec import Program
from checkrein.runtime.stage import Stage
from checkrein.runtime.supervisor import Supervisor
from checkrein.runtime.sweeping import make_folder, sweep
from checkrein.runtime.table import Row


def functions_of(agent: Program) -> Iterator[Callable[..., Any]]:
    """What a worker may be asked to perform for `agent`: its tools, and what undoes and checks them."""
    for tool in getattr(agent, "tools", {}).values():
        yield from filter(None, (None if tool.is_async else tool.function, tool.undo, tool.verify))
    for source in getattr(agent, "sources", ()):
        yield from source.functions()


class Run:
    """A handle on one run. Letting it go changes nothing: the run goes on."""

    def __init__(self, runtime: Runtime, run: str) -> None:
        self._runtime = runtime
        self._control = runtime.control
        self.id = run

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    async def state(self) -> State:
        return await self._runtime.journal.load(self.id)

    async def controls(self) -> dict[Verb, Button]:
        journal = self._runtime.journal
        return controls(await journal.load(self.id), await journal.effects(self.id))

    async def events(self, *, after: int = 0) -> AsyncIterator[Recorded]:
        """Every event from the beginning, then each new one; ends after `run.finished`."""
        follower = self._runtime.journal.follow(self.id, after=after)
        try:
            async for record in follower:
                yield record
                if isinstance(record.event, RunFinished):
                    return
        finally:
            await follower.aclose()  # type: ignore[attr-defined]

    async def result(self) -> Any:
        """Wait for the end and return the result. Raises `RunFailed` if there is none."""
        state = await self.state()
        ends = self._runtime.journal.follow(
            self.id,
            after=0 if state.is_finished else state.seq,
            wants=lambda record: isinstance(record.event, RunFinished),
        )
        try:
            end = (await anext(ends)).event
        finally:
            await ends.aclose()  # type: ignore[attr-defined]
        assert isinstance(end, RunFinished)
        return _result(self.id, end)

    # -- verbs

    async def pause(self, *, reason: str = "", by: str = "program", wait: float = WAIT_SECONDS) -> Receipt | Settling:
        return await self._control.pause(self.id, by=by, reason=reason, wait=wait)

    async def resume(
        self, instruction: str | None = None, *, reason: str = "", by: str = "program", wait: float = WAIT_SECONDS
    ) -> Receipt | Settling:
        return await self._control.resume(self.id, instruction, by=by, reason=reason, wait=wait)

    async def redirect(
        self,
        instruction: str,
        *,
        when: When | str = When.NOW,
        reason: str = "",
        by: str = "program",
        wait: float = WAIT_SECONDS,
    ) -> Receipt | Settling:
        return await self._control.redirect(self.id, instruction, when=When(when), by=by, reason=reason, wait=wait)

    async def cancel(
        self, *, undo: Undo | str = Undo.OPEN, reason: str = "", by: str = "program", wait: float = 60.0
    ) -> Receipt | Settling:
        return await self._control.cancel(self.id, undo=Undo(undo), by=by, reason=reason, wait=wait)

    async def ask(self, question: str, *, by: str = "program", wait: float = 60.0) -> str:
        receipt = await self._control.ask(self.id, question, by=by, wait=wait)
        if isinstance(receipt, Settling):
            why = f"it still waits for {receipt.waiting_for}"
        elif receipt.answer is None:
            why = await self._control.why_unanswered(receipt)
        else:
            return receipt.answer
        raise Refused(f"The question to run {self.id} got no answer: {why}.", code="no_answer", run=self.id)

    async def abort(self, call: str, *, by: str = "program") -> Receipt | Settling:
        return await self._control.abort(self.id, call, by=by)

    async def approve(self, call: str, *, by: str = "program", note: str = "") -> None:
        await self._control.approve(self.id, call, by=by, note=note)

    async def deny(self, call: str, *, by: str = "program", note: str = "") -> None:
        await self._control.deny(self.id, call, by=by, note=note)

    async def resolve(self, call: str, answer: Answer | str, *, by: str = "program", result: Any = None) -> None:
        await self._control.resolve(self.id, call, Answer(answer), by=by, result=result)

    async def check(self, call: str, *, by: str = "program") -> None:
        """Have the tool of a call in doubt asked once more whether it happened."""
        await self._control.check(self.id, call, by=by)

    async def retry_undo(self, effect: str, *, by: str = "program") -> None:
        await self._control.retry_undo(self.id, effect, by=by)


class Runtime:
    """A journal, the agents of this program, and a driver for each of their runs.

    Use it as an async context manager. Leaving it pauses what is at work, durably; opening the same journal again with
    the same agents lets it go on. What a person paused stays paused.
    """

    def __init__(
        self,
        store: str = "sqlite:///.checkrein/runs.db",
        *,
        agents: Sequence[Program] = (),
        clock: Callable[[], float] = time.time,
        settle_seconds: float = 30.0,
        evict_seconds: float = 60.0,
        lease_seconds: float = LEASE_SECONDS,
        secrets: SecretsGiven = None,
    ) -> None:
        """`lease_seconds` is how long a runtime that gives no sign of life keeps its runs from others.

        `secrets` are taken out of everything before anybody sees it or it is recorded. Without any given, those of the
        environment; none at all, `()`, turns it off; a `Secrets` says exactly what to look for.
        """
        self._secrets_given = None if secrets is None else Secrets.of(secrets)
        self.secrets: Secrets
        self._store = store
        self._programs: dict[str, Program] = {}
        self._clock = clock
        self._options = {"settle_seconds": settle_seconds, "evict_seconds": evict_seconds}
        self._lease_seconds = lease_seconds
        self.texts: Texts
        self.journal: Journal
        self.control: Control
        self._engine: LocalEngine
        self._stage: Stage
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
        for other in getattr(agent, "team", {}).values():
            self.add(other)

    @property
    def agents(self) -> Mapping[str, Program]:
        """The agents whose runs this runtime drives, by name."""
        return MappingProxyType(self._programs)

    @property
    def store(self) -> str:
        """Where its runs are kept."""
        return self._store

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def now(self) -> float:
        """The time by this runtime's clock."""
        return self._clock()

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise MisuseError("This runtime is open already; to open the store once more, make another Runtime.")
        opened = self._opened = AsyncExitStack()
        try:
            await self._open(opened)
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await surely(opened.aclose())

    def _check_open(self) -> None:
        if self._opened is None:
            raise MisuseError("This runtime is not open. Use it as `async with Runtime(…) as runtime:`.")

    async def _open(self, opened: AsyncExitStack) -> None:
        """Open what is needed, each thing with a way to close it again: the last one first."""
        self.secrets = Secrets.of(self._secrets_given)
        self.journal = await open_journal(self._store)
        opened.push_async_callback(self.journal.close)
        self.texts = Texts(self.journal)
        opened.push_async_callback(self.texts.kept)
        # Its name as an owner is the mark of its processes: by it those who take over find what is left of it.
        owner = msgspec.structs.replace(this_process(), process=uuid.uuid4().hex)
        # Not the same owner as the drivers: control must not take a run from a driver of its own process.
        controller = msgspec.structs.replace(owner, process=f"{owner.process}-control")
        self.control = Control(self.journal, controller, clock=self._clock, secrets=self.secrets)
        await asyncio.to_thread(sweep)
        folder = make_folder()
        opened.callback(folder.cleanup)
        self._supervisor = await Supervisor.start(owner.process)
        opened.push_async_callback(self._supervisor.close)
        functions = [function for agent in self._programs.values() for function in functions_of(agent)]
        self._stage = Stage(Path(folder.name), runtime=owner.process, secrets=self.secrets, preload=functions)
        await opened.enter_async_context(self._stage)
        self._engine = LocalEngine(
            self.journal,
            owner,
            self._programs,
            clock=self._clock,
            lease_seconds=self._lease_seconds,
            driver_options={
                **self._options,
                "stage": self._stage,
                "secrets": self.secrets,
                "on_chunk": self.texts.hear,
            },
        )
        await opened.enter_async_context(self._engine)
        pulse = Pulse(self.journal, lambda: self._engine.runs, clock=self._clock)
        opened.push_async_callback(asyncio.to_thread, pulse.stop)

    # -- runs

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
        name = agent if isinstance(agent, str) else agent.name
        if not isinstance(agent, str):
            self.add(agent)
        if name not in self._programs:
            known = ", ".join(self._programs) or "none"
            raise MisuseError(f"There is no agent {name} here; there are: {known}.", agent=name)
        run, is_new = await begin(
            self.journal,
            self.control,
            name,
            goal,
            stop_when=getattr(self._programs[name], "stop_when", None),
            secrets=self.secrets,
            clock=self._clock,
            thread=thread,
            continues=continues,
            owner=owner,
            if_busy=if_busy,
            by=by,
        )
        if is_new:
            await self._engine.take_up(run)
        return Run(self, run)

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
        await self.journal.load(run)
        return Run(self, run)

    async def runs(
        self, *, status: Sequence[Status] = (), agent: str | None = None, limit: int = 100
    ) -> tuple[RunRow, ...]:
        self._check_open()
        return await self.journal.runs(status=status, agent=agent, limit=limit)

    def end_with(self, parent: Row, *, grace_seconds: float) -> None:
        """Once the process `parent` is gone, this one has so long to end by itself; then it is killed from outside."""
        self._check_open()
        self._supervisor.end_with(parent, grace_seconds=grace_seconds)

    # -- streamed text: shown at once, kept soon

    def listen(self, run: str, listener: Listener) -> Callable[[], None]:
        """Have `listener` told each piece of text as it streams, as far as the run is driven here. Returns an undo."""
        self._check_open()
        return self.texts.listen(run, listener)


def _result(run: str, finished: RunFinished) -> Any:
    if finished.status is Status.COMPLETED:
        return None if finished.result is None else msgspec.json.decode(bytes(finished.result))
    message = f"Run {run} has no result: it {_ENDED[finished.status]}."
    if finished.error:
        message += f" {finished.error}"
    raise RunFailed(message, run=run, status=finished.status, error=finished.error)


_ENDED = {Status.FAILED: "failed", Status.CANCELLED: "was cancelled", Status.KILLED: "was halted by an operator"}
