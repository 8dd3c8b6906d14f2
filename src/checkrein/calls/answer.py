"""A model request that somebody else makes, as an execution: any client, any wire, stopped and priced like our own.

Whoever makes it is a *source*: asked with `Asked`, it yields text as it comes and ends with a `WholeAnswer`. To the
rest it is a model like any other (`SourceModel`), so it is closed, redacted, watched, counted and asked again by the
code that does so for ours (`calls.model`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from checkrein.calls import arguments
from checkrein.calls.base import CallResult, Execution, Permit
from checkrein.calls.model import ModelExecution
from checkrein.core.conditions import Usage
from checkrein.core.enums import Outcome
from checkrein.core.events import Json
from checkrein.errors import MisuseError
from checkrein.models import base as models
from checkrein.models.failures import from_client
from checkrein.models.messages import RecordedReply, Request, ToolCall
from checkrein.secrets import Secrets

SaidMessage = dict[str, str]
"""`{"role": "user" | "assistant", "content": …}`, as most providers take it."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a source is asked with, beside what its program knows already."""

    attempt: int = 1
    instruction: str | None = None
    """What a person has told the agent meanwhile: it is to go with this request."""
    partial: str = ""
    """What the attempt before this one had said when it was stopped or broke off."""
    continues: bool = False
    """`partial` is the first half of this very answer: go on with it, or say it anew. Otherwise an instruction came
    after it, and it is one of the `messages`."""
    messages: tuple[SaidMessage, ...] = ()
    """What was said since the program put its request together: halves of answers, and instructions, in their order. To
    be sent after its own messages."""


class WholeAnswer(msgspec.Struct, frozen=True):
    """The end of a source: `value` is what its program gets, and must be something that JSON can hold.

    `usage` is what it has used, as the provider says; without it that is estimated from the text. `calls` are the tools
    that it asks for, where they are to be seen in the record and the history of the run.
    """

    value: Any
    usage: Usage | None = None
    calls: tuple[ToolCall, ...] = ()


Source = Callable[[Asked], AsyncIterator[Any] | Awaitable[WholeAnswer]]
"""Asks, yields text as it comes, and ends with a `WholeAnswer`; or, where nothing streams, just returns one."""


class RecordedAnswer(RecordedReply, frozen=True, omit_defaults=True):
    """What is recorded of an answer: what was said, as of every model, and what its program gets."""

    value: Json = Json(b"null")
    """Without what `message` says already: see `whole_value`."""
    messages: tuple[SaidMessage, ...] = ()
    refers: bool = False
    """Whether there is such a text in `value`: a `{"said": [from, to]}` in its place."""

    def whole_value(self) -> Any:
        """What the program gets."""
        value = msgspec.json.decode(bytes(self.value))
        return _with_texts(value, self.message.text) if self.refers else value


_LEAST_TEXT: Final = 64
"""A shorter text is not worth a reference to it."""


def _without_texts(value: Any, text: str) -> Any:
    """`value` with a reference in place of every longer text that is a part of `text`: an answer is recorded once."""
    if isinstance(value, str) and len(value) >= _LEAST_TEXT:
        at = text.find(value)
        return value if at < 0 else {"said": [at, at + len(value)]}
    if isinstance(value, list):
        return [_without_texts(one, text) for one in value]
    if isinstance(value, dict):
        return {name: _without_texts(one, text) for name, one in value.items()}
    return value


def _with_texts(value: Any, text: str) -> Any:
    if isinstance(value, list):
        return [_with_texts(one, text) for one in value]
    if isinstance(value, dict):
        if value.keys() == {"said"}:
            begin, end = value["said"]
            return text[begin:end]
        return {name: _with_texts(one, text) for name, one in value.items()}
    return value


def _recorded_once(value: bytes, text: str) -> tuple[Json, bool]:
    """A value as it is recorded beside `text`, and whether it refers to that. One that looks as if it did does not."""
    if len(text) < _LEAST_TEXT or b'"said":' in value:
        return Json(value), False
    shorter = msgspec.json.encode(_without_texts(msgspec.json.decode(value), text))
    return (Json(shorter), True) if len(shorter) < len(value) else (Json(value), False)


def user(text: str) -> SaidMessage:
    return {"role": "user", "content": text}


def assistant(text: str) -> SaidMessage:
    return {"role": "assistant", "content": text}


def said_in(result: bytes | None) -> str:
    """What a model had said, as it is recorded of an answer that came to nothing; empty when nothing."""
    if result is None:
        return ""
    try:
        return msgspec.json.decode(result, type=RecordedReply).message.text
    except msgspec.MsgspecError:
        return ""


