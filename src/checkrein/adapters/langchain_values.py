"""What LangChain has, as ours: its models, messages, answers and tools."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, message_to_dict
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel

from checkrein.adapters.bridge import AdaptedTool, Rules
from checkrein.calls.answer import SaidMessage, WholeAnswer
from checkrein.core.conditions import Usage
from checkrein.core.events import Json
from checkrein.models.messages import ToolCall


class Tokens(AsyncCallbackHandler):
    """Hears the text of an answer as it comes, and ends whoever asks for it when nobody reads it any more.

    Whoever asks may miss that it was cancelled: `asyncio.wait_for` of Python 3.11, by which `langchain-openai` waits
    for each piece, forgets a cancellation that comes together with one. So it is told again, whenever a piece shows
    that it reads on and whenever the reader is told again, and the reader does not end before it.
    """

    def __init__(self) -> None:
        self._heard: asyncio.Queue[str | None] = asyncio.Queue()
        self._unread: asyncio.Future[Any] | None = None
        """Whoever asks, although nobody reads it any more."""

    async def on_llm_new_token(self, token: Any, **_: Any) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self._heard.put_nowait(token if isinstance(token, str) else "")

    async def read(self, ask: Coroutine[Any, Any, Any]) -> AsyncGenerator[Any]:
        """What is heard while `ask` is done, and what it comes to. A reader that is gone has ended it."""
        asking = asyncio.ensure_future(ask)
        asking.add_done_callback(lambda _: self._heard.put_nowait(None))
        try:
            while (token := await self._heard.get()) is not None:
                if token:
                    yield token
            yield whole(await asking)
        finally:
            await self._end(asking)

    async def _end(self, asking: asyncio.Future[Any]) -> None:
        self._unread = asking
        told_again: asyncio.CancelledError | None = None
        asking.cancel()
        while not asking.done():
            try:
                await asyncio.wait([asking])
            except asyncio.CancelledError as error:
                told_again = error
                asking.cancel()
        if told_again is not None:
            raise told_again


def heard(model: BaseChatModel, tokens: Tokens) -> BaseChatModel:
    """A copy of the model whose text is heard as it comes."""
    before = model.callbacks if isinstance(model.callbacks, list) else []
    changes: dict[str, Any] = {"callbacks": [*before, tokens]}
    changes |= {field: True for field in ("streaming", "stream_usage") if field in type(model).model_fields}
    return model.model_copy(update=changes)


def name_of(model: BaseChatModel) -> str:
    named = getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__
    return f"{model.get_lc_namespace()[-1]}:{named}"


def theirs_of(said: Sequence[SaidMessage]) -> list[BaseMessage]:
    return [AIMessage(one["content"]) if one["role"] == "assistant" else HumanMessage(one["content"]) for one in said]


def _usage(said: AIMessage) -> Usage | None:
    used = said.usage_metadata
    if used is None:
        return None
    cached = (used.get("input_token_details") or {}).get("cache_read") or 0
    return Usage(input_tokens=used["input_tokens"], output_tokens=used["output_tokens"], cached_tokens=cached)


def result_of_state(state: Any) -> Any:
    structured = state.get("structured_response")
    if structured is not None:
        return plain(structured)
    said = [one for one in state.get("messages", ()) if isinstance(one, AIMessage)]
    return str(said[-1].text) if said else ""


def plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def adapted(tool: BaseTool, rules: Mapping[str, Rules]) -> AdaptedTool:
    said = rules.get(tool.name, Rules())
    if not isinstance(tool, StructuredTool):
        return AdaptedTool(tool.ainvoke, tool.name, said, why_here="only its class knows how it is called")
    if tool.coroutine is not None or tool.func is None:
        return AdaptedTool(tool.coroutine or tool.ainvoke, tool.name, said)
    injected = set(inspect.signature(tool.func).parameters) - set(tool.tool_call_schema.model_fields)  # type: ignore[union-attr]
    why = f"it takes {', '.join(sorted(injected))} of the framework" if injected else ""
    if tool.response_format != "content":
        why = "it gives an artifact beside its result"
    return AdaptedTool(_in_its_module(tool.func), tool.name, said, why_here=why)


def _in_its_module(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a worker process finds it: where it was decorated, its name is the tool's, which has it."""
    found = getattr(sys.modules.get(function.__module__), function.__qualname__, None)
    if found is function or getattr(found, "func", None) is not function:
        return function

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    called.__qualname__ = f"{function.__qualname__}.func"
    return called


def whole(response: Any) -> WholeAnswer:
    response = getattr(response, "model_response", response)
    messages = [response] if isinstance(response, BaseMessage) else list(response.result)
    structured = getattr(response, "structured_response", None)
    value = {"messages": [message_to_dict(one) for one in messages], "structured": plain(structured)}
    (said,) = [one for one in messages if isinstance(one, AIMessage)][-1:] or [AIMessage("")]
    calls = tuple(
        ToolCall(one["id"] or "", one["name"], Json(text_of(one["args"]).encode())) for one in said.tool_calls
    )
    return WholeAnswer(value, _usage(said), calls)


def is_message(recorded: Any) -> bool:
    """Whether this is what a tool has returned as the message that its framework made of it."""
    return isinstance(recorded, dict) and recorded.keys() == {"type", "data"} and recorded["type"] == "tool"


def returned_of(message: Mapping[str, Any], function: Callable[..., Any] | None) -> Any:
    """What a tool has returned, as far as its message has it: LangChain writes as JSON what is no text."""
    content, artifact = message["content"], message.get("artifact")
    says = inspect.get_annotations(inspect.unwrap(function)).get("return") if function is not None else None
    if isinstance(content, str) and says not in (str, "str") and message.get("status") != "error":
        with suppress(ValueError):
            content = json.loads(content)
    return content if artifact is None else [content, artifact]
