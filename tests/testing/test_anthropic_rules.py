"""What the Anthropic wire refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checkrein.testing.provider.anthropic import signature_of
from checkrein.testing.provider.anthropic_rules import refuse
from checkrein.testing.provider.http import Incoming
from checkrein.testing.provider.wire import Refused, Terms

HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
USER = {"role": "user", "content": "go on"}
DONE = {"role": "assistant", "content": "done"}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(id: str = "toolu_1", name: str = "send", input: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {} if input is None else input}


def result(id: str = "toolu_1", content: Any = "sent", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def thought(words: str, signature: str | None = None) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature_of(words) if signature is None else signature}


def said(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def told(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def error_of(body: Any, headers: dict[str, str] = HEADERS, terms: Terms | None = None) -> dict[str, Any] | None:
    """The error that a body is answered with, None for one that is accepted."""
    try:
        refuse(Incoming("POST", "/v1/messages", "", headers), body, terms or Terms("k", None))
    except Refused as refused:
        answer = json.loads(refused.problem.body)
        return {"status": refused.problem.status, **answer["error"]}
    return None


def refusal(*messages: Any, **more: Any) -> dict[str, Any] | None:
    return error_of({"model": "claude-haiku-4-5", "max_tokens": 2000, "messages": list(messages), **more})


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [USER, DONE, USER],
        [USER, USER, DONE, DONE, USER],
        [USER, DONE],
        [USER, said(text("I send it."), use(), use("toolu_2")), told(result("toolu_2"), result(), text("And?"))],
        [USER, said(use()), told(result(content=""))],
        [USER, said(use()), told(result(content=[text("sent")]))],
        [USER, said(use()), told(result()), told(text("And?"))],
        [USER, said(use()), said(use("toolu_2")), told(result()), told(result("toolu_2"))],
        [USER, said(thought("hm"), text("done")), USER],
        [USER, {"role": "assistant", "content": ""}],
        [USER, said()],
    ],
)
def test_a_good_history_is_accepted(messages: list[Any]):
    assert refusal(*messages) is None


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (
            [USER, said(use()), USER],
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1. Each "
            "`tool_use` block must have a corresponding `tool_result` block in the next message.",
        ),
        ([USER, said(use())], "messages.1: `tool_use` ids were found without `tool_result` blocks"),
        ([USER, said(use(), use("toolu_2")), told(result())], "immediately after: toolu_2"),
        ([USER, said(use()), told(text("And?"), result())], "immediately after: toolu_1"),
        (
            [told(result())],
            "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1. Each `tool_result` "
            "block must have a corresponding `tool_use` block in the previous message.",
        ),
        ([USER, said(use()), told(result()), DONE, told(result())], "messages.4.content.0: unexpected `tool_use_id`"),
        ([USER, said(use()), told(result(), result())], "each tool_use must have a single result"),
        ([USER, said(use(), use())], "messages.1.content.1: `tool_use` ids must be unique"),
        (
            [USER, said(use()), told(result()), said(use()), told(result())],
            "messages.3.content.0: `tool_use` ids must be unique",
        ),
        ([DONE, USER], 'first message must use the "user" role'),
        ([], "messages: at least one message is required"),
        ([{"role": "user", "content": ""}], "messages.0: all messages must have non-empty content"),
        ([{"role": "user", "content": []}], "messages.0: all messages must have non-empty content"),
        ([USER, {"role": "assistant", "content": ""}, USER], "messages.1: all messages must have non-empty content"),
        ([told(text(""))], "messages: text content blocks must be non-empty"),
        ([told(text(" \n"))], "messages: text content blocks must contain non-whitespace text"),
        ([{"role": "user", "content": " "}], "messages: text content blocks must contain non-whitespace text"),
        ([USER, said(use()), told(result(content=" "))], "text content blocks must contain non-whitespace text"),
        ([USER, said(use()), told(result(content=[text("")]))], "text content blocks must be non-empty"),
        ([USER, said(use()), told(result(content="", is_error=True))], "content cannot be empty if `is_error` is true"),
        ([USER, {"role": "assistant", "content": "so far "}], "cannot end with trailing whitespace"),
        ([USER, said(text("so"), text("far\n"))], "cannot end with trailing whitespace"),
        ([{"role": "system", "content": "Be brief."}, USER], 'Unexpected role "system"'),
        ([{"role": "tool", "content": "x"}], "messages.0.role: Input should be 'user' or 'assistant'"),
        ([{"role": "user"}], "messages.0.content: Field required"),
        ([{"role": "user", "content": 5}], "messages.0.content: Input should be a valid list"),
        ([{**USER, "name": "me"}], "messages.0.name: Extra inputs are not permitted"),
        ([USER, said({"type": "tool_call"}), USER], "Input tag 'tool_call' found using 'type'"),
        ([told(use())], "`tool_use` blocks can only be in `assistant` messages"),
        ([USER, said(result()), USER], "`tool_result` blocks can only be in `user` messages"),
        ([USER, said(use("a|b"))], "messages.1.content.0.tool_use.id: String should match pattern"),
        ([USER, said(use(name="send it"))], "messages.1.content.0.tool_use.name: String should match pattern"),
        ([USER, said(use(input="{}"))], "messages.1.content.0.tool_use.input: Input should be a valid dictionary"),
        ([USER, said(use(input=[]))], "tool_use.input: Input should be a valid dictionary"),
        ([USER, said(thought("hm", "c2lnbmF0dXJl"), text("done")), USER], "Invalid `signature` in `thinking` block"),
        ([USER, said(thought("hm", ""), text("done")), USER], "Invalid `signature` in `thinking` block"),
        ([USER, said({"type": "thinking", "thinking": "hm"}), USER], "thinking.signature: Field required"),
        ([USER, said(thought("hm")), USER], "The final block in an assistant message cannot be `thinking`"),
    ],
)
def test_a_broken_history_is_refused_in_the_provider_s_words(messages: list[Any], words: str):
    error = refusal(*messages)

    assert error is not None
    assert (error["status"], error["type"]) == (400, "invalid_request_error")
    assert words in error["message"]


BUDGET = {"type": "enabled", "budget_tokens": 1024}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"max_tokens": "5"}, "max_tokens: Input should be a valid integer"),
        ({"max_tokens": -1}, "max_tokens: Input should be greater than or equal to 0"),
        ({"max_token": 5}, "max_token: Extra inputs are not permitted"),
        ({"tools": [{"name": "a b", "input_schema": {"type": "object"}}]}, "tools.0.custom.name: String should match"),
        ({"tools": [{"name": "a"}]}, "tools.0.custom.input_schema: Field required"),
        ({"tools": [{"name": "a", "input_schema": {}}]}, "input_schema.type: Input should be 'object'"),
        ({"tools": [{"name": "a", "input_schema": {"type": "object"}}] * 2}, "tools: Tool names must be unique."),
        ({"system": [text("")]}, "system: text content blocks must be non-empty"),
        ({"system": 5}, "system: Input should be a valid list"),
        ({"thinking": {"type": "enabled"}}, "thinking.enabled.budget_tokens: Field required"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "greater than or equal to 1024"),
        ({"thinking": BUDGET, "max_tokens": 1024}, "`max_tokens` must be greater than `thinking.budget_tokens`"),
        ({"thinking": {"type": "adaptive"}}, "adaptive thinking is not supported on this model"),
        ({"thinking": BUDGET, "temperature": 0.5}, "may only be set to 1 when thinking is enabled"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(more: dict[str, Any], words: str):
    error = refusal(USER, **more)

    assert error is not None
    assert (error["status"], error["type"]) == (400, "invalid_request_error")
    assert words in error["message"]


@pytest.mark.parametrize("name", ["model", "max_tokens", "messages"])
def test_what_is_required_is_missed(name: str):
    body = {"model": "claude-haiku-4-5", "max_tokens": 5, "messages": [USER]}
    del body[name]
    error = error_of(body)

    assert error is not None
    assert error["message"] == f"{name}: Field required"


@pytest.mark.parametrize(
    ("model", "messages", "more", "words"),
    [
        ("claude-opus-4-5", [USER, DONE], {}, None),
        ("claude-opus-4-6", [USER, DONE], {}, "This model does not support assistant message prefill."),
        ("claude-sonnet-5", [USER, DONE], {}, "The conversation must end with a user message."),
        ("claude-opus-4-6", [USER], {"thinking": BUDGET}, None),
        ("claude-opus-4-7", [USER], {"thinking": BUDGET}, '"thinking.type.enabled" is not supported for this model.'),
        ("claude-opus-4-6", [USER], {"thinking": {"type": "adaptive"}}, None),
        ("claude-opus-4-6", [USER], {"temperature": 0.5}, None),
        ("claude-opus-4-7", [USER], {"temperature": 0.5}, "`temperature` is deprecated for this model."),
        ("claude-opus-4-7", [USER, {"role": "system", "content": "Hm"}, USER], {}, 'Unexpected role "system"'),
        ("claude-opus-4-8", [USER, {"role": "system", "content": "Hm"}, USER], {}, None),
        ("claude-haiku-4-5-20251001", [USER, DONE], {}, None),
    ],
)
def test_what_a_model_takes_depends_on_its_generation(model, messages, more, words):
    error = refusal(*messages, **{"model": model, **more})

    assert (error is None) if words is None else error is not None and words in error["message"]


def test_a_call_in_the_midst_of_thinking_goes_back_with_the_thought():
    answered = told(result())

    assert refusal(USER, said(thought("hm"), use()), answered, thinking=BUDGET) is None
    assert refusal(USER, said(use()), answered) is None
    assert refusal(USER, said(use()), answered, DONE, USER, thinking=BUDGET) is None
    error = refusal(USER, said(use()), answered, thinking=BUDGET)
    assert error is not None
    assert "Expected `thinking` or `redacted_thinking`, but found `tool_use`" in error["message"]


@pytest.mark.parametrize(("version", "words"), [("2023-06-01", None), ("2026-10-21", "temperature: Extra inputs")])
def test_what_may_be_asked_for_depends_on_the_version(version: str, words: str | None):
    body = {"model": "claude-haiku-4-5", "max_tokens": 5, "messages": [USER], "temperature": 1}
    error = error_of(body, {**HEADERS, "anthropic-version": version})

    assert (error is None) if words is None else error is not None and words in error["message"]


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({}, 401, "x-api-key header is required"),
        ({"x-api-key": "x", "authorization": "Bearer k"}, 401, "invalid x-api-key"),
        ({"x-api-key": "k"}, 400, "anthropic-version: header is required"),
        ({"authorization": "Bearer k"}, 400, "anthropic-version: header is required"),
    ],
)
def test_key_and_version_are_asked_for_before_anything_else(headers: dict[str, str], status: int, words: str):
    error = error_of(None, headers)

    assert error is not None
    assert (error["status"], error["message"]) == (status, words)


@pytest.mark.parametrize(
    ("model", "models", "known"),
    [
        ("claude-opus-5-5", None, True),
        ("gpt-5", None, False),
        ("claude-opus-5-5", ["claude-haiku-*"], False),
        ("claude-haiku-5-5", ["claude-haiku-*"], True),
    ],
)
def test_a_model_is_known_or_not_found(model: str, models: list[str] | None, known: bool):
    error = error_of({"model": model, "max_tokens": 5, "messages": [USER]}, terms=Terms("k", models))

    assert (error is None) == known
    assert error is None or (error["status"], error["message"]) == (404, f"model: {model}")
