"""The real `google-genai` client against the provider: what it parses, what it raises. It is the judge of the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from checkrein.testing.provider import Fault, Provider, Reply, Usage, by_turn
from tests.support.lazy import lazy_module

if TYPE_CHECKING:
    from google import genai
else:
    genai = lazy_module("google.genai")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession"),  # of the library itself
]

MODEL = "gemini-2.5-flash"
REPLY = Reply("I will look.", thinking="hm hm", calls=[("search", {"q": "Kühe"})], usage=Usage(100, 20, reasoning=2))


def client(provider: Provider, **options: Any) -> Any:
    given = {"api_key": provider.key, **options}
    return genai.Client(http_options=genai.types.HttpOptions(base_url=provider.gemini_url), **given).aio


async def test_a_whole_answer_has_its_parts_and_its_usage():
    async with Provider(REPLY) as provider, client(provider) as gemini:
        answer = await gemini.models.generate_content(model=MODEL, contents="Hello?")

    thought, text, call = answer.candidates[0].content.parts
    assert (thought.text, thought.thought, text.text) == ("hm hm", True, "I will look.")
    assert call.function_call.args == {"q": "Kühe"}
    assert answer.candidates[0].finish_reason is genai.types.FinishReason.STOP
    used = answer.usage_metadata
    assert (used.prompt_token_count, used.candidates_token_count, used.thoughts_token_count) == (100, 18, 2)


async def test_a_stream_adds_up_to_the_same_answer():
    async with Provider(REPLY) as provider, client(provider) as gemini:
        chunks = [chunk async for chunk in await gemini.models.generate_content_stream(model=MODEL, contents="Hello?")]

    parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
    assert "".join(part.text for part in parts if part.text and not part.thought) == "I will look."
    assert [part.function_call.name for part in parts if part.function_call] == ["search"]
    assert chunks[-1].candidates[0].finish_reason is genai.types.FinishReason.STOP
    assert provider.log[0].tokens_sent > 4


async def test_tokens_are_counted_without_asking_a_model():
    async with Provider("Fine.") as provider, client(provider) as gemini:
        assert (await gemini.models.count_tokens(model=MODEL, contents="Hello?")).total_tokens > 0

        assert provider.log == []


@pytest.mark.parametrize(("status", "raised"), [(429, "ClientError"), (503, "ServerError")])
async def test_an_error_is_raised(status, raised):
    async with Provider(Reply(fault=Fault(status=status))) as provider, client(provider) as gemini:
        with pytest.raises(getattr(genai.errors, raised)) as caught:
            await gemini.models.generate_content(model=MODEL, contents="Hello?")

    assert caught.value.code == status


async def test_what_gemini_refuses_is_refused():
    call = genai.types.Content(role="model", parts=[genai.types.Part.from_function_call(name="search", args={})])
    async with Provider("Fine.") as provider, client(provider) as gemini, client(provider, api_key="other") as other:
        with pytest.raises(genai.errors.ClientError, match="API key not valid"):
            await other.models.generate_content(model=MODEL, contents="Hello?")
        with pytest.raises(genai.errors.ClientError, match="not found"):
            await gemini.models.generate_content(model="no-such-model", contents="Hello?")
        with pytest.raises(genai.errors.ClientError, match="number of function response parts"):
            await gemini.models.generate_content(model=MODEL, contents=[call])


async def test_a_turn_is_told_by_the_messages_of_the_model():
    said = [
        genai.types.Content(role=role, parts=[genai.types.Part.from_text(text="x")])
        for role in ("user", "model", "user")
    ]
    async with Provider(by_turn(["first", "second"])) as provider, client(provider) as gemini:
        assert (await gemini.models.generate_content(model=MODEL, contents="Hi")).text == "first"
        assert (await gemini.models.generate_content(model=MODEL, contents=said)).text == "second"
