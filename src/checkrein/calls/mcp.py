"""One call of a server's tool, and what stopping it means: its server is told, and nobody answers that.

So the effect of a call that was stopped is in doubt until something is known: the server answers after all, or has
ended, or a person or `verify` finds out. Only a tool that changes nothing is simply aborted.

What is known of one call on its way to a server and back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from checkrein.calls import arguments as values
from checkrein.calls.base import CallResult, Execution, Permit
from checkrein.calls.in_process.child_tasks import outside
from checkrein.calls.model import Forward, TextTally
from checkrein.core.enums import Outcome
from checkrein.errors import MCPUnavailable, ResultTooLarge, describe
from checkrein.secrets import Secrets
from checkrein.timings import TELL_SECONDS

Progress = Callable[[float, float | None, str | None], None]
"""Told how far a call is, of how much, and in words."""


class PendingRequest:
    """One call: which request it became, and whether it was answered."""

    def __init__(self) -> None:
        self.request: Any = None
        """The number of its request; None as long as nothing was sent."""
        self.answer: Any = None
        self.is_let_go = False
        """Nobody waits for its answer any more."""
        self.on_late: Callable[[], None] | None = None
        """For one that was let go: told when it is known to be over after all."""

    def answered(self, answer: Any) -> None:
        self.answer = answer
        self.over()

    def over(self) -> None:
        """The call is known to be over: answered, or nobody is left who could be at it."""
        late, self.on_late = self.on_late, None
        if late is not None:
            late()


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What a server has answered."""

    is_error: bool
    value: Any


class BrokenOff(Exception):
    """There will be no answer: the connection is gone. `was_sent` says whether the server may know of the call."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent


def progress_line(done: float, total: float | None, message: str | None) -> str:
    """`3 of 10: reading`."""
    line = f"{done:g}" if total is None else f"{done:g} of {total:g}"
    words = " ".join((message or "").split())
    return f"{line}: {words[:300]}\n" if words else f"{line}\n"


MOST_ATTEMPTS: Final = 3
"""How often an idempotent tool is tried whose server breaks off in the middle."""
MOST_PROGRESS: Final = 50_000
"""How many characters of progress are shown of one call."""

TOLD: Final = (
    "It was told to stop, and MCP knows no answer to that: it may have happened, in part or in full. Its result will "
    "be dropped."
)


class Session(Protocol):
    """An open session with a server."""

    async def call(
        self, tool: str, arguments: dict[str, Any], pending: PendingRequest, progress: Progress, key: str | None
    ) -> Answered:
        """Call a tool and return what the server answered. Raises `BrokenOff` when there will be no answer."""

    def answer_in(self, pending: PendingRequest) -> Answered | None:
        """What the server had answered by the time its call was cancelled."""


class Connection(Protocol):
    """The way to one server."""

    async def session(self) -> Session:
        """Its open session. Raises `MCPUnavailable` with what a person can mend."""

    def doubt(self) -> None:
        """It may be gone: the next who asks for its session finds out."""


class ServerTool(Protocol):
    """What must be known of a server's tool to call and to stop it."""

    @property
    def server_name(self) -> str: ...
    @property
    def on_server(self) -> str: ...
    @property
    def idempotent(self) -> bool: ...
    @property
    def has_effect(self) -> bool: ...


