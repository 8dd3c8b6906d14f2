"""Requests on the Anthropic wire, judged by the types of the real client and by the rules of the provider."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from checkrein.errors import MisuseError
from checkrein.models import Assistant, Note, Request, Settings, ToolCall, ToolResult, ToolSpec, User, as_json, repair
from checkrein.models.anthropic.request import GO_ON, VERSION, VERSION_WITH_SAMPLING, Bodies
from checkrein.models.anthropic.thoughts import BUDGETS, SEALED, Thought, generation_of, packed
from checkrein.testing.provider.anthropic import signature_of
from checkrein.testing.provider.anthropic_rules import refuse_messages
from tests.models.strategies import FATES, HISTORIES, MESSAGES

NEW, OLD = "claude-opus-5-5", "claude-haiku-4-5"
SEARCH = ToolSpec("search", "Finds.", as_json({"type": "object", "properties": {"q": {"type": "string"}}}))


@cache
def known() -> TypeAdapter[Any]:
    """What the real client takes for a request; it takes seconds to import."""
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    return TypeAdapter(MessageCreateParamsStreaming)


def plain(value):
    """What the client's types made of a body; they check lists only while they are read."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return value if isinstance(value, str | int | float | None) else [plain(one) for one in value]


def body_of(request, model=NEW, **options):
    """The body, after the provider has looked at its messages and the real client at all of it."""
    body = msgspec.json.decode(Bodies(model, max_tokens=32_000).make(request, **options).data)
    refuse_messages(body)
    assert plain(known().validate_python(body)) == body, "it has a field that the client does not know"
    return body


def ask(*messages, tools=(), instructions="", schema=None, **settings):
    return Request(instructions, messages, tools=tools, output_schema=schema, settings=Settings(**settings))


def blocks_of(*messages, **options):
    """The roles and blocks of a request that consists of `messages`."""
    body = body_of(ask(*messages), **options)
    return [(turn["role"], turn["content"]) for turn in body["messages"]]


def text(said):
    return {"type": "text", "text": said}


def call(id, name="search", **arguments):
    return ToolCall(id, name, as_json(arguments))


def use(id, name="search", **arguments):
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


# -- what is said


def test_messages_of_one_role_in_a_row_are_one_turn():
    said = blocks_of(User("Go."), Note("Quietly."), Assistant("Going."), User("Faster."), Note("Now."))

    assert said == [
        ("user", [text("Go."), text("Quietly.")]),
        ("assistant", [text("Going.")]),
        ("user", [text("Faster."), text("Now.")]),
    ]


