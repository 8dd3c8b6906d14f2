"""Half an answer that goes on: which servers can be asked for it, and how it looks on each wire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from checkrein.models import Assistant, Request, Settings, User, as_json, collect
from checkrein.models.anthropic.model import AnthropicModel
from checkrein.models.anthropic.request import Bodies as AnthropicBodies
from checkrein.models.base import can_continue
from checkrein.models.openai import OpenAIModel
from checkrein.models.registry import resolve
from tests.models.sockets import END, HEAD, chunk, listening, request

pytestmark = pytest.mark.anyio

ASKED = Request("", (User("Tell me a story."),))
HALF = Request("", (User("Tell me a story."), Assistant("She stood", interrupted=True)), continues=True)


class Engine:
    """A server that says who it is, and keeps what it was asked for."""

    def __init__(self, owner: str, status: int = 200) -> None:
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self._models = json.dumps({"data": [{"id": "small", "object": "model", "owned_by": owner}]}).encode()
        self._status = status

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, body = await request(reader)
            self.asked.append(head.split(b" HTTP/")[0].decode())
            if head.startswith(b"GET"):
                kind = b"content-type: application/json\r\n"
                length = b"content-length: %d\r\n\r\n" % len(self._models)
                writer.write(b"HTTP/1.1 %d OK\r\n" % self._status + kind + length + self._models)
                continue
            self.bodies.append(json.loads(body))
            said = {"choices": [{"index": 0, "delta": {"content": " by the sea."}, "finish_reason": "stop"}]}
            writer.write(HEAD + chunk(b"data: " + json.dumps(said).encode() + b"\n\ndata: [DONE]\n\n") + END)


@asynccontextmanager
async def served(engine: Engine, **options: Any) -> AsyncGenerator[OpenAIModel, None]:
    async with listening(engine) as address:
        yield OpenAIModel("small", provider="acme", api_key="", base_url=f"http://{address}/v1", **options)


@pytest.mark.parametrize(
    ("owner", "continues"),
    [("llamacpp", True), ("vllm", True), ("sglang", True), ("openai", False), ("organization_owner", False)],
)
async def test_the_engine_behind_an_address_says_whether_it_goes_on(owner: str, continues: bool) -> None:
    """C2: what nobody knows of a server is not believed of it. It is asked once."""
    engine = Engine(owner)
    async with served(engine) as model:
        assert await can_continue(model, ASKED) is continues
        assert await can_continue(model, ASKED) is continues

    assert engine.asked == ["GET /v1/models"]


@pytest.mark.parametrize("status", [401, 404, 500])
async def test_a_server_that_does_not_say_who_it_is_cannot_go_on(status: int) -> None:
    async with served(Engine("llamacpp", status)) as model:
        assert not await can_continue(model, ASKED)


async def test_an_author_knows_better() -> None:
    engine = Engine("openai")
    async with served(engine, continues=True) as model:
        assert await can_continue(model, ASKED)
    async with served(engine, continues=False) as model:
        assert not await can_continue(model, ASKED)

    assert engine.asked == []


async def test_the_half_answer_is_the_last_message_without_a_word_after_it() -> None:
    """C2: as llama.cpp, Ollama, vLLM and SGLang take it."""
    engine = Engine("llamacpp")
    async with served(engine) as model:
        reply = await collect(model.stream(HALF))

    assert reply.message.text == " by the sea."
    (body,) = engine.bodies
    assert body["messages"][-1] == {"role": "assistant", "content": "She stood"}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


async def test_openai_and_routers_are_not_asked_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    assert not await can_continue(resolve("openai:gpt-5"), ASKED)
    assert not await can_continue(resolve("openrouter:openai/gpt-5"), ASKED)
    assert await can_continue(resolve("ollama:llama3"), ASKED)


async def test_a_typed_answer_is_asked_for_from_its_beginning() -> None:
    typed = msgspec.structs.replace(ASKED, output_schema=as_json({"type": "object"}))

    assert not await can_continue(resolve("ollama:llama3"), typed)
    assert not await can_continue(AnthropicModel("claude-sonnet-4-5"), typed)


@pytest.mark.parametrize(
    ("name", "continues"),
    [
        ("claude-3-5-haiku-latest", True),
        ("claude-sonnet-4-5", True),
        ("claude-opus-4-6", False),
        ("claude-opus-5-5", False),
        ("kimi-k2", False),
    ],
)
async def test_older_models_of_anthropic_go_on_and_newer_ones_refuse(name: str, continues: bool) -> None:
    model = AnthropicModel(name)

    assert await can_continue(model, ASKED) is continues
    thinks = msgspec.structs.replace(ASKED, settings=Settings(reasoning="low"))
    assert not await can_continue(model, thinks)


def test_on_the_anthropic_wire_too_nothing_follows_the_half_answer() -> None:
    body = msgspec.json.decode(AnthropicBodies("claude-sonnet-4-5", max_tokens=100).make(HALF).data)

    assert body["messages"][-1] == {"role": "assistant", "content": [{"type": "text", "text": "She stood"}]}