class MCPExecution(Execution):
    """Calls in a task of its own. Nothing is shown once it is stopped."""

    def __init__(
        self,
        connection: Connection,
        tool: ServerTool,
        permit: Permit,
        forward: Forward,
        *,
        secrets: Secrets,
        result_bytes: int = values.RESULT_BYTES,
        on_late_end: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._tool = tool
        self._permit = permit
        self._shown = TextTally(forward)
        self._secrets = secrets
        self._result_bytes = result_bytes
        self._on_late_end = on_late_end
        self._pending = PendingRequest()
        self._session: Session | None = None
        self._is_stopped = False
        loop = asyncio.get_running_loop()
        self._end: asyncio.Future[CallResult] = loop.create_future()
        self._task = loop.create_task(self._call(), context=outside())
        self._task.add_done_callback(self._over)

    async def ended(self) -> CallResult:
        return await asyncio.shield(self._end)

    async def abort(self) -> None:
        if self._end.done() or self._task.done():
            return
        if not self._is_stopped:
            self._is_stopped = True
            self._task.cancel()
        await asyncio.wait([self._task], timeout=TELL_SECONDS)
        if not self._end.done():
            self._conclude(self._stopped())

    # -- calling

    async def _call(self) -> CallResult:
        permit, tool = self._permit, self._tool
        try:
            session = self._session = await self._connection.session()
            if not permit.holds():
                return CallResult(outcome=Outcome.ABORTED, begun=False)
            answered = await session.call(
                tool.on_server,
                values.plain_arguments(permit.arguments),
                self._pending,
                self._show,
                permit.key if tool.idempotent else None,
            )
        except MCPUnavailable as unavailable:
            self._connection.doubt()
            return CallResult(outcome=Outcome.FAILED, error=unavailable.message, begun=False)
        except BrokenOff as broken:
            self._connection.doubt()  # before the next turn it is seen whether a person has to mend something
            return self._broken_off(broken)
        return self._ended(answered)

    def _broken_off(self, broken: BrokenOff) -> CallResult:
        """The server is gone, or its answer is. What it did is known only if it did nothing."""
        server = f"The MCP server {self._tool.server_name}"
        if not broken.was_sent:
            error = f"{server} could not be reached: {broken}. Nothing was done."
            return CallResult(outcome=Outcome.FAILED, error=error, begun=False)
        tool = self._tool
        is_tried_again = tool.idempotent and self._permit.attempt < MOST_ATTEMPTS
        if is_tried_again or (tool.has_effect and not tool.idempotent):
            self._pending.on_late = self._on_late_end
            return CallResult(outcome=Outcome.IN_DOUBT)
        return CallResult(outcome=Outcome.FAILED, error=f"{server} broke off in the middle of the call: {broken}.")

    # -- ending

    def _over(self, task: asyncio.Task[CallResult]) -> None:
        if self._end.done():
            return
        if task.cancelled():
            self._conclude(self._stopped())
        elif (error := task.exception()) is not None:
            self._conclude(CallResult(outcome=Outcome.FAILED, error=describe(error)))
        else:
            self._conclude(task.result())

    def _ended(self, answered: Answered) -> CallResult:
        if answered.is_error:
            said = answered.value if isinstance(answered.value, str) else _json(answered.value).decode()
            return CallResult(outcome=Outcome.FAILED, error=said or "It failed, and its server did not say why.")
        try:
            result = values.encode_result(_json, answered.value, most=self._result_bytes, name=self._tool.on_server)
        except ResultTooLarge as error:
            return CallResult(outcome=Outcome.FAILED, error=describe(error))
        return CallResult(outcome=Outcome.COMPLETED, result=result)

    def _stopped(self) -> CallResult:
        """How a call ended that was stopped: perhaps it was answered first, perhaps it never left."""
        if self._pending.request is None:
            return CallResult(outcome=Outcome.ABORTED, begun=False)
        if self._session is not None and (answered := self._session.answer_in(self._pending)) is not None:
            return self._ended(answered)
        if not self._tool.has_effect:
            return CallResult(outcome=Outcome.ABORTED)
        self._pending.on_late = self._on_late_end
        return CallResult(outcome=Outcome.DETACHED, error=TOLD)

    def _conclude(self, ended: CallResult) -> None:
        self._end.set_result(
            msgspec.structs.replace(
                ended,
                result=None if ended.result is None else self._secrets.json(ended.result),
                error=None if ended.error is None else self._secrets.text(ended.error),
                **self._shown.record(),
            )
        )

    # -- progress

    def _show(self, done: float, total: float | None, message: str | None) -> None:
        line = self._secrets.text(progress_line(done, total, message))
        if self._is_stopped or self._end.done() or self._shown.chars + len(line) > MOST_PROGRESS:
            return
        self._shown.send(line)


def _json(value: Any) -> bytes:
    return values.encode_result(_json, value)