def test_a_tool_call_and_its_result_are_blocks_with_the_same_id():
    said = blocks_of(
        User("Go."),
        Assistant("Looking.", calls=(call("a", q="Kühe"), call("b"))),
        ToolResult("a", "search", "none"),
        ToolResult("b", "search", "no", is_error=True),
        Note("Go on."),
    )

    assert said[1:] == [
        ("assistant", [text("Looking."), use("a", q="Kühe"), use("b")]),
        (
            "user",
            [
                {"type": "tool_result", "tool_use_id": "a", "content": "none"},
                {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
                text("Go on."),
            ],
        ),
    ]


def test_a_result_without_a_word_has_no_content():
    said = blocks_of(User("Go."), Assistant("", calls=(call("a"),)), ToolResult("a", "search", ""))

    assert said[-1] == ("user", [{"type": "tool_result", "tool_use_id": "a"}])


def test_the_user_has_the_last_word():
    assert blocks_of(User("Go."), Assistant("Half a "))[-1] == ("user", [text(GO_ON)])


def test_half_an_answer_is_given_back_between_turns_of_the_user():
    """D23: the way in which a paused answer is continued, blanks at its end included."""
    said = blocks_of(User("Count."), Assistant("one two ", interrupted=True), Note("Go on exactly there."))

    assert said[1:] == [("assistant", [text("one two ")]), ("user", [text("Go on exactly there.")])]


def test_what_is_blank_is_left_out():
    said = blocks_of(User("Go."), Assistant("\n\n", interrupted=True), Note("Go on."))

    assert said == [("user", [text("Go."), text("Go on.")])]


def test_instructions_are_the_system_and_blank_ones_are_nothing():
    assert body_of(ask(User("Go."), instructions="Be brief."))["system"] == "Be brief."
    assert "system" not in body_of(ask(User("Go."), instructions=" "))


def test_tools_are_named_with_their_schemas():
    body = body_of(ask(User("Go."), tools=(SEARCH,), tool_choice="required"))

    assert body["tools"] == [
        {"name": "search", "description": "Finds.", "input_schema": msgspec.json.decode(SEARCH.schema)}
    ]
    assert body["tool_choice"] == {"type": "any"}
    assert "tool_choice" not in body_of(ask(User("Go."), tools=(SEARCH,)))
    assert "tool_choice" not in body_of(ask(User("Go."), tool_choice="required")), "there is nothing to choose from"


def test_tools_that_were_used_and_are_gone_are_still_defined_and_cannot_be_called():
    used = (User("Go."), Assistant("", calls=(call("a"), call("b", "send"))))
    body = body_of(ask(*used, ToolResult("a", "search", "x"), ToolResult("b", "send", "y")))

    assert [tool["name"] for tool in body["tools"]] == ["search", "send"]
    assert body["tool_choice"] == {"type": "none"}


@given(HISTORIES, FATES, st.booleans())
def test_every_repaired_history_is_accepted(history, fates, is_interrupted):
    """No run ends because a provider refuses what was said and done in it."""
    messages = repair(history, fates)
    request = ask(*messages, *((Assistant("one ", interrupted=True), Note("Go on.")) if is_interrupted else ()))

    body_of(request, NEW)
    body_of(request, OLD)


@given(st.lists(MESSAGES, max_size=8))
def test_a_message_looks_the_same_whichever_request_it_is_in(history):
    bodies = Bodies(NEW, max_tokens=100)
    messages = repair(history)

    for end in range(1, len(messages) + 1):
        bodies.make(ask(*messages[:end]))

    assert bodies.make(ask(*messages)) == Bodies(NEW, max_tokens=100).make(ask(*messages))


def test_a_place_on_the_wire_is_found_again_in_the_request():
    request = ask(User("Go."), Note("Now."), Assistant("Yes."), Assistant(" "), Note("And?"), User("Well?"))
    bodies = Bodies(NEW, max_tokens=100)

    assert [bodies.place_of(request, turn) for turn in range(4)] == [0, 2, 4, None]


# -- thinking


def thought(thinking, *, text=0, calls=0):
    return Thought(text, calls, len(thinking), signature_of(thinking))


def thinking(said):
    return {"type": "thinking", "thinking": said, "signature": signature_of(said)}


def test_thinking_is_given_back_with_its_signature_before_what_came_of_it():
    answer = Assistant("So.", thinking="Hm.", calls=(call("a"),), signature=packed([thought("Hm.")]))

    said = blocks_of(User("Go."), answer, ToolResult("a", "search", "x"))

    assert said[1] == ("assistant", [thinking("Hm."), text("So."), use("a")])


def test_thinking_between_text_and_calls_is_given_back_in_its_place():
    signature = packed(
        [thought("Hm."), Thought(0, 0, SEALED, "c2VhbGVk"), thought("", text=3), thought("And?", text=3, calls=1)]
    )
    answer = Assistant("So.Then.", thinking="Hm.And?", calls=(call("a"), call("b")), signature=signature)

    said = blocks_of(User("Go."), answer, ToolResult("a", "search", "x"), ToolResult("b", "search", "y"))

    assert said[1] == (
        "assistant",
        [
            thinking("Hm."),
            {"type": "redacted_thinking", "data": "c2VhbGVk"},
            text("So."),
            thinking(""),
            use("a"),
            thinking("And?"),
            text("Then."),
            use("b"),
        ],
    )


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Assistant("So.", thinking="Hm."), id="stopped before it was signed"),
        pytest.param(Assistant("So.", thinking="H", signature=packed([thought("Hm.")])), id="a word was taken out"),
        pytest.param(Assistant("So.", thinking="Hm.", signature="EqQBCgIYAhIM"), id="another wire signed it"),
        pytest.param(Assistant("So.", thinking="Hm.", signature=packed([thought("Hm.", text=3)])), id="nothing after"),
    ],
)
def test_thinking_that_the_provider_would_not_recognise_is_left_out(answer):
    assert blocks_of(User("Go."), answer, User("And?"))[1] == ("assistant", [text("So.")])


def test_thinking_that_was_stopped_after_a_whole_thought_keeps_that_one():
    answer = Assistant("So.", thinking="Hm. Now wh", signature=packed([thought("Hm.")]), interrupted=True)

    assert blocks_of(User("Go."), answer, Note("Stopped."))[1] == ("assistant", [thinking("Hm."), text("So.")])


def test_a_thought_without_a_signature_is_left_out_and_the_next_one_kept():
    signature = packed([Thought(0, 0, 3, ""), thought("And?")])
    answer = Assistant("So.", thinking="Hm.And?", signature=signature)

    assert blocks_of(User("Go."), answer, User("And?"))[1] == ("assistant", [thinking("And?"), text("So.")])


def test_all_thinking_can_be_left_out():
    answer = Assistant("So.", thinking="Hm.", signature=packed([thought("Hm.")]))

    assert blocks_of(User("Go."), answer, User("And?"), thinks=False)[1] == ("assistant", [text("So.")])


