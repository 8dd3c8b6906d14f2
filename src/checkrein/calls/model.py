"""A model call as an execution: it streams, it can be closed at any moment, and what came by then is kept.

Whatever a model does, the call has an outcome: what it raises, of whatever kind, is the failure of that call and of
nothing else. An answer that was cut off or filtered is none, so it fails too, with what came kept to be looked at.

An answer that was stopped half-way goes on exactly there where the model can do that (`Request.continues`). Where it
cannot, it is asked anew, and what it says then takes the place of the half answer: two texts are never joined.

When a model is asked again by itself: failures that may pass, a few times, at growing intervals; an answer that was cut
off by a limit on its length, at once and with more room.

Text that is shown while a call goes on: handed on piece by piece, counted, and hashed for the record.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from checkrein.asyncutil import Once, abandon
from checkrein.calls.arguments import recordable
from checkrein.calls.base import CallResult, Execution
from checkrein.core.commands import KeptText
from checkrein.core.conditions import Usage
from checkrein.core.enums import CallKind, Outcome
from checkrein.core.events import CallStarted
from checkrein.core.state import LiveCall
from checkrein.errors import (
    CheckreinError,
    ModelContextExceeded,
    ModelCut,
    ModelFiltered,
    ModelRefusedRequest,
    ModelUnauthorised,
    ModelUnavailable,
    UnknownModel,
    describe,
)
from checkrein.journal.base import Journal, stream_of
from checkrein.journal.chunks import TextAssembler
from checkrein.models import base as models
from checkrein.models.failures import Retries
from checkrein.models.messages import Assistant, RecordedReply, Request
from checkrein.models.prices import cost_of
from checkrein.models.redaction import RedactedReply, redacted_request
from checkrein.secrets import Secrets
from checkrein.timings import LET_GO_SECONDS
from checkrein.watchers.base import Fed, Flag, SeveralWatchers

_log = logging.getLogger(__name__)

LARGEST_LIMIT_SENT: Final = 16_384
"""What is left of a cap is sent as a limit only up to here: above it many a model refuses a request for it."""
LEAST_BEGUN: Final = 8
"""Half an answer with fewer characters is not worth going on with."""
SAME_BEGINNING: Final = 24
"""A model that is to go on and says so many characters of its half answer's beginning has begun again instead."""


Forward = Callable[[int, str], None]
"""Told each piece of text that may be shown, with its offset."""


MOST_MARKS: Final = 128
"""How many moments are recorded of one text: of a longer one every second is left out, as often as it takes."""
FLUSH_SECONDS: Final = 0.05
"""What is shown within so long is one flush."""


