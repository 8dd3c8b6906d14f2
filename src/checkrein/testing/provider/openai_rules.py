"""What OpenAI's chat completions refuse, in their words.

Where compatible servers are stricter than OpenAI itself, the stricter answer is given: a message without a word,
arguments of a call that are no JSON object, an id used by two calls of one message.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

import msgspec

from checkrein.testing.provider.http import Incoming
from checkrein.testing.provider.openai import KNOWN, error, headers
from checkrein.testing.provider.wire import Problem, Refused, Terms, problem

ROLES: Final = ("system", "assistant", "user", "function", "tool", "developer")
LONGEST_ID: Final = 40
LONGEST_NAME: Final = 64
NAME: Final = re.compile(r"[a-zA-Z0-9_-]+")
REASONS: Final = re.compile(r"o\d|gpt-[5-9](?!.*chat)")
"""Models that think first, and take neither `max_tokens` nor a temperature."""

# fmt: off
PARAMETERS: Final = frozenset({
    "model", "messages", "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
    "max_completion_tokens", "max_tokens", "metadata", "modalities", "moderation", "n", "parallel_tool_calls",
    "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "reasoning_effort", "response_format", "safety_identifier", "seed", "service_tier", "stop", "store",
    "stream", "stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user",
    "verbosity", "web_search_options",
    # Of servers that are compatible with it:
    "reasoning", "provider", "models", "transforms", "usage", "keep_alive", "options", "top_k", "min_p", "think",
    "chat_template_kwargs", "repetition_penalty", "route", "plugins", "thinking",
})
# fmt: on


def refuse(request: Incoming, body: Any, terms: Terms) -> None:
    """Raise `Refused` where the real provider would answer with an error."""
    refuse_key(request, terms)
    if not isinstance(body, dict):
        _bad("We could not parse the JSON body of your request.")
    if not isinstance(model := body.get("model"), str) or not model:
        _bad("you must provide a model parameter")
    if not terms.has(model, KNOWN):
        raise Refused(unknown_model(model))
    for name in body:
        if name not in PARAMETERS:
            _bad(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
    _refuse_options(body, model)
    _refuse_tools(body)
    _refuse_messages(body)


def refuse_key(request: Incoming, terms: Terms) -> None:
    if terms.key is None:
        return
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not key:
        _fail(
            401,
            "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer "
            "auth (i.e. Authorization: Bearer YOUR_KEY).",
        )
    if key != terms.key:
        _fail(401, f"Incorrect API key provided: {key[:3]}***.", None, "invalid_api_key")


def unknown_model(model: str) -> Problem:
    message = f"The model `{model}` does not exist or you do not have access to it."
    return _problem(404, message, None, "model_not_found")


def _problem(status: int, message: str, param: str | None, code: str | None) -> Problem:
    return problem(status, headers(), error(message, "invalid_request_error", param, code), message)


def _fail(status: int, message: str, param: str | None = None, code: str | None = None) -> NoReturn:
    raise Refused(_problem(status, message, param, code))


def _bad(message: str, param: str | None = None, code: str | None = None) -> NoReturn:
    _fail(400, message, param, code)


def _kind(value: object) -> str:
    """What JSON calls it, with its article."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "an integer", float: "a decimal", str: "a string", list: "an array"}
    return names.get(type(value), "an object")


def _empty(where: str) -> NoReturn:
    _bad(
        f"Invalid '{where}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        where,
        "empty_array",
    )


