"""What the OpenAI wire refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checkrein.testing.provider.http import Incoming
from checkrein.testing.provider.openai_rules import refuse
from checkrein.testing.provider.wire import Refused, Terms

USER = {"role": "user", "content": "go on"}
DONE = {"role": "assistant", "content": "done"}


def call(id: str = "call_1", name: str = "send", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asks(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(id: str = "call_1", content: Any = "sent") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def error_of(body: Any, headers: dict[str, str] | None = None, terms: Terms | None = None) -> dict[str, Any] | None:
    """The error that a body is answered with, None for one that is accepted."""
    incoming = Incoming("POST", "/v1/chat/completions", "", headers or {"authorization": "Bearer k"})
    try:
        refuse(incoming, body, terms or Terms("k", None))
    except Refused as refused:
        error: dict[str, Any] = json.loads(refused.problem.body)["error"]
        return {"status": refused.problem.status, **error}
    return None


def refusal(*messages: Any, **more: Any) -> dict[str, Any] | None:
    return error_of({"model": "gpt-5", "messages": list(messages), **more})


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [USER, DONE, USER],
        [USER, USER],
        [DONE, USER],
        [{"role": "system", "content": "Be brief."}, USER],
        [{"role": "developer", "content": "Be brief."}, USER],
        [USER, asks(call(), call("call_2")), result("call_2"), result("call_1"), USER],
        [USER, asks(call()), result(content=""), DONE],
        [USER, asks(call(), content="I send it."), result()],
        [{"role": "user", "content": [{"type": "text", "text": "go on"}]}],
        [USER, asks(call()), result(), asks(call()), result()],
    ],
)
def test_a_good_history_is_accepted(messages: list[Any]):
    assert refusal(*messages) is None


@pytest.mark.parametrize(
    ("messages", "words", "param"),
    [
        ([USER, asks(call()), USER], "did not have response messages: call_1", "messages.[2].role"),
        ([USER, asks(call())], "did not have response messages: call_1", "messages.[1].role"),
        ([USER, asks(call(), call("call_2")), result()], "response messages: call_2", "messages.[2].role"),
        ([USER, result()], "must be a response to a preceeding message with 'tool_calls'", "messages.[1].role"),
        ([USER, asks(call()), result(), USER, result()], "must be a response to", "messages.[4].role"),
        ([USER, asks(call()), result("call_9")], "'call_9' not found in 'tool_calls'", "messages.[2].tool_call_id"),
        (
            [USER, asks(call()), result(), result()],
            "Duplicate value for 'tool_call_id' of 'call_1', in messages[2] and messages[3]",
            "messages.[3].tool_call_id",
        ),
        ([USER, asks(call(), call())], "duplicate value 'call_1'", "messages[1].tool_calls[1].id"),
        ([USER, {"role": "tool", "content": "x"}], "Missing parameter 'tool_call_id'", "messages.[1].tool_call_id"),
        ([], "Invalid 'messages': empty array", "messages"),
        ([{"role": "robot", "content": "x"}], "Invalid value: 'robot'", "messages[0].role"),
        ([{"content": "x"}], "Missing required parameter: 'messages[0].role'", "messages[0].role"),
        (["x"], "expected an object, but got a string", "messages[0]"),
        ([{"role": "user", "content": None}], "expected a string, got null", "messages.[0].content"),
        ([{"role": "user", "content": ""}], "must not be empty", "messages.[0].content"),
        ([{"role": "user", "content": []}], "empty array", "messages[0].content"),
        ([USER, {"role": "assistant", "content": None}], "expected a string, got null", "messages.[1].content"),
        ([USER, asks()], "Invalid 'messages[1].tool_calls': empty array", "messages[1].tool_calls"),
        ([USER, asks(call("x" * 41))], "maximum length 40, but got a string with length 41", None),
        ([USER, asks(call(name="send it"))], "string does not match pattern", None),
        ([USER, asks(call(name="n" * 65))], "maximum length 64", None),
        ([USER, asks(call(arguments={}))], "expected a string, but got an object", None),
        ([USER, asks(call(arguments='{"to":'))], "expected a JSON object", None),
        ([USER, asks(call(arguments="[1]"))], "expected a JSON object", None),
        ([USER, asks({"id": "a", "type": "function"})], "'messages[1].tool_calls[0].function'", None),
    ],
)
def test_a_broken_history_is_refused_in_the_provider_s_words(messages: list[Any], words: str, param: str | None):
    error = refusal(*messages)

    assert error is not None
    assert error["status"] == 400
    assert error["type"] == "invalid_request_error"
    assert words in error["message"]
    assert param is None or error["param"] == param


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"stream_options": {"include_usage": True}}, "only allowed when 'stream' is enabled"),
        ({"max_tokens": 5}, "Use 'max_completion_tokens' instead"),
        ({"temperature": 0.2}, "does not support 0.2 with this model"),
        ({"tools": []}, "Invalid 'tools': empty array"),
        ({"tool_choice": "auto"}, "only allowed when 'tools' are specified"),
        ({"parallel_tool_calls": True}, "only allowed when 'tools' are specified"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "string does not match pattern"),
        ({"tools": [{"type": "function"}]}, "Missing required parameter: 'tools[0].function'"),
        ({"tools": [{"function": {"name": "a"}}]}, "Missing required parameter: 'tools[0].type'"),
        ({"max_token": 5}, "Unknown parameter: 'max_token'"),
        ({"model": None}, "you must provide a model parameter"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(more: dict[str, Any], words: str):
    error = refusal(USER, **more)

    assert error is not None
    assert (error["status"], words in error["message"]) == (400, True)


@pytest.mark.parametrize("more", [{"max_tokens": 5, "temperature": 0.2}, {"max_completion_tokens": 5}])
def test_older_models_take_what_newer_ones_refuse(more: dict[str, Any]):
    assert refusal(USER, **{"model": "gpt-4o", **more}) is None


@pytest.mark.parametrize(
    ("body", "words"), [(None, "could not parse the JSON"), ([], "could not parse"), ({"model": "gpt-5"}, "'messages'")]
)
def test_a_body_that_is_no_request_is_refused(body: Any, words: str):
    error = error_of(body)

    assert error is not None
    assert words in error["message"]


@pytest.mark.parametrize(
    ("headers", "code"),
    [({"x": ""}, None), ({"authorization": "Bearer "}, None), ({"authorization": "Bearer x"}, "invalid_api_key")],
)
def test_a_key_is_asked_for_before_anything_else(headers: dict[str, str], code: str | None):
    error = error_of(None, headers)

    assert error is not None
    assert (error["status"], error["code"]) == (401, code)


@pytest.mark.parametrize(
    ("model", "models", "known"),
    [
        ("gpt-6-sol", None, True),
        ("o4-mini", None, True),
        ("meta-llama/llama-4", None, True),
        ("no-such-model", None, False),
        ("claude-opus-5-5", None, False),
        ("gpt-5", ["gpt-5"], True),
        ("gpt-5-mini", ["gpt-5"], False),
        ("anything", ["*"], True),
    ],
)
def test_a_model_is_known_or_not_found(model: str, models: list[str] | None, known: bool):
    error = error_of({"model": model, "messages": [USER]}, terms=Terms("k", models))

    assert (error is None) == known
    assert error is None or (error["status"], error["code"]) == (404, "model_not_found")
