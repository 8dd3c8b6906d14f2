"""Models of pydantic-ai behind our port: asked, streamed, stopped, and failing in our words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="the extra `providers` is not installed")

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from checkrein import Agent, Runtime, tool
from checkrein.core.enums import Status
from checkrein.errors import ModelRateLimited, ModelUnauthorised, UnknownModel
from checkrein.models import Assistant, Finish, Request, ToolSpec, User, as_json, collect
from checkrein.models.pydantic_ai import PydanticAIModel
from tests.support.witness import until

pytestmark = pytest.mark.anyio


def asking(*messages: Any) -> Request:
    schema = as_json({"type": "object", "properties": {"n": {"type": "integer"}}})
    return Request("Be brief.", messages or (User("Hello?"),), tools=(ToolSpec("count", "Counts.", schema),))


async def test_text_comes_piece_by_piece_with_usage_and_an_end() -> None:
    async def say(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for word in ("one ", "two"):
            yield word

    model = PydanticAIModel(FunctionModel(stream_function=say, model_name="says"))

    reply = await collect(model.stream(asking()))

    assert reply.message == Assistant("one two")
    assert reply.finish is Finish.STOP
    assert reply.usage.cost_usd is None, "unknown, and not 0"


async def test_tool_calls_come_whole_and_their_results_go_back() -> None:
    seen: list[list[ModelMessage]] = []

    async def ask(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[dict[int, DeltaToolCall]]:
        seen.append(messages)
        yield {0: DeltaToolCall(name="count", json_args='{"n":', tool_call_id="c1")}
        yield {0: DeltaToolCall(json_args=" 3}")}

    model = PydanticAIModel(FunctionModel(stream_function=ask, model_name="asks"))

    reply = await collect(model.stream(asking()))

    (call,) = reply.message.calls
    assert (call.id, call.name, bytes(call.arguments)) == ("c1", "count", b'{"n":3}')
    assert reply.finish is Finish.TOOL_CALLS


async def test_a_whole_agent_runs_on_it(tmp_path: Path) -> None:
    @tool(effect="none")
    async def count(n: int) -> int:
        """Count."""
        return n + 1

    async def play(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        last = messages[-1]
        assert not isinstance(last, ModelResponse)
        done = [part for part in last.parts if isinstance(part, ToolReturnPart)]
        if done:
            yield f"It is {done[0].content}."
        else:
            assert any(isinstance(part, UserPromptPart) for part in last.parts)
            yield {0: DeltaToolCall(name="count", json_args='{"n": 3}', tool_call_id="c1")}

    agent = Agent("a", model=PydanticAIModel(FunctionModel(stream_function=play, model_name="plays")), tools=[count])

    async with Runtime(f"sqlite:///{tmp_path}/runs.db") as runtime:
        assert await (await runtime.start(agent, "Count.")).result() == "It is 4."


async def test_a_stop_reaches_its_stream(tmp_path: Path) -> None:
    """D2 D12"""
    said: list[str] = []
    closed: list[bool] = []

    async def talk(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        try:
            while True:
                await asyncio.sleep(0.02)
                said.append("word ")
                yield "word "
        finally:
            closed.append(True)

    agent = Agent("a", model=PydanticAIModel(FunctionModel(stream_function=talk, model_name="talks")))

    async with Runtime(f"sqlite:///{tmp_path}/runs.db") as runtime:
        run = await runtime.start(agent, "Talk.")
        await until(lambda: len(said) > 3)
        await run.cancel()
        by_then = len(said)
        await asyncio.sleep(0.2)

        assert (await run.state()).status is Status.CANCELLED
        assert closed == [True]
        assert len(said) == by_then


@pytest.mark.parametrize(("status", "kind"), [(401, ModelUnauthorised), (429, ModelRateLimited)])
async def test_its_failures_are_told_in_our_words(status: int, kind: type[Exception]) -> None:
    async def fail(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        raise ModelHTTPError(status_code=status, model_name="x", body={"message": "no"})
        yield ""

    model = PydanticAIModel(FunctionModel(stream_function=fail, model_name="fails"))

    with pytest.raises(kind):
        await collect(model.stream(asking()))


def test_a_name_it_does_not_know_is_refused_with_a_sentence() -> None:
    with pytest.raises(UnknownModel, match="pydantic-ai"):
        PydanticAIModel("nobody:nothing")


async def test_a_key_that_is_not_set_is_something_to_mend_and_no_unknown_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = PydanticAIModel("openai:gpt-5")

    with pytest.raises(ModelUnauthorised, match="OPENAI_API_KEY"):
        await collect(model.stream(asking()))
