"""What the API stands on: a journal to read, a control to steer with, and somebody who begins runs.

`RuntimeBackend` is the one over a `Runtime` of this process. A front that drives nothing itself brings its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from checkrein.control.starting import IfBusy
from checkrein.control.verbs import Control
from checkrein.core.conditions import Condition
from checkrein.errors import StoreUnavailable
from checkrein.journal.contract import Chunk, Journal

if TYPE_CHECKING:
    from checkrein.control.runs import Runtime

Hear = Callable[[Chunk], None]
"""Told each piece of text as it streams."""


class AgentCard(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an agent without its code: enough to choose it, and to begin a run of it."""

    name: str
    description: str = ""
    tools: tuple[str, ...] = ()
    stop_when: Condition | None = None
    warnings: tuple[str, ...] = ()
    """What its author should mend: tools that could not be stopped, or that say nothing about what they do."""


class Backend(Protocol):
    """What `create_app` needs. All of it is used from one event loop."""

    @property
    def journal(self) -> Journal: ...

    @property
    def control(self) -> Control: ...

    def now(self) -> float:
        """Unix seconds, by the clock that the runs go by."""
        ...

    def agents(self) -> Mapping[str, AgentCard]:
        """Every agent that a run can be begun of, by name."""
        ...

    async def start(
        self,
        agent: str,
        goal: str,
        *,
        thread: str | None = None,
        continues: str | None = None,
        owner: str = "",
        if_busy: IfBusy = "queue",
        by: str = "",
    ) -> str:
        """Begin a run and return its id; with `if_busy="redirect"`, perhaps that of the live run that `by` redirected.

        Raises `MisuseError`, `Refused`, `RunNotFound` or another `JournalError`, as `Runtime.start` does.
        """
        ...

    def listen(self, run: str, listener: Hear) -> Callable[[], None]:
        """Have `listener` called with each piece of text of a run as it streams, in the event loop. Returns an undo.

        What nobody tells of is read from the journal, a little later.
        """
        ...


class RuntimeBackend:
    """A `Runtime` that is open in this event loop by the time requests come in."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def journal(self) -> Journal:
        return self._open().journal

    @property
    def control(self) -> Control:
        return self._open().control

    def _open(self) -> Runtime:
        if not self._runtime.is_open:
            raise StoreUnavailable("The runtime behind this is not open; open it before requests come in.")
        return self._runtime

    def now(self) -> float:
        return self._runtime.now()

    def agents(self) -> Mapping[str, AgentCard]:
        return {name: card_of(program) for name, program in self._runtime.agents.items()}

    async def start(
        self,
        agent: str,
        goal: str,
        *,
        thread: str | None = None,
        continues: str | None = None,
        owner: str = "",
        if_busy: IfBusy = "queue",
        by: str = "",
    ) -> str:
        run = await self._open().start(
            agent, goal, thread=thread, continues=continues, owner=owner, if_busy=if_busy, by=by
        )
        return run.id

    def listen(self, run: str, listener: Hear) -> Callable[[], None]:
        return self._open().listen(run, listener)


def card_of(program: Any) -> AgentCard:
    """The card of an agent, from its code."""
    tools: Mapping[str, Any] = getattr(program, "tools", {})
    team: Mapping[str, Any] = getattr(program, "team", {})
    return AgentCard(
        name=program.name,
        description=getattr(program, "description", ""),
        tools=(*tools, *team),
        stop_when=getattr(program, "stop_when", None),
        warnings=tuple(warning for tool in tools.values() for warning in _warnings(tool)),
    )


def _warnings(tool: Any) -> Iterator[str]:
    if not tool.is_async and tool.isolation == "thread":
        yield f"{tool.name} runs in a thread, which cannot be killed: it may go on for a while after a stop."
    if tool.effect == "unknown" and tool.undo is None:
        yield f"{tool.name} says nothing about its effect and has no undo: interrupted, it may have partly happened."
    if tool.effect == "irreversible" and tool.approval is None:
        yield f"{tool.name} cannot be undone and asks nobody."
    if tool.effect == "reversible" and tool.undo is None:
        yield f"{tool.name} says that it is reversible and has no undo."
