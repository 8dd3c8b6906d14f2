"""A stream that somebody else makes, as a performance: closed the moment it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import msgspec

from checkrein.agents.showing import Forward, Shown
from checkrein.core.words import Outcome
from checkrein.runtime import values
from checkrein.runtime.secrets import Secrets
from checkrein.runtime.spec import Ended

Stream = AsyncIterator[Any] | Callable[[], AsyncIterator[Any]]


class StreamPerformance:
    """Reads `source` in a task of its own. Nothing is forwarded once it is stopped."""

    def __init__(self, source: Stream, attempt: int, forward: Forward, *, secrets: Secrets) -> None:
        self._source = source
        self._attempt = attempt
        self._shown = Shown(forward)
        self._secrets = secrets
        self._text = secrets.stream()
        self._items: list[Any] = []
        self._is_stopped = False
        self._late = 0
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def ended(self) -> Ended:
        await asyncio.wait([self._task])
        if self._task.cancelled() or self._is_stopped:
            return self._outcome(Outcome.ABORTED)
        error = self._task.exception()
        if error is None:
            return self._outcome(Outcome.COMPLETED)
        if not isinstance(error, Exception):
            raise error
        return self._outcome(Outcome.FAILED, f"{type(error).__name__}: {error}")

    async def abort(self) -> None:
        if not self._task.done():
            self._is_stopped = True
            self._task.cancel()
            await asyncio.wait([self._task])

    async def hold(self) -> bool:
        return False

    async def go_on(self) -> None:
        return None

    async def _read(self) -> None:
        stream = self._open()
        try:
            async for item in stream:
                if self._is_stopped:
                    self._late += 1
                    return
                self._take(item)
            self._show(self._text.end())
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                with suppress(Exception):
                    await close()

    def _open(self) -> AsyncIterator[Any]:
        if callable(self._source):
            return self._source()
        if self._attempt > 1:
            raise RuntimeError("an iterator can be read only once; give ctx.stream a function that makes it")
        return self._source

    def _take(self, item: Any) -> None:
        if isinstance(item, str) and item:
            self._show(self._text.feed(values.recordable(item)))
            return
        if not isinstance(item, str):
            self._show(self._text.end())
        self._items.append(item)

    def _show(self, text: str) -> None:
        if text:
            self._items.append(text)
            self._shown.send(text)

    def _outcome(self, outcome: Outcome, error: str | None = None) -> Ended:
        is_text = bool(self._items) and all(isinstance(item, str) for item in self._items)
        try:
            result = values.encode_result(self._outcome, "".join(self._items) if is_text else self._items)
        except values.NotJson as wrong:
            outcome = Outcome.FAILED if outcome is Outcome.COMPLETED else outcome
            result, error = msgspec.json.encode(None), f"NotJson: {wrong}"
        return Ended(
            outcome=outcome,
            result=self._secrets.json(result),
            error=None if error is None else self._secrets.text(error),
            **self._shown.record(),
            tokens_after_stop=self._late,
        )