def _refuse_options(body: dict[str, Any], model: str) -> None:
    if body.get("stream_options") is not None and not body.get("stream"):
        _bad("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    if not REASONS.match(model):
        return
    if body.get("max_tokens") is not None:
        _bad(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
            "instead.",
            "max_tokens",
            "unsupported_parameter",
        )
    if (temperature := body.get("temperature")) not in (None, 1):
        _bad(
            f"Unsupported value: 'temperature' does not support {temperature} with this model. Only the default (1) "
            "value is supported.",
            "temperature",
            "unsupported_value",
        )


def _refuse_tools(body: dict[str, Any]) -> None:
    tools = body.get("tools")
    if tools is None:
        for name in ("tool_choice", "parallel_tool_calls"):
            if body.get(name) is not None:
                _bad(f"'{name}' is only allowed when 'tools' are specified.", name)
        return
    if not tools:
        _empty("tools")
    for place, tool in enumerate(tools):
        where = f"tools[{place}]"
        if tool.get("type") != "function":
            _missing(f"{where}.type") if "type" not in tool else _bad(f"Invalid value: '{tool['type']}'.", where)
        if "function" not in tool:
            _missing(f"{where}.function")
        _refuse_name(tool["function"], f"{where}.function")


def _missing(where: str) -> NoReturn:
    _bad(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")


def _refuse_name(function: dict[str, Any], where: str) -> None:
    if "name" not in function:
        _missing(f"{where}.name")
    name = function["name"]
    if not NAME.fullmatch(name):
        _bad(
            f"Invalid '{where}.name': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            f"{where}.name",
            "invalid_value",
        )
    _refuse_length(name, f"{where}.name", LONGEST_NAME)


def _refuse_length(value: str, where: str, longest: int) -> None:
    if len(value) > longest:
        _bad(
            f"Invalid '{where}': string too long. Expected a string with maximum length {longest}, but got a string "
            f"with length {len(value)} instead.",
            where,
            "string_above_max_length",
        )


# -- messages


def _refuse_messages(body: dict[str, Any]) -> None:
    messages = body.get("messages")
    if messages is None:
        _missing("messages")
    if not isinstance(messages, list):
        _bad(
            f"Invalid type for 'messages': expected an array of objects, but got {_kind(messages)} instead.",
            "messages",
            "invalid_type",
        )
    if not messages:
        _empty("messages")
    asked: dict[str, int | None] = {}  # the ids of the calls before, and where each was answered
    for place, message in enumerate(messages):
        role = _role(place, message)
        if role == "tool":
            _refuse_result(place, message, asked)
            continue
        _refuse_unanswered(place, asked)
        asked = _calls(place, message) if role == "assistant" else {}
        if role != "assistant" or "tool_calls" not in message:
            _refuse_content(place, message)
    _refuse_unanswered(len(messages) - 1, asked)


def _role(place: int, message: Any) -> str:
    if not isinstance(message, dict):
        _bad(
            f"Invalid type for 'messages[{place}]': expected an object, but got {_kind(message)} instead.",
            f"messages[{place}]",
            "invalid_type",
        )
    role = message.get("role")
    if role is None:
        _missing(f"messages[{place}].role")
    if role not in ROLES:
        _bad(
            f"Invalid value: '{role}'. Supported values are: "
            f"{', '.join(repr(name) for name in ROLES[:-1])}, and {ROLES[-1]!r}.",
            f"messages[{place}].role",
            "invalid_value",
        )
    return str(role)


def _refuse_content(place: int, message: dict[str, Any]) -> None:
    content = message.get("content")
    where = f"messages.[{place}].content"
    if isinstance(content, list):
        if not content:
            _empty(f"messages[{place}].content")
        return
    if not isinstance(content, str):
        _bad(f"Invalid value for 'content': expected a string, got {_kind(content).split()[-1]}.", where)
    if not content and message["role"] in ("user", "assistant"):
        _bad(f"Invalid request: message at position {place} with role '{message['role']}' must not be empty", where)


def _refuse_result(place: int, message: dict[str, Any], asked: dict[str, int | None]) -> None:
    if "tool_call_id" not in message:
        _bad(
            "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.",
            f"messages.[{place}].tool_call_id",
        )
    if not asked:
        _bad(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
            "'tool_calls'.",
            f"messages.[{place}].role",
        )
    id = message["tool_call_id"]
    if id not in asked:
        _bad(
            f"Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message.",
            f"messages.[{place}].tool_call_id",
        )
    if (before := asked[id]) is not None:
        _bad(
            f"Invalid parameter: Duplicate value for 'tool_call_id' of '{id}', in messages[{before}] and "
            f"messages[{place}].",
            f"messages.[{place}].tool_call_id",
        )
    asked[id] = place
    _refuse_content(place, message)


def _refuse_unanswered(place: int, asked: dict[str, int | None]) -> None:
    missing = [id for id, answered in asked.items() if answered is None]
    if missing:
        _bad(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(missing)}",
            f"messages.[{place}].role",
        )


def _calls(place: int, message: dict[str, Any]) -> dict[str, int | None]:
    """The ids of the calls that this message asks for, none of them answered yet."""
    if "tool_calls" not in message:
        return {}
    calls = message["tool_calls"]
    if not calls:
        _empty(f"messages[{place}].tool_calls")
    asked: dict[str, int | None] = {}
    for number, call in enumerate(calls):
        where = f"messages[{place}].tool_calls[{number}]"
        for name in ("id", "type", "function"):
            if name not in call:
                _missing(f"{where}.{name}")
        _refuse_length(call["id"], f"{where}.id", LONGEST_ID)
        _refuse_name(call["function"], f"{where}.function")
        _refuse_arguments(call["function"].get("arguments"), f"{where}.function.arguments")
        if call["id"] in asked:
            _bad(f"Invalid '{where}.id': duplicate value '{call['id']}'.", f"{where}.id", "invalid_value")
        asked[call["id"]] = None
    return asked


def _refuse_arguments(arguments: object, where: str) -> None:
    if not isinstance(arguments, str):
        _bad(
            f"Invalid type for '{where}': expected a string, but got {_kind(arguments)} instead.", where, "invalid_type"
        )
    try:
        fits = isinstance(msgspec.json.decode(arguments), dict)
    except msgspec.DecodeError:
        fits = False
    if not fits:
        _bad(f"Invalid '{where}': expected a JSON object.", where, "invalid_value")
