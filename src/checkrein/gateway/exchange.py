"""One request of a program to a model, from its permit to the end of its answer, however often it is interrupted.

It is the source of a `ctx.answer`: each attempt asks upstream, passes on to the client what comes, and yields its text.
An attempt that is stopped has its upstream closed, while the client's response stays open; the next one asks with
what was said so far, and its answer is spliced into the same response. What the client has been sent is known here and
nowhere else, so it is this that decides how to go on, and not what was recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Final, Protocol

import msgspec

from checkrein.calls.answer import Asked, WholeAnswer
from checkrein.core.conditions import Usage
from checkrein.errors import ModelUnavailable
from checkrein.gateway import upstream
from checkrein.gateway.client_stream import ClientStream
from checkrein.gateway.conversations import MainConversation
from checkrein.gateway.frames import Frame, FrameParser
from checkrein.gateway.wires.base import Answered, Body, SeenCall, Wire
from checkrein.gateway.wires.responses import ResponsesSplice
from checkrein.models.base import Collector, Delta, Finish, Finished, TextDelta
from checkrein.models.failures import ErrorInStream
from checkrein.models.http.client import Response
from checkrein.models.http.sse import EventTooLarge
from checkrein.models.wire import Reader
from checkrein.processes import table

_log = logging.getLogger(__name__)

GO_ON: Final = "Your answer was interrupted here. Continue it exactly where it stopped, and repeat nothing of it."
"""What a model is told that is to go on with half an answer."""
SEALED: Final = "The answer was paused while the model was thinking, which cannot be continued. Please ask again."
UNREADABLE: Final = "The answer was paused, and its request cannot be read to ask for the rest. Please ask again."
JOINT: Final = "\n\n"
"""What stands between half an answer and what the model says to a new instruction."""


class Target(msgspec.Struct, frozen=True):
    """Where a request goes on to, and as what."""

    provider: str
    method: str
    url: str
    headers: dict[str, str]
    raw: bytes


class Listener(Protocol):
    """Who is told what answers ask for."""

    def answered(self, exchange: Exchange, calls: tuple[SeenCall, ...]) -> None: ...
    def renamed(self, shown: str, real: str) -> None:
        """An answer that the client knows as `shown` is `real` to the provider."""


class Exchange:
    """`body` is None where it could not be read: then it is passed on, counted and stoppable, but not gone on with."""

    def __init__(
        self,
        wire: Wire,
        target: Target,
        body: Body | None,
        client: ClientStream,
        *,
        main: MainConversation | None,
        listener: Listener,
    ) -> None:
        self.wire = wire
        self.main = main
        """None for a request beside the main conversation."""
        self.has_begun = False
        self.answered_since = 0.0
        """When the last attempt began to be answered, as start times of processes are counted."""
        self._target = target
        self._body = body
        self._client = client
        self._listener = listener
        self._splice = wire.splice()
        self._turns: list[tuple[str, str]] = []
        """Half answers, and what the model was told then, in their order."""
        self._told = ""
        self._response: Response | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """The run is being cancelled: close what is asked for now. That it was stopped is for its call to say, which is
        aborted a moment later."""
        self._is_stopped = True
        if self._response is not None:
            self._response.close()

    def leave(self) -> None:
        """The client is gone: nobody waits for the rest."""
        self._client.leave()
        if self._response is not None:
            self._response.close()

    async def source(self, asked: Asked) -> AsyncIterator[str | WholeAnswer]:
        """One attempt. It ends with what the answer amounts to, also where that is an error: the client knows it."""
        instruction = self._news(asked)
        self.has_begun = True
        if self._client.is_gone:
            self._keep(instruction)
            yield WholeAnswer({"status": 0, "left": True}, Usage())
            return
        way = self._splice.next() if self._client.is_begun else "ask"
        if way == "ask" and self._client.is_begun and self._body is None:
            way = "fail"
        if way != "ask":
            self._keep(instruction)
            await self._without_asking(way)
            yield WholeAnswer({"status": 200, "interrupted": way == "fail"}, Usage())
            return
        body = self._next_body(instruction)
        try:
            self._response = await self._send(body)
        except ModelUnavailable as error:
            await self._problem(502, str(error.message))
            yield WholeAnswer({"status": 502}, Usage())
            return
        self.answered_since = table.now()
        response = self._response
        kind = response.headers.get("content-type", "")
        is_stream = response.status == 200 and kind.startswith("text/event-stream")
        try:
            async for item in self._stream(response) if is_stream else self._read(response):
                yield item
        finally:
            response.close()

    # -- what is asked

    def _news(self, asked: Asked) -> str:
        """What a person has said that this request has not heard yet. What is beside the main one hears nothing."""
        told = asked.instruction or ""
        new = told.removeprefix(self._told).strip() if told.startswith(self._told) else told
        self._told = told
        if self.main is None:
            return new
        said, self.main.unsaid = [*self.main.unsaid, *([new] if new else [])], []
        return "\n\n".join(said)

    def _keep(self, instruction: str) -> None:
        """It could not go with this request: it goes with the next one of the main conversation."""
        if instruction and self.main is not None:
            self.main.unsaid.insert(0, instruction)

    def _next_body(self, instruction: str) -> bytes:
        half = self._splice.segment.strip() and self._splice.segment
        self._splice.begin(JOINT if half and instruction else "")
        if self._body is None:
            self._keep(instruction)
            return self._target.raw
        messages = self.wire.messages(self._body)
        if half or instruction:
            self._turns.append((half, instruction or GO_ON))
        said = messages if self.main is None else self.main.with_said(self.wire, messages)
        if instruction and self.main is not None:
            self.main.say(self.wire, messages, half, instruction)
        if said is messages and not self._turns:
            return self._target.raw
        made = list(said)
        for before, told in self._turns:
            made += [self.wire.assistant(before.rstrip())] if before else []
            made.append(self.wire.user(told))
        return msgspec.json.encode(self.wire.with_messages(self._body, made))

    async def _send(self, body: bytes) -> Response:
        headers = self._target.headers
        if body is not self._target.raw:
            headers = {name: value for name, value in headers.items() if name.lower() != "content-encoding"}
        return await upstream.send(self._target.provider, self._target.method, self._target.url, headers, body)

    # -- what comes

    async def _read(self, response: Response) -> AsyncIterator[str | WholeAnswer]:
        body = await _whole(response)
        if self._is_stopped:
            await asyncio.Event().wait()
        if body is None:
            self._client.cut()
            yield WholeAnswer({"status": response.status, "cut": True}, Usage())
        elif self._client.is_begun:
            await self._problem(response.status, f"{self._target.provider} answered {response.status}.")
            yield WholeAnswer({"status": response.status}, Usage())
        else:
            await self._client.whole(response.status, upstream.answer_headers(response.headers), body)
            for item in self._answered(response.status, body):
                yield item

    def _answered(self, status: int, body: bytes) -> list[str | WholeAnswer]:
        if status != 200:
            return [WholeAnswer({"status": status}, Usage())]
        try:
            answer = self.wire.answered(msgspec.json.decode(body))
        except (msgspec.MsgspecError, LookupError, TypeError, AttributeError, ValueError):
            _log.info("an answer of %s is not understood, and passed on", self._target.provider)
            return [WholeAnswer({"status": status, "unknown": True})]
        return [*([answer.text] if answer.text else []), self._end(answer)]

    async def _stream(self, response: Response) -> AsyncIterator[str | WholeAnswer]:
        parser, reader, collector = FrameParser(), self.wire.reader(), Collector()
        if not self._client.is_begun:
            await self._client.begin(200, upstream.answer_headers(response.headers))
        try:
            while data := await response.read():
                text = await self._pass_on(parser.feed(data), reader, collector)
                if text:
                    yield text
                if reader.is_complete:
                    break
            text = await self._pass_on(parser.end(), reader, collector)
            if text:
                yield text
        except (ModelUnavailable, EventTooLarge) as error:
            _log.info("%s broke off: %s", self._target.provider, error)
        if self._is_stopped:
            await asyncio.Event().wait()  # until it is aborted
        if self._client.is_gone:
            yield WholeAnswer({"status": 200, "left": True})
            return
        if not reader.is_finished:
            self._client.cut()
            yield WholeAnswer({"status": 200, "cut": True})
            return
        # The last event may be all that is missing: the client is not to wait for it.
        await self._client.write(self._splice.end() + (b"" if reader.is_complete else self._splice.close()))
        if reader.is_complete:
            await response.end()
        reply = collector.partial() if collector.finish is None else collector.reply()
        calls = tuple(SeenCall(one.id, one.name, bytes(one.arguments).decode()) for one in reply.message.calls)
        yield self._end(Answered(reply.message.text, calls, None if reply.usage.estimated else reply.usage))

    async def _pass_on(self, frames: list[Frame], reader: Reader, collector: Collector) -> str:
        """Send the client what may be sent of it, and return the text in it."""
        if len(frames) == 1:
            return await self._pass_one_on(frames[0], reader, collector)
        out: list[bytes] = []
        texts: list[str] = []
        for frame in frames:
            deltas = _deltas(reader, frame)
            out.append(self._splice.take(frame, deltas))
            for delta in deltas:
                collector.add(delta)
                if isinstance(delta, TextDelta):
                    texts.append(delta.text)
        await self._client.write(b"".join(out))
        return "".join(texts)

    async def _pass_one_on(self, frame: Frame, reader: Reader, collector: Collector) -> str:
        """The same for a single event, as most of them come: this runs once for every token."""
        deltas = _deltas(reader, frame)
        await self._client.write(self._splice.take(frame, deltas))
        text = ""
        for delta in deltas:
            collector.add(delta)
            if type(delta) is TextDelta:
                text += delta.text
        return text

    def _end(self, answer: Answered) -> WholeAnswer:
        splice = self._splice
        if isinstance(splice, ResponsesSplice) and splice.id != splice.last_id:
            self._listener.renamed(splice.id, splice.last_id)
        self._listener.answered(self, answer.calls)
        value: dict[str, Any] = {"status": 200}
        if answer.calls:
            value["calls"] = [{"name": call.name, "arguments": call.arguments} for call in answer.calls]
        return WholeAnswer(value, answer.usage)

    # -- where nothing is asked

    async def _without_asking(self, way: str) -> None:
        if way == "close":
            await self._client.write(self._splice.close())
        else:
            await self._client.write(self._splice.error(SEALED if self._body is not None else UNREADABLE))

    async def _problem(self, status: int, message: str) -> None:
        if self._client.is_begun:
            await self._client.write(self._splice.error(message))
            return
        body = msgspec.json.encode(self.wire.refusal(status, message))
        await self._client.whole(status, {"content-type": "application/json"}, body)


async def _whole(response: Response) -> bytes | None:
    """All of a response; None where it broke off."""
    parts: list[bytes] = []
    try:
        while data := await response.read():
            parts.append(data)
    except ModelUnavailable:
        return None
    return b"".join(parts)


def _deltas(reader: Reader, frame: Frame) -> list[Delta]:
    """What an event says; nothing where that is not understood."""
    if not frame.data:
        return []
    try:
        return reader.read(frame.data)
    except ErrorInStream:
        reader.is_finished = reader.is_complete = True
        return [Finished(Finish.INTERRUPTED)]
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError):
        return []
