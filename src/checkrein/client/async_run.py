"""A handle on one run of a server: look at it, follow it, wait for its result, and every verb."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from checkrein.client import streams
from checkrein.client.streams import Item
from checkrein.client.transport import Request, get, path_of
from checkrein.control.verb_requests import Settling
from checkrein.control.view import CallView, RunView
from checkrein.core.enums import TERMINAL, Answer, Status, Undo, When
from checkrein.core.events import RunFinished
from checkrein.core.receipts import Receipt
from checkrein.core.state import Waiting
from checkrein.core.wording import ENDED
from checkrein.errors import Refused, RunFailed
from checkrein.journal.base import Recorded

if TYPE_CHECKING:
    from checkrein.client.async_client import AsyncClient

_log = logging.getLogger(__name__)


OnWaiting = Callable[[Waiting], None]


class AsyncRunHandle:
    """A handle on one run of a server. Letting it go changes nothing: the run goes on."""

    def __init__(self, client: AsyncClient, run: str) -> None:
        self._client = client
        self.id = run

    def __repr__(self) -> str:
        return f"<AsyncRunHandle {self.id}>"

    # -- what it looks like

    async def view(self) -> RunView:
        """The run as it looks now."""
        return await self._client.ask(get("api", "runs", self.id), RunView)

    async def call(self, call: str) -> CallView:
        """One call, whole."""
        path = path_of("api", "runs", self.id, "calls", call)
        return await self._client.ask(Request(method="GET", path=path), CallView)

    async def file(self, call: str, number: int) -> bytes:
        """A file that a call has published; `number` counts from 0, in `files` of the call."""
        path = path_of("api", "runs", self.id, "calls", call, "files", str(number))
        return await self._client.read(Request(method="GET", path=path))

    async def evidence(self, *, withheld: bool = False) -> bytes:
        """The bundle of the run, for `checkrein verify`. `withheld`: also what was kept back, for operators."""
        return await self._client.read(self._with_withheld("evidence", withheld))

    async def story(self, *, withheld: bool = False) -> str:
        """The story of its stops as a page, the `story.html` of the bundle."""
        return (await self._client.read(self._with_withheld("story", withheld))).decode()

    def _with_withheld(self, what: str, withheld: bool) -> Request:
        query = (("withheld", "true"),) if withheld else ()
        return Request(method="GET", path=path_of("api", "runs", self.id, what), query=query)

    async def fork(self, *, at: int, instruction: str | None = None) -> AsyncRunHandle:
        """A new run that goes on after the finished step `at` of this one, as `Run.fork` has it.

        It is sent again only if nothing of it was taken, as `start` is.
        """
        wanted = {"at": at} if instruction is None else {"at": at, "instruction": instruction}
        path = path_of("api", "runs", self.id, "fork")
        request = Request(method="POST", path=path, body=msgspec.json.encode(wanted), may_repeat=False)
        return self._client.run((await self._client.ask(request, RunView)).id)

    def events(self, *, after: int = 0) -> AsyncGenerator[Item, None]:
        """Every event above `after` and each new one, with the text of calls in flight in between.

        A `Recorded` is an event, a `Chunk` a piece of text. Each comes once and in its place, across lost connections
        and restarts of the server. Ends when nothing more will come by itself. Raises `ServerUnavailable` when the
        server stays away for longer than the client's `away_seconds`. `hash` of a record is empty unless it was read
        from the beginning.
        """
        return streams.events(self._client.transport, self.id, after=after, away_seconds=self._client.away_seconds)

    def live(self) -> AsyncGenerator[RunView, None]:
        """The run as it looks, again whenever that has changed, until it has finished.

        Calls are in brief, with the text of those in flight: what they were given and what they brought, `call` tells.
        """
        return streams.live(self._client.transport, self.id, away_seconds=self._client.away_seconds)

    async def result(self, *, timeout: float | None = None, on_waiting: OnWaiting | None = None) -> Any:
        """Wait for the end and return the result. Raises `RunFailed` if there is none, `TimeoutError` when it is late.

        While the run waits for a person this waits too. It says on stderr what for, or tells `on_waiting`.
        """
        async with asyncio.timeout(timeout):
            return await self._result(on_waiting or self._say)

    async def _result(self, tell: OnWaiting) -> Any:
        view = await self.view()
        told: tuple[Waiting, ...] = ()
        if view.status not in TERMINAL:
            async with aclosing(self.events(after=view.seq)) as items:
                for one in view.waiting:
                    tell(one)
                told = view.waiting
                async for item in items:
                    if not isinstance(item, Recorded):
                        continue
                    if isinstance(item.event, RunFinished):
                        break
                    view = await self._told_of(item, view, told, tell)
                    told = view.waiting if view.seq >= item.seq else told
            view = await self.view()
        if view.status is Status.COMPLETED:
            return view.result
        message = f"Run {self.id} has no result: it {ENDED.get(view.status, view.status)}."
        raise RunFailed(f"{message} {view.error or ''}".rstrip(), run=self.id, status=view.status, error=view.error)

    async def _told_of(self, record: Recorded, view: RunView, told: tuple[Waiting, ...], tell: OnWaiting) -> RunView:
        """The run after an event that may have it wait for a person; what it waits for is told once."""
        if view.seq >= record.seq or not streams.may_begin_to_wait(record.event):
            return view
        view = await self.view()
        for one in view.waiting:
            if one not in told:
                _log.warning("run %s waits for a person: %s", self.id, one.what, extra={"run": self.id})
                tell(one)
        return view

    def _say(self, waiting: Waiting) -> None:
        told = f"Run {self.id} waits for you: {waiting.what}. {waiting.remedy}".rstrip()
        print(f"{told} ({self._client.page(self.id)})", file=sys.stderr, flush=True)

    # -- verbs: what each takes and does is told in `core.verb_specs`
    #
    # Each carries an id, yours or a new one, by which the server knows a repeat: to send it again, which happens by
    # itself when a connection is lost, does nothing twice and brings the same answer.

    async def pause(self, *, reason: str = "", request_id: str = "", wait: float = 5.0) -> Receipt | Settling:
        return await self._receipt("pause", reason=reason, request_id=request_id, wait=wait)

    async def resume(
        self,
        instruction: str | None = None,
        *,
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = 5.0,
    ) -> Receipt | Settling:
        return await self._receipt(
            "resume",
            instruction=instruction,
            reason=reason,
            request_id=request_id,
            expected_seq=expected_seq,
            wait=wait,
        )

    async def redirect(
        self,
        instruction: str,
        *,
        when: When | str = When.NOW,
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = 5.0,
    ) -> Receipt | Settling:
        return await self._receipt(
            "redirect",
            instruction=instruction,
            when=When(when),
            reason=reason,
            request_id=request_id,
            expected_seq=expected_seq,
            wait=wait,
        )

    async def cancel(
        self, *, undo: Undo | str = Undo.OPEN, reason: str = "", request_id: str = "", wait: float = 60.0
    ) -> Receipt | Settling:
        return await self._receipt("cancel", undo=Undo(undo), reason=reason, request_id=request_id, wait=wait)

    async def ask(
        self,
        question: str,
        *,
        reason: str = "",
        request_id: str = "",
        expected_seq: int | None = None,
        wait: float = 60.0,
    ) -> str:
        """The answer. Raises `Refused` when there is none by then."""
        receipt = await self._receipt(
            "ask", question=question, reason=reason, request_id=request_id, expected_seq=expected_seq, wait=wait
        )
        if isinstance(receipt, Receipt) and receipt.answer is not None:
            return receipt.answer
        why = f"it still waits for {receipt.waiting_for}" if isinstance(receipt, Settling) else "nobody gave one"
        raise Refused(f"The question to run {self.id} got no answer: {why}.", code="no_answer", run=self.id)

    async def add_reason(self, reason: str, *, note: str = "", request_id: str = "") -> None:
        """Say why it was stopped, also afterwards."""
        await self._client.verb("add_reason", self.id, reason=reason, note=note, request_id=request_id)

    async def approve(
        self,
        call: str,
        *,
        note: str = "",
        fingerprint: str = "",
        arguments: dict[str, Any] | None = None,
        always: bool = False,
        request_id: str = "",
    ) -> CallView:
        """Let it be made: as it was shown (`fingerprint`), with other `arguments`, and perhaps `always` in this run."""
        return await self._decided(
            "approve",
            call,
            note=note,
            fingerprint=fingerprint,
            arguments=arguments,
            always=always,
            request_id=request_id,
        )

    async def deny(self, call: str, *, note: str = "", request_id: str = "") -> CallView:
        return await self._decided("deny", call, note=note, request_id=request_id)

    async def resolve(
        self, call: str, answer: Answer | str, *, result: Any = None, note: str = "", request_id: str = ""
    ) -> CallView:
        return await self._decided(
            "resolve", call, answer=Answer(answer), result=result, note=note, request_id=request_id
        )

    async def abort(
        self, call: str, *, reason: str = "", request_id: str = "", wait: float = 5.0
    ) -> Receipt | Settling:
        return await self._receipt("abort", call, reason=reason, request_id=request_id, wait=wait)

    async def retry_undo(self, effect: str, *, request_id: str = "") -> CallView:
        return await self._decided("retry_undo", effect, request_id=request_id)

    async def check(self, call: str, *, request_id: str = "") -> CallView:
        """Have the tool of a call in doubt asked once more whether it happened."""
        return await self._decided("check", call, request_id=request_id)

    async def _receipt(self, name: str, *call: str, **values: Any) -> Receipt | Settling:
        answer = await self._client.verb(name, self.id, *call, **values)
        assert isinstance(answer, Receipt | Settling)
        return answer

    async def _decided(self, name: str, *call: str, **values: Any) -> CallView:
        answer = await self._client.verb(name, self.id, *call, **values)
        assert isinstance(answer, CallView)
        return answer
