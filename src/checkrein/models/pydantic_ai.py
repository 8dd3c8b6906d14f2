"""Every other provider, through `pydantic_ai.direct`. The extra `checkrein[providers]` brings it.

Slower than the two wires of our own, and how fast it closes is the provider's client's affair; what it can be asked and
how it fails looks the same. Imported only when a model of it is named.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, Final

import msgspec
from pydantic_ai import exceptions
from pydantic_ai import messages as theirs
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from checkrein import errors
from checkrein.core.conditions import Usage
from checkrein.models.base import Delta, Finish, Finished, TextDelta, ThinkingDelta, ToolCallDelta, UsageDelta
from checkrein.models.failures import says_too_long
from checkrein.models.messages import Assistant, Message, Request, ToolResult

_FINISH: Final = {
    "stop": Finish.STOP,
    "length": Finish.LENGTH,
    "content_filter": Finish.FILTERED,
    "tool_call": Finish.TOOL_CALLS,
}


class PydanticAIModel:
    """A model of pydantic-ai: its name there, `google:gemini-2.5-pro`, or the object itself."""

    def __init__(self, model: str | TheirModel) -> None:
        self._asked = model
        self._model: TheirModel | None = None
        try:
            self._model = infer_model(model)
        except (exceptions.UserError, ImportError, ValueError) as error:
            if not _wants_key(error):  # a key may be set later, and a run that lacks one can be mended
                raise errors.UnknownModel(f"pydantic-ai has no model {model!r}: {error}", model=str(model)) from error
        self.name = model if isinstance(model, str) else f"{model.system}:{model.model_name}"

    def __repr__(self) -> str:
        return f"<PydanticAIModel {self.name}>"

    def check_settings(self) -> None:
        """Raise what a request would raise before anything is sent: there is no key."""
        try:
            self._model = self._model or infer_model(self._asked)
        except (exceptions.UserError, ImportError, ValueError) as error:
            raise _ours(error, self.name) from error

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        settings: Any = _settings(request)
        try:
            self._model = self._model or infer_model(self._asked)
            async with model_request_stream(
                self._model,
                list(_messages(request)),
                model_settings=settings,
                model_request_parameters=_parameters(request),
            ) as stream:
                indexes: dict[int, int] = {}
                async for event in stream:
                    for delta in _deltas(event, indexes):
                        yield delta
                usage = stream.usage
                said = usage() if callable(usage) else usage
                yield UsageDelta(
                    Usage(
                        input_tokens=said.input_tokens or 0,
                        output_tokens=said.output_tokens or 0,
                        cost_usd=None,
                        cached_tokens=said.cache_read_tokens or 0,
                        cache_written_tokens=said.cache_write_tokens or 0,
                    )
                )
                yield Finished(_FINISH.get(stream.finish_reason or "", Finish.TOOL_CALLS if indexes else Finish.STOP))
        except (exceptions.AgentRunError, exceptions.UserError) as error:
            raise _ours(error, self.name) from error


# -- asking


def _messages(request: Request) -> Iterator[theirs.ModelMessage]:
    parts: list[Any] = []
    instructions = request.instructions or None
    for message in request.messages:
        if isinstance(message, Assistant):
            if parts:
                yield theirs.ModelRequest(parts=parts, instructions=instructions)
            parts = []
            yield theirs.ModelResponse(parts=list(_response_parts(message)))
        else:
            parts.append(_request_part(message))
    yield theirs.ModelRequest(parts=parts, instructions=instructions)


def _request_part(message: Message) -> Any:
    if isinstance(message, ToolResult):
        return theirs.ToolReturnPart(tool_name=message.name, content=message.content, tool_call_id=message.call)
    return theirs.UserPromptPart(content=message.text)


def _response_parts(message: Assistant) -> Iterator[Any]:
    if message.text:
        yield theirs.TextPart(content=message.text)
    for call in message.calls:
        yield theirs.ToolCallPart(tool_name=call.name, args=bytes(call.arguments).decode(), tool_call_id=call.id)


def _parameters(request: Request) -> ModelRequestParameters:
    tools = [
        ToolDefinition(
            name=tool.name, description=tool.description, parameters_json_schema=msgspec.json.decode(bytes(tool.schema))
        )
        for tool in request.tools
    ]
    if request.output_schema is None:
        return ModelRequestParameters(function_tools=tools)
    schema = msgspec.json.decode(bytes(request.output_schema))
    return ModelRequestParameters(
        function_tools=tools, output_mode="native", output_object=OutputObjectDefinition(json_schema=schema)
    )


def _settings(request: Request) -> dict[str, Any]:
    wanted = request.settings
    extra = {} if wanted.extra is None else msgspec.json.decode(bytes(wanted.extra))
    given = {"max_tokens": wanted.max_tokens, "temperature": wanted.temperature}
    return {name: value for name, value in given.items() if value is not None} | extra


# -- the answer


def _deltas(event: Any, indexes: dict[int, int]) -> Sequence[Delta]:
    """What an event of theirs means. `indexes` numbers the tool calls among all parts of the reply."""
    if isinstance(event, theirs.PartStartEvent):
        return _started(event, indexes)
    if not isinstance(event, theirs.PartDeltaEvent):
        return ()
    delta = event.delta
    if isinstance(delta, theirs.TextPartDelta):
        return (TextDelta(delta.content_delta),) if delta.content_delta else ()
    if isinstance(delta, theirs.ThinkingPartDelta):
        return (ThinkingDelta(delta.content_delta or "", delta.signature_delta or ""),)
    if isinstance(delta, theirs.ToolCallPartDelta):
        number = indexes.setdefault(event.index, len(indexes))
        return (
            ToolCallDelta(
                number,
                id=delta.tool_call_id or "",
                name=delta.tool_name_delta or "",
                arguments=_arguments(delta.args_delta),
            ),
        )
    return ()


def _started(event: theirs.PartStartEvent, indexes: dict[int, int]) -> Sequence[Delta]:
    part = event.part
    if isinstance(part, theirs.TextPart):
        return (TextDelta(part.content),) if part.content else ()
    if isinstance(part, theirs.ThinkingPart):
        return (ThinkingDelta(part.content, part.signature or ""),)
    if isinstance(part, theirs.ToolCallPart):
        number = indexes.setdefault(event.index, len(indexes))
        return (ToolCallDelta(number, id=part.tool_call_id, name=part.tool_name, arguments=_arguments(part.args)),)
    return ()


def _arguments(args: Any) -> str:
    if args is None:
        return ""
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()


# -- failures


_BY_STATUS: Final[dict[int, type[errors.ModelError]]] = {
    401: errors.ModelUnauthorised,
    403: errors.ModelUnauthorised,
    404: errors.ModelNotFound,
    429: errors.ModelRateLimited,
}


def _wants_key(error: Exception) -> bool:
    """Whether all that is wrong is a key that is not set."""
    return isinstance(error, exceptions.UserError) and "environment variable" in str(error)


def _ours(error: Exception, model: str) -> errors.ModelError:
    """The same failure in our words."""
    status = getattr(error, "status_code", None)
    sentence = f"{model}: {error}"
    if isinstance(status, int):
        kind = _BY_STATUS.get(status, errors.ModelUnavailable if status >= 500 else errors.ModelRefusedRequest)
        if kind is errors.ModelRefusedRequest and (status == 413 or says_too_long(sentence)):
            kind = errors.ModelContextExceeded
        return kind(sentence, may_retry=status == 429 or status >= 500, status=status)
    if isinstance(error, exceptions.UserError):
        return errors.ModelUnauthorised(sentence) if _wants_key(error) else errors.ModelRefusedRequest(sentence)
    return errors.ModelUnavailable(sentence, may_retry=True)