@pytest.mark.parametrize(
    ("model", "reasoning", "asked"),
    [
        (NEW, "high", {"type": "adaptive", "display": "summarized"}),
        ("claude-mythos-preview", "low", {"type": "adaptive", "display": "summarized"}),
        ("claude-sonnet-5-5", "between_tools", {"type": "between_tools"}),
        (OLD, "disabled", {"type": "disabled"}),
        (OLD, "high", {"type": "enabled", "budget_tokens": BUDGETS["high"]}),
        (OLD, "5000", {"type": "enabled", "budget_tokens": 5000}),
        (OLD, "90000", {"type": "enabled", "budget_tokens": 24_000}),
        ("kimi-k2", "low", {"type": "enabled", "budget_tokens": BUDGETS["low"]}),
    ],
)
def test_thinking_is_asked_for_in_the_way_of_the_models_generation(model, reasoning, asked):
    body = body_of(ask(User("Go."), reasoning=reasoning), model)

    assert body["thinking"] == asked
    assert body.get("output_config") == ({"effort": reasoning} if asked["type"] == "adaptive" else None)


def test_without_a_word_about_reasoning_nothing_is_asked():
    assert "thinking" not in body_of(ask(User("Go.")))


def test_a_limit_that_leaves_no_room_for_thinking_is_kept():
    body = body_of(ask(User("Go."), reasoning="high", max_tokens=1000), OLD)

    assert (body["max_tokens"], body.get("thinking")) == (1000, None)


@pytest.mark.parametrize(("signature", "thinks"), [("", False), (packed([thought("Hm.")]), True)])
def test_a_budget_is_not_given_in_the_middle_of_a_turn_that_began_without_a_thought(signature, thinks):
    answer = Assistant("", thinking="Hm.", calls=(call("a"),), signature=signature)
    request = ask(User("Go."), answer, ToolResult("a", "search", "x"), tools=(SEARCH,), reasoning="high")

    assert ("thinking" in body_of(request, OLD)) is thinks
    assert "thinking" in body_of(request, NEW), "newer models do not mind"


def test_a_budget_is_given_for_a_new_turn_whatever_the_last_one_began_with():
    assert "thinking" in body_of(ask(User("Go."), Assistant("Gone."), User("And?"), reasoning="high"), OLD)


@pytest.mark.parametrize(
    ("model", "generation"),
    [
        ("claude-opus-5-5", (5, 5)),
        ("claude-sonnet-5", (5, 0)),
        ("claude-sonnet-4-5-20250929", (4, 5)),
        ("claude-opus-4-20250514", (4, 0)),
        ("claude-3-7-sonnet-latest", (3, 7)),
        ("anthropic/claude-opus-4.6", (4, 6)),
        ("claude-mythos-preview", None),
        ("kimi-k2", None),
    ],
)
def test_a_models_generation_is_in_its_name(model, generation):
    assert generation_of(model) == generation


# -- the form of the answer


class Score(BaseModel):
    name: str
    risk: float


SCHEMA = as_json(TypeAdapter(Score).json_schema())


def test_an_output_schema_is_the_format_of_the_answer():
    config = body_of(ask(User("Go."), schema=SCHEMA, reasoning="low"))["output_config"]

    assert config["effort"] == "low"
    assert config["format"]["type"] == "json_schema"
    assert config["format"]["schema"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("model", "schema"),
    [("claude-opus-4-1", SCHEMA), ("kimi-k2", SCHEMA), (NEW, as_json({"type": "array", "items": {"type": "string"}}))],
)
def test_a_form_that_cannot_be_demanded_is_asked_for_in_words(model, schema):
    body = body_of(ask(User("Go."), schema=schema, instructions="Be brief."), model)

    assert "output_config" not in body
    assert body["system"].startswith("Be brief.\n\n")
    assert body["system"].endswith(bytes(schema).decode())


# -- settings


def test_an_answer_has_a_limit_which_the_settings_may_change():
    assert body_of(ask(User("Go.")))["max_tokens"] == 32_000
    assert body_of(ask(User("Go."), max_tokens=5))["max_tokens"] == 5


def test_sampling_is_asked_for_in_the_version_that_knows_it():
    bodies = Bodies(OLD, max_tokens=100)

    assert bodies.make(ask(User("Go."))).version == VERSION
    assert bodies.make(ask(User("Go."), temperature=0.0)).version == VERSION_WITH_SAMPLING
    assert bodies.make(ask(User("Go."), extra=as_json({"top_k": 5}))).version == VERSION_WITH_SAMPLING
    assert msgspec.json.decode(bodies.make(ask(User("Go."), temperature=0.0)).data)["temperature"] == 0.0


def test_extra_fields_are_added_to_what_is_there():
    extra = as_json(
        {
            "cache_control": {"type": "ephemeral"},
            "output_config": {"effort": "low"},
            "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        }
    )

    body = body_of(ask(User("Go."), schema=SCHEMA, tools=(SEARCH,), extra=extra))

    assert body["cache_control"] == {"type": "ephemeral"}
    assert set(body["output_config"]) == {"effort", "format"}
    assert [tool["name"] for tool in body["tools"]] == ["search", "web_search"]


def test_extra_fields_cannot_replace_the_messages():
    with pytest.raises(MisuseError, match="messages"):
        body_of(ask(User("Go."), extra=as_json({"messages": []})))
