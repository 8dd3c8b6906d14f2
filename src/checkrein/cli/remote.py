"""Runs of a server, reached over HTTP with `checkrein.AsyncClient`: the same verbs as on a store."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, TypeVar

from checkrein.cli import output
from checkrein.cli.printers import JsonPrinter, PlainPrinter, Printer
from checkrein.cli.session import PAGE, Row, Session
from checkrein.client import AsyncClient
from checkrein.core.enums import TERMINAL, UNFINISHED, CallKind, EffectState, Status
from checkrein.errors import RunNotFound, Unauthorised

if TYPE_CHECKING:
    from checkrein.cli.attach import Manner
    from checkrein.control.control import Settling
    from checkrein.control.view import ApprovalView, ListedRun, RunView
    from checkrein.core.events import Origin
    from checkrein.core.receipts import Receipt
    from checkrein.core.verb_specs import VerbSpec

T = TypeVar("T")


class ServerSession(Session):
    """Who asks is whoever the token belongs to."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.where = client.url

    async def view(self, run: str) -> RunView:
        return await self.client.run(run).view()

    async def rows(self, *, unfinished: bool = False, before: str | None = None) -> Sequence[Row]:
        filters: dict[str, Any] = {"limit": PAGE}
        if unfinished:
            filters["status"] = UNFINISHED
        if before is not None:
            filters["before"] = before
        return [Row(row.id, row.parent, row.agent) for row in (await self.client.runs(**filters)).runs]

    async def halts(self) -> Sequence[tuple[str, str, str, str, float]]:
        return [(one.scope.value, one.name, one.by, one.reason, one.at) for one in await self.client.halts()]

    async def has(self, run: str) -> bool:
        try:
            await self.view(run)
        except RunNotFound:
            return False
        return True

    async def calls_for(self, verb: str, run: str) -> Mapping[str, str]:
        view = await self.view(run)
        if verb == "resolve":
            return {doubt.call: doubt.name for doubt in view.doubts}
        if verb == "retry_undo":
            return {one.id: one.what for one in view.effects if one.now is EffectState.LEFT and one.can_undo}
        if verb == "abort":
            live = [call for call in view.calls if call.started_at is not None and call.finished_at is None]
            return {call.id: call.name for call in live if call.kind is not CallKind.UNDO}
        return {approval.call: approval.name for approval in view.approvals}

    async def approval(self, run: str, call: str) -> ApprovalView | None:
        return next((one for one in (await self.view(run)).approvals if one.call == call), None)

    async def take(self, spec: VerbSpec, run: str, **given: Any) -> Receipt | Settling | None:
        given.pop("by", None)
        call = [given.pop(spec.call_name)] if spec.target == "call" else []
        answer: Any = await self.client.verb(spec.name, run, *call, **given)
        return answer if spec.answers == "receipt" else None

    async def fork(self, run: str, *, at: int, instruction: str | None, by: str) -> tuple[str, Origin]:
        made = await self.client.run(run).fork(at=at, instruction=instruction)
        origin = (await made.view()).forked_from
        assert origin is not None, "a fork says where it comes from"
        return made.id, origin

    async def waits_for(self, run: str) -> str:
        settling = (await self.view(run)).settling
        return settling[-1].waiting_for if settling and settling[-1].waiting_for else "its driver"

    async def why_unanswered(self, receipt: Receipt) -> str:
        return "it was stopped before there was one"

    async def go_on_from(self, run: str) -> str:
        return output.command(f'start AGENT "…" --continue {run}')

    async def unattended(self, run: str) -> Sequence[str]:
        return ()  # a server keeps processes for its agents


async def listed_runs(session: Session, status: Collection[Status], limit: int) -> list[ListedRun]:
    """The newest runs of the server in one of these statuses."""
    assert isinstance(session, ServerSession)
    found: list[ListedRun] = []
    async with aclosing(session.client.iter_runs(status=status, limit=min(limit, PAGE))) as runs:
        async for one in runs:
            found.append(one)
            if len(found) == limit:
                break
    return found


NO_TOKEN: Final = (
    "{} does not know this token, or none was given. Give one with --token or CHECKREIN_TOKEN; where the server runs, "
    "`checkrein token create` makes one."
)


def with_server(url: str, token: str | None, act: Callable[[ServerSession], Awaitable[T]]) -> T:
    """Reach the server, do one thing, and leave it."""

    async def run() -> T:
        async with AsyncClient(url, token) as client:
            try:
                return await act(ServerSession(client))
            except Unauthorised as error:
                raise Unauthorised(NO_TOKEN.format(url), code=error.code) from error

    return asyncio.run(run())


async def follow(session: Session, run: str, manner: Manner) -> int:
    """Print what happens to a run of a server until it ends or the person leaves; the exit code."""
    assert isinstance(session, ServerSession)
    printer: Printer = JsonPrinter() if manner.json else PlainPrinter()
    loop, leave = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, leave.set)
    printing = loop.create_task(_print(session, run, printer))
    leaving = loop.create_task(leave.wait())
    try:
        await asyncio.wait([printing, leaving], return_when=asyncio.FIRST_COMPLETED)
        if printing.done():
            printing.result()
    finally:
        for task in (printing, leaving):
            task.cancel()
        await asyncio.gather(printing, leaving, return_exceptions=True)
        for number in signals:
            loop.remove_signal_handler(number)
    view = await session.view(run)
    if manner.json:
        printer.end({"type": "result", "run": run, "status": view.status, "result": view.result, "error": view.error})
    return output.of_status(view.status) if view.status in TERMINAL else output.DONE


async def _print(session: ServerSession, run: str, printer: Printer) -> None:
    async with aclosing(session.client.run(run).events()) as items:
        async for item in items:
            printer.item(item)
            if printer.is_unheard:
                return
