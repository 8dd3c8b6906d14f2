"""One call of a server's tool, and what stopping it means: its server is told, and nobody answers that.

So the effect of a call that was stopped is in doubt until something is known: the server answers after all, or has
ended, or a person or `verify` finds out. Only a tool that changes nothing is simply aborted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from checkrein.agents.mcp.answers import progress_line
from checkrein.agents.mcp.connection import Connection
from checkrein.agents.mcp.statement import MCPTool
from checkrein.agents.mcp.tickets import Answered, BrokenOff, Ticket
from checkrein.agents.showing import Forward, Shown
from checkrein.agents.tooling import spec_of
from checkrein.core.words import Outcome
from checkrein.errors import MCPUnavailable
from checkrein.runtime import values
from checkrein.runtime.driver import Driver
from checkrein.runtime.secrets import Secrets
from checkrein.runtime.spec import Ended, Performance, Permit, Spec
from checkrein.runtime.tracking import outside

TELL_SECONDS: Final = 1.0
"""How long telling a server to stop may take. A server that does not even read is let go."""
MOST_ATTEMPTS: Final = 3
"""How often an idempotent tool is tried whose server breaks off in the middle."""
MOST_PROGRESS: Final = 50_000
"""How many characters of progress are shown of one call."""

TOLD: Final = (
    "It was told to stop, and MCP knows no answer to that: it may have happened, in part or in full. Its result will "
    "be dropped."
)


def mcp_call(driver: Driver, tool: MCPTool, arguments: bytes, *, place: str = "", step: int | None = None) -> Spec:
    """The call of a server's tool with these JSON arguments. Raises `ValueError` when they are no JSON object."""
    try:
        values.plain_arguments(arguments)
    except values.NotJson as error:
        raise ValueError(str(error)) from error

    def perform(permit: Permit) -> Performance:
        return MCPPerformance(
            tool.source.connection(driver.stage),
            tool,
            permit,
            driver.shows(permit),
            secrets=driver.secrets,
            on_late_end=lambda: _tell_late(driver, permit.call),
        )

    return spec_of(tool, perform, arguments, place=place, step=step)


def _tell_late(driver: Driver, call: str, tries: int = 100) -> None:
    """Say that a call is over after all; once it is recorded how it was left, or it would count for nothing."""
    if call in driver.state.live and tries:
        asyncio.get_running_loop().call_later(0.02, _tell_late, driver, call, tries - 1)
    else:
        driver.ended_late(call)


class MCPPerformance:
    """Calls in a task of its own. Nothing is shown once it is stopped."""

    def __init__(
        self,
        connection: Connection,
        tool: MCPTool,
        permit: Permit,
        forward: Forward,
        *,
        secrets: Secrets,
        on_late_end: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._tool = tool
        self._permit = permit
        self._shown = Shown(forward)
        self._secrets = secrets
        self._on_late_end = on_late_end
        self._ticket = Ticket()
        self._is_stopped = False
        loop = asyncio.get_running_loop()
        self._end: asyncio.Future[Ended] = loop.create_future()
        self._task = loop.create_task(self._call(), context=outside())
        self._task.add_done_callback(self._over)

    async def ended(self) -> Ended:
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

    async def hold(self) -> bool:
        return False

    async def go_on(self) -> None:
        return None

    # -- calling

    async def _call(self) -> Ended:
        permit, tool = self._permit, self._tool
        try:
            session = await self._connection.session()
            if not permit.holds():
                return Ended(outcome=Outcome.ABORTED, begun=False)
            answered = await session.call(
                tool.on_server,
                values.plain_arguments(permit.arguments),
                self._ticket,
                self._show,
                permit.key if tool.idempotent else None,
            )
        except MCPUnavailable as unavailable:
            self._connection.doubt()
            return Ended(outcome=Outcome.FAILED, error=unavailable.message, begun=False)
        except BrokenOff as broken:
            self._connection.doubt()  # before the next turn it is seen whether a person has to mend something
            return self._broken_off(broken)
        return _ended(answered)

    def _broken_off(self, broken: BrokenOff) -> Ended:
        """The server is gone, or its answer is. What it did is known only if it did nothing."""
        server = f"The MCP server {self._tool.source.name}"
        if not broken.was_sent:
            error = f"{server} could not be reached: {broken}. Nothing was done."
            return Ended(outcome=Outcome.FAILED, error=error, begun=False)
        tool = self._tool
        is_tried_again = tool.idempotent and self._permit.attempt < MOST_ATTEMPTS
        if is_tried_again or (tool.has_effect and not tool.idempotent):
            self._ticket.on_late = self._on_late_end
            return Ended(outcome=Outcome.IN_DOUBT)
        return Ended(outcome=Outcome.FAILED, error=f"{server} broke off in the middle of the call: {broken}.")

    # -- ending

    def _over(self, task: asyncio.Task[Ended]) -> None:
        if self._end.done():
            return
        if task.cancelled():
            self._conclude(self._stopped())
        elif (error := task.exception()) is not None:
            self._conclude(Ended(outcome=Outcome.FAILED, error=f"{type(error).__name__}: {error}"))
        else:
            self._conclude(task.result())

    def _stopped(self) -> Ended:
        """How a call ended that was stopped: perhaps it was answered first, perhaps it never left."""
        if self._ticket.request is None:
            return Ended(outcome=Outcome.ABORTED, begun=False)
        if self._ticket.answer is not None:
            from checkrein.agents.mcp.wire import answer_in

            answered = answer_in(self._ticket)
            if answered is not None:
                return _ended(answered)
        if not self._tool.has_effect:
            return Ended(outcome=Outcome.ABORTED)
        self._ticket.on_late = self._on_late_end
        return Ended(outcome=Outcome.DETACHED, error=TOLD)

    def _conclude(self, ended: Ended) -> None:
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


def _ended(answered: Answered) -> Ended:
    if answered.is_error:
        said = answered.value if isinstance(answered.value, str) else _json(answered.value).decode()
        return Ended(outcome=Outcome.FAILED, error=said or "It failed, and its server did not say why.")
    return Ended(outcome=Outcome.COMPLETED, result=_json(answered.value))


def _json(value: Any) -> bytes:
    return values.encode_result(_json, value)
