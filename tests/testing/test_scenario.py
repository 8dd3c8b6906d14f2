"""Which reply a request gets, and which faults a reply still has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from checkrein.errors import MisuseError
from checkrein.testing.provider import Fault, Provider, Reply, Request, by_turn
from checkrein.testing.provider.scenario import argument_tokens, tokens_of
from tests.support.lazy import lazy_module

if TYPE_CHECKING:
    import openai as sdk
else:
    sdk = lazy_module("openai")

pytestmark = pytest.mark.anyio

USER = {"role": "user", "content": "go on"}
DONE = {"role": "assistant", "content": "done"}


async def says(client: Any, *messages: Any, **more: Any) -> str | None:
    answer = await client.chat.completions.create(model="gpt-5", messages=messages or [USER], **more)
    text: str | None = answer.choices[0].message.content
    return text


async def test_replies_come_in_the_order_of_requests_and_the_last_is_repeated(openai):
    async with Provider([Reply("one"), "two", Reply("three")]) as provider:
        client = openai(provider)

        assert [await says(client) for _ in range(5)] == ["one", "two", "three", "three", "three"]


async def test_one_reply_is_a_scenario(openai):
    async with Provider(Reply("always")) as provider:
        assert await says(openai(provider)) == "always"


async def test_a_request_that_is_refused_uses_up_no_reply(openai):
    async with Provider(["one", "two"]) as provider:
        client = openai(provider)
        with pytest.raises(Exception, match="does not exist"):
            await client.chat.completions.create(model="no-such-model", messages=[USER])

        assert await says(client) == "one"


async def test_a_fault_without_a_number_of_times_uses_up_its_reply(openai):
    async with Provider([Reply("never", fault=Fault(status=500)), "next"]) as provider:
        client = openai(provider)
        with pytest.raises(Exception, match="500"):
            await says(client)

        assert await says(client) == "next"


async def test_a_fault_with_a_number_of_times_keeps_its_reply_for_afterwards(openai):
    async with Provider([Reply("late", fault=Fault(status=500, times=2)), "next"]) as provider:
        client = openai(provider)
        for _ in range(2):
            with pytest.raises(Exception, match="500"):
                await says(client)

        assert [await says(client), await says(client)] == ["late", "next"]
        assert [request.fault for request in provider.log] == ["status", "status", "", ""]


async def test_two_replies_that_look_the_same_fail_each_for_itself(openai):
    flaky = [Reply("late", fault=Fault(status=429, retry_after=0.01, times=1)) for _ in range(2)]
    async with Provider(flaky) as provider:
        client = openai(provider, max_retries=1)

        assert [await says(client), await says(client)] == ["late", "late"]
        assert len(provider.log) == 4


async def test_by_turn_the_history_alone_tells_the_reply(openai):
    async with Provider(by_turn(["first", Reply("second"), "third"])) as provider:
        client = openai(provider)

        assert await says(client, USER, DONE, USER) == "second"
        assert await says(client, USER) == "first"
        assert await says(client, USER, DONE, USER, DONE, USER, DONE, USER) == "third"


async def test_a_function_chooses_by_the_request(openai):
    def choose(request: Request) -> Reply | str:
        return "again" if "again" in request.messages[-1]["content"] else Reply(f"{request.wire} {request.model}")

    async with Provider(choose) as provider:
        client = openai(provider)

        assert await says(client) == "openai gpt-5"
        assert await says(client, {"role": "user", "content": "once again"}) == "again"


async def test_an_async_function_answers_when_it_likes(openai):
    ready = asyncio.Event()

    async def choose(request: Request) -> Reply:
        await ready.wait()
        return Reply("ready")

    async with Provider(choose) as provider:
        asked = asyncio.create_task(says(openai(provider)))
        await provider.until(lambda log: log)
        assert provider.log[0].how == ""

        ready.set()

        assert await asked == "ready"


async def test_a_client_that_leaves_while_a_function_thinks_is_noticed(openai):
    left = asyncio.Event()

    async def choose(request: Request) -> Reply:
        try:
            await asyncio.sleep(60)
        finally:
            left.set()
        return Reply()

    async with Provider(choose) as provider:
        asked = asyncio.create_task(says(openai(provider)))
        await provider.until(lambda log: log)
        asked.cancel()
        await provider.until(lambda log: log[0].how == "disconnected")
        await left.wait()


@pytest.mark.parametrize("later", [False, True])
async def test_a_function_that_fails_is_heard_of_on_both_sides(openai, later: bool):
    def fails(request: Request) -> Reply:
        raise LookupError("no such scene")

    async def fails_later(request: Request) -> Reply:
        return fails(request)

    with pytest.raises(LookupError, match="no such scene"):
        async with Provider(fails_later if later else fails) as provider:
            with pytest.raises(sdk.InternalServerError, match="no such scene"):
                await says(openai(provider))


async def test_the_scenario_can_be_changed_and_the_log_cleared(openai):
    async with Provider("one") as provider:
        client = openai(provider)
        await says(client)

        provider.play("two")
        provider.clear()

        assert await says(client) == "two"
        assert [request.number for request in provider.log] == [1]


def test_a_scenario_has_something_to_say():
    with pytest.raises(MisuseError, match="at least one Reply"):
        Provider([])


@pytest.mark.parametrize(
    ("fields", "kind", "after"),
    [
        ({"status": 500}, "status", None),
        ({"cut_after_tokens": 0}, "cut", 0),
        ({"stall_after_tokens": 5}, "stall", 5),
        ({"stall_before_end": True}, "stall_before_end", None),
        ({"malformed_after_tokens": 1}, "malformed", 1),
        ({"oversized_after_tokens": 1}, "oversized", 1),
        ({"error_after_tokens": 1, "status": 500}, "error", 1),
        ({"never_answers": True}, "never_answers", None),
    ],
)
def test_a_fault_is_of_one_kind(fields: dict[str, Any], kind: str, after: int | None):
    assert (Fault(**fields).kind, Fault(**fields).after) == (kind, after)


@pytest.mark.parametrize("fields", [{}, {"times": 1}, {"status": 500, "cut_after_tokens": 1}])
def test_a_fault_of_no_kind_or_of_two_is_refused(fields: dict[str, Any]):
    with pytest.raises(MisuseError, match="A Fault is of one kind"):
        Fault(**fields)


def test_a_scenario_survives_json():
    replies = [
        Reply("Hello.", thinking=["h", "m"], calls=[("search", {"q": 1})], tokens_per_second=20, first_byte_after=0.5),
        Reply(["a", "b"], fault=Fault(status=429, retry_after=2, times=1), usage=False),
    ]

    again = msgspec.json.decode(msgspec.json.encode(replies), type=list[Reply])

    assert [msgspec.to_builtins(reply) for reply in again] == [msgspec.to_builtins(reply) for reply in replies]


@pytest.mark.parametrize("text", ["", " ", "one", " one  two\n", "a\n\n b", "統計 ü"])
def test_tokens_joined_are_the_text(text: str):
    assert "".join(tokens_of(text)) == text
    assert "".join(argument_tokens(text)) == text


def test_a_list_of_strings_is_taken_as_the_tokens_themselves():
    assert tokens_of(["a b", "c"]) == ["a b", "c"]