class TextTally:
    """What has been shown of one call, and when."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self._texts: list[str] = []
        """All of it: that is hashed once, at the end, because a hash of each token would cost more than to show it."""
        self.chars = 0
        self._began_at: float | None = None
        self._began = self._last = self._flush_until = 0.0
        self._flush_seconds = FLUSH_SECONDS
        self._marks: list[tuple[float, int]] = []
        """By then so many characters had been shown: each the end of a flush. The flush under way is not among them."""

    def send(self, text: str) -> None:
        self._forward(self.chars, text)
        now = time.monotonic()
        if now >= self._flush_until:
            self._end_flush(now)
        self._last = now
        self._texts.append(text)
        self.chars += len(text)

    def _end_flush(self, now: float) -> None:
        if self._began_at is None:
            self._began_at, self._began = time.time(), now
        else:
            self._marks.append((self._last, self.chars))
        self._flush_until = now + self._flush_seconds
        if len(self._marks) >= MOST_MARKS:
            self._marks = self._marks[1::2]  # each says what was shown by then, so to leave one out makes none wrong
            self._flush_seconds *= 2

    def record(self) -> dict[str, Any]:
        """The fields of a `CallResult` that tell of it."""
        body = "".join(self._texts).encode("utf-8", "surrogatepass")
        return {
            "chunks": len(self._texts),
            "chars": self.chars,
            "chunk_hash": hashlib.sha256(body).hexdigest() if self._texts else "",
            "shown_at": self._began_at,
            "shown": self._flushes(),
        }

    def _flushes(self) -> tuple[tuple[int, int], ...]:
        ends = [*self._marks, (self._last, self.chars)] if self._texts else []
        return tuple((round((at - self._began) * 1000), chars) for at, chars in ends)


class _Joint:
    """Where the rest of an answer meets its half: nothing is joined before it is clear that it is the rest.

    A model that begins anew instead gives its own beginning away.
    """

    def __init__(self, begun: str) -> None:
        self.begun = begun
        self._beginning = begun.lstrip()[:SAME_BEGINNING]
        self._held = ""
        self.is_decided = False
        self.is_anew = False

    def feed(self, text: str) -> str:
        """What of it may be shown now: nothing, until it is known whether the half answer is a part of it."""
        if self.is_decided:
            return text
        self._held += text
        said = self._held.lstrip()
        if said.startswith(self._beginning):
            self.is_decided = self.is_anew = True
        elif said and not self._beginning.startswith(said):
            self.is_decided = True
        return self._held if self.is_decided else ""

    def end(self) -> str:
        """The answer is over. One that ended so soon did not begin anew: its half was longer."""
        if self.is_decided:
            return ""
        self.is_decided = True
        return self._held

    def whole(self, said: str) -> str:
        """The answer of which `said` was said now. Of what could be either nothing is taken."""
        if not self.is_decided:
            return self.begun
        return said if self.is_anew else self.begun + said


class ModelExecution(Execution):
    """Asks `model` in a task of its own. Nothing is forwarded once it is stopped.

    A stream that does not end when it is told to is let go (*detached*): the provider may go on.
    """

    def __init__(
        self,
        model: models.Model,
        request: Request,
        forward: Forward,
        *,
        secrets: Secrets,
        watchers: SeveralWatchers | None = None,
        on_flag: Callable[[Flag, str], None] | None = None,
        retries: Retries | None = None,
        begun: str = "",
        most_tokens: int | None = None,
    ) -> None:
        """`begun` is what the model had said when it was stopped: where it can it goes on there.

        `on_flag` is told of a flag, and of the text that was withheld with it. `most_tokens` is what the caps of the
        run leave for the whole request, read and written: an answer is closed when it has had that. Without `retries`
        an answer that was cut off is taken as it is.
        """
        self._model = model
        self._request = redacted_request(secrets, request)
        self._retries = retries
        self._begun = begun.rstrip()  # a model writes a blank together with the word that follows it
        self._most_tokens = most_tokens
        self._shown = TextTally(forward)
        self._watchers = watchers
        self._on_flag = on_flag
        self._secrets = secrets
        self._redacted = RedactedReply(secrets)
        self._collector = models.Collector(self._request)
        self._joint: _Joint | None = None
        self._read_tokens = 0
        self._written_bytes = 0
        self._limit_sent: int | None = None
        self._limit_of_cap: int | None = None
        self._has_said = False
        self._is_stopped = False
        self._late_chunks = 0
        self._is_let_go = False
        self._reply: models.Reply | None = None
        self._error: BaseException | None = None
        self._over: Once[None] = Once()
        self._task = asyncio.get_running_loop().create_task(self._read())
        self._task.add_done_callback(lambda _: self._over.set(None))

    async def ended(self) -> CallResult:
        await self._over.get()
        error = self._error
        if self._task.done() and self._task.cancelled() and not self._is_stopped:
            error = asyncio.CancelledError("it has cancelled itself")
        try:
            return self._outcome(error)
        except Exception as unfit:
            # What it said cannot be recorded. That it failed can.
            _log.warning("what a model said cannot be recorded: %s", describe(unfit))
            return CallResult(outcome=Outcome.FAILED, error=self._secrets.text(failure_of(error or unfit)))

    async def abort(self) -> None:
        self._is_stopped = True
        for _ in range(2):
            if not self._over.done():
                self._task.cancel()
                await asyncio.wait([self._task], timeout=LET_GO_SECONDS / 2)
        if not self._task.done() and not self._is_let_go:
            self._is_let_go = True
            self._over.set(None)
            abandon(self._task)

    async def _read(self) -> None:
        """Ask, and keep what comes of it. Raises nothing but the cancellation that somebody has asked for.

        What is raised out of a task is the event loop's affair if it is a `SystemExit`, and a model must not end that.
        """
        task = asyncio.current_task()
        try:
            self._reply = await self._ask()
        except asyncio.CancelledError as error:
            if self._is_stopped or (task is not None and task.cancelling()):
                raise
            self._error = error
        except BaseException as error:
            if self._is_stopped:
                _log.info("a model that was stopped has failed: %s", describe(error))
            else:
                self._error = error

    # -- asking

    async def _ask(self) -> models.Reply:
        request = self._limited(self._request)
        if len(self._begun) >= LEAST_BEGUN and await models.can_continue(self._model, request):
            half = Assistant(self._begun, interrupted=True)
            rest = msgspec.structs.replace(request, messages=(*request.messages, half), continues=True)
            self._joint = _Joint(self._begun)
            try:
                return await self._answer(rest)
            except (ModelRefusedRequest, ModelUnavailable) as error:
                if self._has_said or self._is_stopped or error.status is None:
                    raise
                _log.info("a model does not go on with half an answer, and is asked anew: %s", error)
        self._joint = None
        try:
            return await self._answer(request)
        except ModelRefusedRequest as refused:
            enlarged = self._retries is not None and self._retries.room is not None
            if self._limit_sent is None or refused.status is None or self._has_said or self._is_stopped:
                raise
            if enlarged:
                sentence = f"The answer was cut off, and more room for it is refused: {refused.message}"
                raise ModelCut(sentence, may_retry=False) from refused
            if self._request.settings.max_tokens is not None:
                raise
            # What is left of a cap was more than this model takes as a limit. It is watched all the same.
            _log.info("a model refuses a limit of %d tokens, and is asked without: %s", self._limit_sent, refused)
            return await self._answer(self._request)

    def _limited(self, request: Request) -> Request:
        """`request` with a limit on its answer: what was given, or what the caps leave if that is less."""
        limit = request.settings.max_tokens
        if self._retries is not None and self._retries.room is not None:
            limit = self._retries.room
        if self._most_tokens is not None:
            left = max(1, self._most_tokens - models.estimate_tokens(request))
            if left < limit if limit is not None else left <= LARGEST_LIMIT_SENT:
                limit = self._limit_of_cap = left
        if limit == request.settings.max_tokens:
            return request
        self._limit_sent = limit
        return msgspec.structs.replace(request, settings=msgspec.structs.replace(request.settings, max_tokens=limit))

    async def _answer(self, request: Request) -> models.Reply:
        self._collector = models.Collector(request)
        self._redacted = RedactedReply(self._secrets)
        self._read_tokens, self._written_bytes = models.estimate_tokens(request), 0
        stream = self._model.stream(request)
        is_capped = False
        try:
            async for piece in stream:
                delta = piece if type(piece) is models.TextDelta and piece.text.isascii() else _recordable(piece)
                if self._is_stopped:
                    # It has swallowed the cancellation. We are reading it, so we are the ones who can close it.
                    self._late_chunks += 1
                    raise asyncio.CancelledError
                for clean in self._redacted.feed(delta):
                    self._collector.add(clean)
                    if isinstance(clean, models.TextDelta) and clean.text:
                        self._has_said = True
                        self._show(clean.text)
                if self._most_tokens is not None and self._is_used_up(delta):
                    is_capped = True
                    break
        finally:
            await self._close(stream)
        if self._joint is not None:
            self._show_joined(self._joint, self._joint.end)
        if self._watchers is not None:
            self._pass_on(self._watchers.end())
        return self._judged(request, is_capped=is_capped)

    async def _close(self, stream: AsyncIterator[models.Delta]) -> None:
        try:
            await models.close(stream)
        except asyncio.CancelledError:
            if self._is_stopped:
                raise
            _log.info("a model's stream has cancelled itself while it was closed")
        except BaseException as error:
            _log.info("a model's stream did not close in order: %s", describe(error))

    def _is_used_up(self, delta: models.Delta) -> bool:
        """Whether the answer has had, with `delta`, all that the caps leave. Estimated, as what is not said must be."""
        if isinstance(delta, models.TextDelta | models.ThinkingDelta):
            self._written_bytes += len(delta.text.encode("utf-8", "replace"))
        elif isinstance(delta, models.ToolCallDelta):
            self._written_bytes += len(delta.name) + len(delta.arguments.encode("utf-8", "replace"))
        elif isinstance(delta, models.UsageDelta):
            self._read_tokens = delta.usage.input_tokens or self._read_tokens
            return False
        else:
            return False
        written = self._written_bytes // models.BYTES_PER_TOKEN
        return self._most_tokens is not None and self._read_tokens + written >= self._most_tokens

    def _judged(self, request: Request, *, is_capped: bool) -> models.Reply:
        """The answer, if it is one. Raises `ModelCut` and `ModelFiltered` where it was cut off."""
        if is_capped:
            raise self._cut(request, by_cap=True)
        reply = self._collector.reply()
        if self._retries is None or reply.finish not in (models.Finish.LENGTH, models.Finish.FILTERED):
            return reply
        if reply.finish is models.Finish.LENGTH:
            limit, usage = request.settings.max_tokens, reply.usage
            if limit is not None and not usage.estimated and 0 < usage.output_tokens < limit:
                # It had room, so what it has read and said fills all that it can hold: more room would not help.
                who = self._model.name
                raise ModelContextExceeded(f"The answer of {who} was cut off before its limit: it can hold no more.")
            raise self._cut(request, by_cap=limit is not None and limit == self._limit_of_cap)
        raise ModelFiltered(f"The answer of {self._model.name} was cut off, or refused, by its provider's own rules.")

    def _cut(self, request: Request, *, by_cap: bool) -> ModelCut:
        written = self._collector.usage().output_tokens
        limit = request.settings.max_tokens or written
        what = "what the caps of the run leave it" if by_cap else f"a limit of {limit} tokens"
        return ModelCut(f"The answer of {self._model.name} was cut off by {what}.", limit=limit, by_cap=by_cap)

    # -- showing

    def _show(self, text: str) -> None:
        if self._joint is None:
            self._forward(text)
        else:
            self._show_joined(self._joint, partial(self._joint.feed, text))

    def _show_joined(self, joint: _Joint, said: Callable[[], str]) -> None:
        """Show what is `said`, after the half answer as soon as it is known to be a part of it."""
        was_decided, text = joint.is_decided, said()
        if joint.is_decided and not was_decided and not joint.is_anew:
            # A person has seen it and said *go on*: what watchers think of it is no reason to stop again.
            self._shown.send(joint.begun)
        if text:
            self._forward(text)

    def _forward(self, text: str) -> None:
        if self._watchers is None:
            self._shown.send(text)
        else:
            self._pass_on(self._watchers.feed(text))

    def _pass_on(self, fed: Fed) -> None:
        if fed.forward:
            self._shown.send(fed.forward)
        if fed.flag is not None and self._on_flag is not None:
            withheld = "" if self._watchers is None or fed.flag.withheld_from is None else self._watchers.withheld
            self._on_flag(fed.flag, withheld)

    # -- how it ended

    def _outcome(self, error: BaseException | None) -> CallResult:
        is_whole = self._reply is not None and not self._is_let_go
        for delta in self._redacted.calls():
            self._collector.add(delta)
        reply = self._reply if self._reply is not None and is_whole else self._collector.partial()
        message = self._message(reply.message)
        outcome = Outcome.COMPLETED if is_whole else Outcome.ABORTED if error is None else Outcome.FAILED
        if self._is_let_go:
            outcome = Outcome.DETACHED
        retry = None
        if error is not None and self._retries is not None and not self._is_stopped:
            retry = self._retries.after(error)
        return CallResult(
            outcome=outcome,
            result=msgspec.json.encode(RecordedReply(message, self._model.name, reply.finish)),
            error=None if error is None else self._secrets.text(failure_of(error)),
            unasked=isinstance(error, ModelUnauthorised | UnknownModel),
            usage=self._priced(reply.usage),
            **self._shown.record(),
            tokens_after_stop=self._late_chunks,
            retry_seconds=retry,
        )

    def _message(self, message: Assistant) -> Assistant:
        """What was said, as it is recorded: with the half answer that it goes on from, without what was withheld."""
        withheld = self._watchers.withheld if self._watchers is not None else ""
        if self._joint is not None:
            # Its thinking follows half a message that the history does not show, so it cannot go back.
            message = msgspec.structs.replace(message, text=self._joint.whole(message.text), signature="")
        if withheld:
            message = msgspec.structs.replace(message, text=message.text[: len(message.text) - len(withheld)])
        if message.signature and not self._redacted.keeps_thinking:
            message = msgspec.structs.replace(message, signature="")
        return message

    def _priced(self, usage: Usage) -> Usage:
        if usage.cost_usd is not None:
            return usage
        return msgspec.structs.replace(usage, cost_usd=cost_of(self._model.name, usage))


def _recordable(delta: models.Delta) -> models.Delta:
    """What a model says can be anything; half a character is not something that a journal can hold."""
    if isinstance(delta, models.TextDelta | models.ThinkingDelta) and not delta.text.isascii():
        return msgspec.structs.replace(delta, text=recordable(delta.text))
    return delta


def failure_of(error: BaseException) -> str:
    """An error as it is recorded: by its code where it is one of ours, by its class else."""
    return f"{error.code}: {error}" if isinstance(error, CheckreinError) else describe(error)


async def kept_texts(journal: Journal, run: str, live: Mapping[str, LiveCall]) -> dict[str, KeptText]:
    """What is left of the answers that were coming in when the process that asked for them died, by call.

    Only what was shown and kept by then is known of them, and what they have used is estimated from that.
    """
    to_models = {call for call, one in live.items() if one.kind in (CallKind.MODEL, CallKind.ASK)}
    if not to_models:
        return {}
    asked = {
        record.event.call: record.event
        for record in await journal.read(run)
        if isinstance(record.event, CallStarted) and record.event.call in to_models
    }
    kept: dict[str, KeptText] = {}
    for call, started in asked.items():
        texts, stream = TextAssembler(), stream_of(call, started.attempt)
        for chunk in await journal.chunks(run, stream):
            texts.add(chunk)
        read = _tokens_read(started)
        if read is not None:
            kept[call] = _kept(texts.text(stream), started, read)
    return kept


def _kept(text: str, started: CallStarted, input_tokens: int) -> KeptText:
    usage = Usage(input_tokens=input_tokens, output_tokens=models.tokens_in(text), estimated=True)
    said = RecordedReply(Assistant(text, interrupted=True), started.name, models.Finish.INTERRUPTED)
    return KeptText(
        result=msgspec.Raw(msgspec.json.encode(said)) if started.kind is CallKind.MODEL else None,
        chars=len(text),
        usage=msgspec.structs.replace(usage, cost_usd=cost_of(started.name, usage)),
    )


def _tokens_read(started: CallStarted) -> int | None:
    """How much a model was given to read, as far as the record of its call tells; None for a stream of a program."""
    asked = None if started.arguments is None else msgspec.json.decode(bytes(started.arguments))
    if started.kind is CallKind.ASK:
        return 0
    if not isinstance(asked, dict) or not asked.keys() & {"messages", "tokens"}:
        return None
    tokens = asked.get("tokens")
    return tokens if isinstance(tokens, int) else models.tokens_of(len(bytes(started.arguments or b"")))
