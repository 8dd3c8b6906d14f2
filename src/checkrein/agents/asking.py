"""A model call as a performance: it streams, it can be closed at any moment, and what came by then is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from checkrein.agents.redacting import RedactedReply, redacted_request
from checkrein.agents.retrying import Retries
from checkrein.agents.showing import Forward, Shown
from checkrein.agents.watchers.contract import Fed, Flag
from checkrein.agents.watchers.several import SeveralWatchers
from checkrein.core.conditions import Usage
from checkrein.core.words import Outcome
from checkrein.models.history import GO_ON
from checkrein.models.messages import Assistant, Message, Note, Request
from checkrein.models.port import Collector, Delta, Model, Reply, TextDelta, ThinkingDelta, close
from checkrein.models.prices import cost_of
from checkrein.runtime.once import Once
from checkrein.runtime.secrets import Secrets
from checkrein.runtime.spec import Ended
from checkrein.runtime.values import recordable

LET_GO_SECONDS: Final = 3.0
"""How long a stream may take to end once it is stopped. It is told again half-way, and then let go."""


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is recorded of a model's answer."""

    message: Assistant
    model: str
    finish: str = "stop"


class ModelPerformance:
    """Asks `model` in a task of its own. Nothing is forwarded once it is stopped.

    A stream that does not end when it is told to is let go (*detached*): the provider may go on.
    """

    def __init__(
        self,
        model: Model,
        request: Request,
        forward: Forward,
        *,
        secrets: Secrets,
        watchers: SeveralWatchers | None = None,
        on_flags: Callable[[Sequence[Flag]], None] | None = None,
        retries: Retries | None = None,
        begun: str = "",
    ) -> None:
        """`begun` is what the model had said when it was paused: it is asked to go on there, and the rest is added."""
        self._model = model
        if begun:
            request = msgspec.structs.replace(request, messages=(*request.messages, *_go_on(begun)))
        self._request = redacted_request(secrets, request)
        self._retries = retries
        self._begun = begun
        self._shown = Shown(forward)
        self._watchers = watchers
        self._on_flags = on_flags
        self._secrets = secrets
        self._redacted = RedactedReply(secrets)
        self._collector = Collector(self._request)
        self._is_stopped = False
        self._late_chunks = 0
        self._is_let_go = False
        self._over: Once[None] = Once()
        self._task = asyncio.get_running_loop().create_task(self._read())
        self._task.add_done_callback(lambda _: self._over.set(None))

    async def ended(self) -> Ended:
        await self._over.get()
        error: BaseException | None = None
        if not self._is_let_go and not self._task.cancelled():
            error = self._task.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        return self._outcome(error)

    async def abort(self) -> None:
        self._is_stopped = True
        for _ in range(2):
            if not self._over.done():
                self._task.cancel()
                await asyncio.wait([self._task], timeout=LET_GO_SECONDS / 2)
        if not self._task.done() and not self._is_let_go:
            self._is_let_go = True
            self._over.set(None)
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
            # asyncio.run() waits for every task it knows, and this one may never end.
            asyncio._unregister_task(self._task)
            self._task._log_destroy_pending = False  # type: ignore[attr-defined]

    async def hold(self) -> bool:
        return False

    async def go_on(self) -> None:
        return None

    async def _read(self) -> Reply:
        if self._begun:
            self._show(self._begun)
        stream = self._model.stream(self._request)
        try:
            async for piece in stream:
                delta = _recordable(piece)
                if self._is_stopped:
                    # It has swallowed the cancellation. We are reading it, so we are the ones who can close it.
                    self._late_chunks += 1
                    raise asyncio.CancelledError
                for clean in self._redacted.feed(delta):
                    self._collector.add(clean)
                    if isinstance(clean, TextDelta) and clean.text:
                        self._show(clean.text)
        finally:
            with suppress(Exception):
                await close(stream)
        if self._watchers is not None:
            self._pass_on(self._watchers.end())
        return self._collector.reply()

    def _show(self, text: str) -> None:
        if self._watchers is None:
            self._shown.send(text)
        else:
            self._pass_on(self._watchers.feed(text))

    def _pass_on(self, fed: Fed) -> None:
        if fed.forward:
            self._shown.send(fed.forward)
        if fed.flag is not None and self._on_flags is not None:
            self._on_flags([fed.flag])

    def _outcome(self, error: BaseException | None) -> Ended:
        is_whole = error is None and not self._is_let_go and not self._task.cancelled()
        for delta in self._redacted.calls():
            self._collector.add(delta)
        reply = self._task.result() if is_whole else self._collector.partial()
        withheld = self._watchers.withheld if self._watchers is not None else ""
        message = reply.message
        if self._begun:
            # Its thinking follows half a message and a word to go on. The history shows neither, so it cannot go back.
            message = msgspec.structs.replace(message, text=self._begun + message.text, signature="")
        if withheld:
            message = msgspec.structs.replace(message, text=message.text[: len(message.text) - len(withheld)])
        if message.signature and not self._redacted.keeps_thinking:
            message = msgspec.structs.replace(message, signature="")
        outcome = Outcome.COMPLETED if is_whole else Outcome.ABORTED if error is None else Outcome.FAILED
        if self._is_let_go:
            outcome = Outcome.DETACHED
        retry = None
        if error is not None and self._retries is not None and not self._is_stopped:
            retry = self._retries.after(error)
        return Ended(
            outcome=outcome,
            result=msgspec.json.encode(Told(message, self._model.name, reply.finish)),
            error=None if error is None else self._secrets.text(describe(error)),
            usage=self._priced(reply.usage),
            **self._shown.record(),
            tokens_after_stop=self._late_chunks,
            retry_seconds=retry,
        )

    def _priced(self, usage: Usage) -> Usage:
        if usage.cost_usd is not None:
            return usage
        return msgspec.structs.replace(usage, cost_usd=cost_of(self._model.name, usage))


def _recordable(delta: Delta) -> Delta:
    """What a model says can be anything; half a character is not something that a journal can hold."""
    if isinstance(delta, TextDelta | ThinkingDelta) and not delta.text.isascii():
        return msgspec.structs.replace(delta, text=recordable(delta.text))
    return delta


def _go_on(begun: str) -> tuple[Message, ...]:
    return (Assistant(begun, interrupted=True), Note(GO_ON))


def describe(error: BaseException) -> str:
    """An error as it is recorded: its code where it has one, and its sentence."""
    code = getattr(error, "code", type(error).__name__)
    return f"{code}: {error}"
