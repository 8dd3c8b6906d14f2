"""Two providers at their strictest: what their wires document, or answer with 400, about the messages of a request.

The judges read the JSON of a request, so they serve for the real wires as well; the two renderers are the plainest
possible and belong to the tests alone. Every rule is one the named API is known to enforce, or used to; where
an API has become milder with time, the older answer stands.

OpenAI, chat completions
- a message has content, unless it is an assistant's with `tool_calls`; an empty `tool_calls` is refused
- an assistant message with tool calls is followed by tool messages that answer each `tool_call_id`, and by nothing else
- a tool message answers a call of the assistant message before it, once
- the id of a call has at most 40 characters, a name matches ^[a-zA-Z0-9_-]{1,64}$, arguments are a string of JSON

Anthropic, messages
- there is a message, and the first one is the user's
- a message has content; a text block has more than white space
- ids of `tool_use` match ^[a-zA-Z0-9_-]+$ and are unique in the whole request; `input` is an object
- every `tool_use` has one `tool_result` in the next message, which is the user's; they come before any text
- a `tool_result` belongs to a `tool_use` of the message before; a failed one has content
- an assistant's last message does not end with white space
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from checkrein.models import Assistant, Message, ToolResult

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


class Refused(Exception):
    """The provider answers 400."""


def demand(holds: bool, sentence: str) -> None:
    if not holds:
        raise Refused(sentence)


def both_accept(messages: Sequence[Message]) -> None:
    """Raise `Refused` unless both providers take `messages`."""
    judge_openai(as_openai(messages))
    judge_anthropic(as_anthropic(messages))


# -- OpenAI


def as_openai(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [_openai_message(message) for message in messages]


def _openai_message(message: Message) -> dict[str, Any]:
    if isinstance(message, ToolResult):
        return {"role": "tool", "tool_call_id": message.call, "content": message.content}
    if not isinstance(message, Assistant):
        return {"role": "user", "content": message.text}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": bytes(call.arguments).decode()},
        }
        for call in message.calls
    ]
    return {"role": "assistant", "content": message.text or None, **({"tool_calls": calls} if calls else {})}


def judge_openai(messages: list[dict[str, Any]]) -> None:
    demand(bool(messages), "[] is too short - 'messages'")
    waiting: list[str] = []
    for place, message in enumerate(messages):
        where = f"messages.[{place}]"
        if message["role"] == "tool":
            demand(isinstance(message["content"], str), f"{where}: content must be a string")
            demand(
                message["tool_call_id"] in waiting,
                f"{where}: messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
            )
            waiting.remove(message["tool_call_id"])
            continue
        demand(not waiting, f"{where}: tool_call_ids did not have response messages: {waiting}")
        if message["role"] == "assistant":
            waiting = _judge_openai_assistant(where, message)
        else:
            demand(bool(message["content"]), f"{where}: content must not be empty")
    demand(not waiting, f"tool_call_ids did not have response messages: {waiting}")


def _judge_openai_assistant(where: str, message: dict[str, Any]) -> list[str]:
    calls = message.get("tool_calls")
    if calls is None:
        demand(bool(message["content"]), f"{where}: content must not be empty")
        return []
    demand(bool(calls), f"{where}: [] is too short - 'tool_calls'")
    for call in calls:
        demand(1 <= len(call["id"]) <= 40, f"{where}: tool_calls id: string too long")
        demand(bool(NAME.fullmatch(call["function"]["name"])), f"{where}: function name does not match")
        demand(isinstance(json.loads(call["function"]["arguments"]), dict), f"{where}: arguments")
    ids = [call["id"] for call in calls]
    demand(len(set(ids)) == len(ids), f"{where}: duplicate tool call ids")
    return ids


# -- Anthropic


def as_anthropic(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The provider joins messages of the same role; results and the text after them become one message."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if isinstance(message, Assistant) else "user"
        if not joined or joined[-1]["role"] != role:
            joined.append({"role": role, "content": []})
        joined[-1]["content"] += _blocks(message)
    return joined


def _blocks(message: Message) -> list[dict[str, Any]]:
    if isinstance(message, ToolResult):
        return [
            {
                "type": "tool_result",
                "tool_use_id": message.call,
                "content": message.content,
                "is_error": message.is_error,
            }
        ]
    text = [{"type": "text", "text": message.text}] if message.text else []
    if not isinstance(message, Assistant):
        return text
    return text + [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(bytes(call.arguments))}
        for call in message.calls
    ]


def judge_anthropic(messages: list[dict[str, Any]]) -> None:
    demand(bool(messages), "messages: at least one message is required")
    demand(messages[0]["role"] == "user", 'messages: first message must use the "user" role')
    used: set[str] = set()
    asked: list[str] = []
    for place, message in enumerate(messages):
        where, blocks = f"messages.{place}", message["content"]
        demand(bool(blocks), f"{where}: all messages must have non-empty content")
        for block in blocks:
            if block["type"] == "text":
                demand(bool(block["text"].strip()), f"{where}: text content blocks must contain non-whitespace text")
        _judge_results(where, message, asked)
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        _judge_uses(where, message, used)
    demand(not asked, f"`tool_use` ids were found without `tool_result` blocks immediately after: {asked}")
    last = messages[-1]
    if last["role"] == "assistant":
        text = last["content"][-1]["text"]
        demand(text == text.rstrip(), "messages: final assistant content cannot end with trailing whitespace")


def _judge_results(where: str, message: dict[str, Any], asked: list[str]) -> None:
    kinds = [block["type"] for block in message["content"]]
    results = [block for block in message["content"] if block["type"] == "tool_result"]
    if results:
        demand(message["role"] == "user", f"{where}: `tool_result` blocks can only be in `user` messages")
        demand(set(kinds[: len(results)]) == {"tool_result"}, f"{where}: `tool_result` blocks must come first")
    answered = Counter(block["tool_use_id"] for block in results)
    demand(set(answered) <= set(asked), f"{where}: unexpected `tool_use_id` found in `tool_result` blocks")
    demand(all(count == 1 for count in answered.values()), f"{where}: each tool_use must have a single result")
    demand(set(asked) <= set(answered), f"{where}: `tool_use` ids were found without `tool_result` blocks: {asked}")
    for block in results:
        has_content = bool(block["content"].strip())
        demand(has_content or not block["is_error"], f"{where}: content cannot be empty if `is_error` is true")
        demand(has_content or not block["content"], f"{where}: text content must contain non-whitespace text")


def _judge_uses(where: str, message: dict[str, Any], used: set[str]) -> None:
    for block in message["content"]:
        if block["type"] == "tool_use":
            demand(message["role"] == "assistant", f"{where}: `tool_use` blocks can only be in `assistant` messages")
            demand(bool(ID.fullmatch(block["id"])), f"{where}: tool_use.id: string should match pattern")
            demand(block["id"] not in used, f"{where}: `tool_use` ids must be unique")
            demand(bool(NAME.fullmatch(block["name"])), f"{where}: tool_use.name: string should match pattern")
            demand(isinstance(block["input"], dict), f"{where}: tool_use.input: input should be a valid dictionary")
            used.add(block["id"])
