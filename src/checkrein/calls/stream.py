"""A stream that somebody else makes, as an execution: closed the moment it is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from checkrein import asyncutil
from checkrein.asyncutil import Once
from checkrein.calls import arguments
from checkrein.calls.base import CallResult, Execution
from checkrein.calls.model import Forward, TextTally
from checkrein.core.enums import Outcome
from checkrein.errors import describe
from checkrein.secrets import Secrets
from checkrein.timings import LET_GO_SECONDS

_log = logging.getLogger(__name__)

Stream = AsyncIterator[Any] | Callable[[], AsyncIterator[Any]]


class StreamExecution(Execution):
    """Reads `source` in a task of its own. Nothing is forwarded once it is stopped.

    One that does not end when it is told to is let go (*detached*): whoever makes it may go on.
    """

    def __init__(self, source: Stream, attempt: int, forward: Forward, *, secrets: Secrets) -> None:
        self._source = source
        self._attempt = attempt
        self._shown = TextTally(forward)
        self._secrets = secrets
        self._text = secrets.stream()
        self._items: list[Any] = []
        self._is_stopped = False
        self._is_let_go = False
        self._late = 0
        self._error: BaseException | None = None
        self._over: Once[None] = Once()
        self._task = asyncutil.start(self._read())
        self._task.add_done_callback(lambda _: self._over.set(None))

    async def ended(self) -> CallResult:
        await self._over.get()
        if self._is_let_go:
            error = "It could not be stopped; what it still brings will be dropped."
            return msgspec.structs.replace(self._outcome(Outcome.DETACHED), error=error, left=("the stream",))
        if self._is_stopped or self._task.cancelled():
            return self._outcome(Outcome.ABORTED)
        if self._error is None:
            return self._outcome(Outcome.COMPLETED)
        return self._outcome(Outcome.FAILED, describe(self._error))

    async def abort(self) -> None:
        if not self._over.done():
            self._is_stopped = True
        for _ in range(2):
            if not self._over.done():
                self._task.cancel()
                await asyncio.wait([self._task], timeout=LET_GO_SECONDS / 2)
        if not self._over.done():
            _log.warning("a stream does not end and is let go")
            self._is_let_go = True
            self._over.set(None)
            asyncutil.abandon(self._task)

    async def _read(self) -> None:
        """Read it to its end, or note with what it ended instead: none of that is for the event loop to hear."""
        try:
            stream = self._open()
            try:
                async for item in stream:
                    if self._is_stopped:
                        self._late += 1
                        return
                    self._take(item)
                self._show(self._text.end())
            finally:
                await _close(stream)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and self._task.cancelling():
                raise  # it was told to stop; one that nobody asked for is a failure like any other
            self._error = error

    def _open(self) -> AsyncIterator[Any]:
        if callable(self._source):
            return self._source()
        if self._attempt > 1:
            raise RuntimeError("an iterator can be read only once; give ctx.stream a function that makes it")
        return self._source

    def _take(self, item: Any) -> None:
        if isinstance(item, str) and item:
            self._show(self._text.feed(arguments.recordable(item)))
            return
        if not isinstance(item, str):
            self._show(self._text.end())
        self._items.append(item)

    def _show(self, text: str) -> None:
        if text:
            self._items.append(text)
            self._shown.send(text)

    def _outcome(self, outcome: Outcome, error: str | None = None) -> CallResult:
        is_text = bool(self._items) and all(isinstance(item, str) for item in self._items)
        try:
            result = arguments.encode_result(self._outcome, "".join(self._items) if is_text else self._items)
        except arguments.NotJson as wrong:
            outcome = Outcome.FAILED if outcome is Outcome.COMPLETED else outcome
            result, error = msgspec.json.encode(None), f"NotJson: {wrong}"
        return CallResult(
            outcome=outcome,
            result=self._secrets.json(result),
            error=None if error is None else self._secrets.text(error),
            **self._shown.record(),
            tokens_after_stop=self._late,
        )


async def _close(stream: AsyncIterator[Any]) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        try:
            await close()
        except Exception as error:
            _log.info("a stream did not close in order: %s", describe(error))