def asked_for(permit: Permit, said: Sequence[SaidMessage]) -> Asked:
    """What a source is asked with under `permit`, after `said`: what came of earlier calls for the same answer."""
    half = said_in(permit.partial)
    messages, before = list(said), half
    if not half and messages and messages[-1]["role"] == "assistant":
        before = messages[-1]["content"]
    if permit.instruction is not None:
        if permit.delivers and half.strip():
            messages.append(assistant(half.rstrip()))
        messages.append(user(permit.instruction))
    told = [one["content"] for one in messages if one["role"] == "user"]
    return Asked(
        attempt=permit.attempt,
        instruction="\n\n".join(told) or None,
        partial=before,
        continues=bool(half) and not permit.delivers,
        messages=tuple(messages),
    )


class SourceModel:
    """A source as a model that is asked once."""

    def __init__(self, name: str, source: Source, asked: Asked) -> None:
        self.name = name
        self.whole: WholeAnswer | None = None
        self._source = source
        self._asked = asked

    async def stream(self, request: Request) -> AsyncIterator[models.Delta]:
        has_said = False
        made = self._source(self._asked)
        items: AsyncIterator[Any] = _once(made) if isinstance(made, Awaitable) else made
        try:
            async for item in items:
                if type(item) is str and item and self.whole is None:
                    has_said = True
                    yield models.TextDelta(item)
                elif (delta := self._delta(item)) is not None:
                    has_said = has_said or isinstance(delta, models.TextDelta)
                    yield delta
        except Exception as error:
            ours = from_client(self.name, error)
            if ours is None or ours is error:
                raise
            raise ours from error
        finally:
            await models.close(items)
        if self.whole is None:
            raise MisuseError(
                f"The source of an answer of {self.name} ended without `yield WholeAnswer(value, usage)`."
            )
        if not has_said and isinstance(self.whole.value, str) and self.whole.value:
            yield models.TextDelta(self.whole.value)
        if self.whole.usage is not None:
            yield models.UsageDelta(_unpriced(self.whole.usage))
        yield models.Finished(models.Finish.STOP)

    def _delta(self, item: Any) -> models.Delta | None:
        if self.whole is not None:
            raise MisuseError(f"The source of an answer of {self.name} went on after its WholeAnswer.")
        if isinstance(item, str):
            return models.TextDelta(item) if item else None
        if isinstance(item, Usage):
            return models.UsageDelta(_unpriced(item), final=False)
        if isinstance(item, WholeAnswer):
            self.whole = item
            return None
        raise MisuseError(
            f"The source of an answer of {self.name} yielded {type(item).__name__}; it yields text, and at its end a "
            "WholeAnswer(value, usage)."
        )


async def _once(made: Awaitable[Any]) -> AsyncIterator[Any]:
    yield await made


def _unpriced(usage: Usage) -> Usage:
    """A cost of nothing is one that was not said: what tokens cost is looked up."""
    return msgspec.structs.replace(usage, cost_usd=usage.cost_usd or None)


class AnswerExecution(Execution):
    """Reads a source as a model is read, and records what its program gets."""

    def __init__(self, model: SourceModel, asked: Asked, reading: ModelExecution, secrets: Secrets) -> None:
        self._model = model
        self._asked = asked
        self._reading = reading
        self._secrets = secrets

    async def ended(self) -> CallResult:
        ended = await self._reading.ended()
        whole = self._model.whole
        if ended.outcome is not Outcome.COMPLETED or whole is None or ended.result is None:
            return ended
        said = msgspec.json.decode(ended.result, type=RecordedReply)
        try:
            value = self._secrets.json(arguments.encode_result(WholeAnswer, whole.value))
        except arguments.NotJson as error:
            return msgspec.structs.replace(ended, outcome=Outcome.FAILED, error=f"NotJson: {error}")
        calls = tuple(
            ToolCall(call.id, call.name, Json(self._secrets.json(bytes(call.arguments)))) for call in whole.calls
        )
        message = msgspec.structs.replace(said.message, calls=calls)
        once, refers = _recorded_once(value, message.text)
        recorded = RecordedAnswer(
            message, said.model, said.finish, value=once, messages=self._asked.messages, refers=refers
        )
        return msgspec.structs.replace(ended, result=msgspec.json.encode(recorded))

    async def abort(self) -> None:
        await self._reading.abort()
