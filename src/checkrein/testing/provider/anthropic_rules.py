"""What Anthropic's messages refuse about a request as a whole, in their words.

Some of it depends on the model's generation (thinking by a budget, sampling), some on the version of the API that the
request names.

What Anthropic refuses in the messages of a request, in its words.

Messages of one role in a row are one turn to it. What may end a request, and where the system may speak, depends on the
model's generation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from checkrein.testing.provider.anthropic import MODELS, fits, problem_of, version_of
from checkrein.testing.provider.http import Incoming
from checkrein.testing.provider.wire import Problem, Refused, Terms

ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
NO_PREFILL_SINCE: Final = (4, 6)
SYSTEM_INLINE_SINCE: Final = (4, 8)
BLOCKS: Final = frozenset({"text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking"})

Block = dict[str, Any]


class _Turn:
    """Messages of one role in a row: where each block of them is in the request, and the block."""

    def __init__(self, role: str, place: int) -> None:
        self.role = role
        self.place = place
        self.blocks: list[tuple[str, Block]] = []

    def of(self, kind: str) -> list[tuple[str, Block]]:
        return [(where, block) for where, block in self.blocks if block["type"] == kind]


def bad(message: str) -> NoReturn:
    raise Refused(problem_of(400, "invalid_request_error", message))


def since(model: str, version: tuple[int, int], unknown: bool = False) -> bool:
    """Whether the model is of that generation or a later one; `unknown`: what to say of a name that does not tell."""
    found = version_of(model)
    return unknown if found is None else found >= version


def refuse_blank(where: str, texts: Iterable[str]) -> None:
    for text in texts:
        if not text:
            bad(f"{where}: text content blocks must be non-empty")
        if not text.strip():
            bad(f"{where}: text content blocks must contain non-whitespace text")


def refuse_messages(body: dict[str, Any]) -> None:
    messages = body["messages"]
    if not isinstance(messages, list):
        bad("messages: Input should be a valid list")
    if not messages:
        bad("messages: at least one message is required")
    turns = _turns(messages, system=since(body["model"], SYSTEM_INLINE_SINCE))
    if not turns or turns[0].role != "user":
        bad('messages: first message must use the "user" role')
    used: set[str] = set()
    before: _Turn | None = None
    for turn in turns:
        refuse_blank("messages", (block["text"] for _, block in turn.of("text")))
        if turn.role == "user":
            _refuse_results(turn, before)
        else:
            _refuse_uses(turn, used)
            _refuse_thinking(turn)
        before = turn
    _refuse_end(turns, body)


def _turns(messages: list[Any], system: bool) -> list[_Turn]:
    """`system`: whether messages of the system may stand among the others; they belong to no turn."""
    turns: list[_Turn] = []
    for place, message in enumerate(messages):
        role = _role(place, message, system)
        if role == "system":
            continue
        if not turns or turns[-1].role != role:
            turns.append(_Turn(role, place))
        turns[-1].blocks += _blocks(place, message, last=place == len(messages) - 1)
    return turns


def _role(place: int, message: Any, system: bool) -> str:
    if not isinstance(message, dict):
        bad(f"messages.{place}: Input should be a valid dictionary")
    for name in ("role", "content"):
        if name not in message:
            bad(f"messages.{place}.{name}: Field required")
    for name in message:
        if name not in ("role", "content"):
            bad(f"messages.{place}.{name}: Extra inputs are not permitted")
    role = message["role"]
    if role == "system" and system:
        return "system"
    if role == "system":
        bad(
            'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, not "system" '
            "as an input message role."
        )
    if role not in ("user", "assistant"):
        bad(f"messages.{place}.role: Input should be 'user' or 'assistant'")
    return str(role)


def _blocks(place: int, message: dict[str, Any], last: bool) -> list[tuple[str, Block]]:
    content, role = message["content"], message["role"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        bad(f"messages.{place}.content: Input should be a valid list")
    if not content and not (last and role == "assistant"):
        bad(
            f"messages.{place}: all messages must have non-empty content except for the optional "
            "final assistant message"
        )
    found = []
    for number, block in enumerate(content):
        where = f"messages.{place}.content.{number}"
        if not isinstance(block, dict) or block.get("type") not in BLOCKS:
            kind = block.get("type") if isinstance(block, dict) else block
            bad(f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
        _refuse_place(where, role, block["type"])
        found.append((where, block))
    return found


def _refuse_place(where: str, role: str, kind: str) -> None:
    if kind == "tool_result" and role != "user":
        bad(f"{where}: `tool_result` blocks can only be in `user` messages")
    if kind in ("tool_use", "thinking", "redacted_thinking") and role != "assistant":
        bad(f"{where}: `{kind}` blocks can only be in `assistant` messages")


def _refuse_uses(turn: _Turn, used: set[str]) -> None:
    for where, block in turn.of("tool_use"):
        for name in ("id", "name", "input"):
            if name not in block:
                bad(f"{where}.tool_use.{name}: Field required")
        if not ID.fullmatch(block["id"]):
            bad(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
        if not NAME.fullmatch(block["name"]):
            bad(f"{where}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if not isinstance(block["input"], dict):
            bad(f"{where}.tool_use.input: Input should be a valid dictionary")
        if block["id"] in used:
            bad(f"{where}: `tool_use` ids must be unique")
        used.add(block["id"])


def _refuse_results(turn: _Turn, before: _Turn | None) -> None:
    asked = [block["id"] for _, block in before.of("tool_use")] if before is not None else []
    answered: set[str] = set()
    for where, block in turn.of("tool_result"):
        if "tool_use_id" not in block:
            bad(f"{where}.tool_result.tool_use_id: Field required")
        id = block["tool_use_id"]
        if id not in asked:
            bad(
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must "
                "have a corresponding `tool_use` block in the previous message."
            )
        if id in answered:
            bad(f"{where}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}")
        answered.add(id)
        _refuse_result(where, block)
    # Results that come after something else do not count as coming immediately after.
    at_once = {block.get("tool_use_id") for _, block in turn.blocks[: len(asked)] if block["type"] == "tool_result"}
    _refuse_unanswered(before, [id for id in asked if id not in at_once])


def _refuse_result(where: str, block: Block) -> None:
    content = block.get("content", "")
    texts = [content] if isinstance(content, str) else [one.get("text", "") for one in content if one["type"] == "text"]
    if block.get("is_error") and not any(texts):
        bad(f"{where}.tool_result: content cannot be empty if `is_error` is true")
    if isinstance(content, list) or (content and not content.strip()):
        refuse_blank("messages", texts)


def _refuse_unanswered(turn: _Turn | None, missing: list[str]) -> None:
    if turn is None or not missing:
        return
    last = turn.of("tool_use")[-1][0].split(".")[1]
    bad(
        f"messages.{last}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
        "message."
    )


def _refuse_thinking(turn: _Turn) -> None:
    for where, block in turn.of("thinking"):
        for name in ("thinking", "signature"):
            if name not in block:
                bad(f"{where}.thinking.{name}: Field required")
        if not fits(block["signature"], block["thinking"]):
            bad(f"{where}: Invalid `signature` in `thinking` block")
    if turn.blocks and turn.blocks[-1][1]["type"] == "thinking":
        bad(f"messages.{turn.place}: The final block in an assistant message cannot be `thinking`.")


def _refuse_end(turns: list[_Turn], body: dict[str, Any]) -> None:
    last = turns[-1]
    if (body.get("thinking") or {}).get("type") == "enabled":
        _refuse_thoughtless(turns)
    if last.role != "assistant":
        return
    _refuse_unanswered(last, [block["id"] for _, block in last.of("tool_use")])
    if not takes_prefill(body["model"]):
        bad("This model does not support assistant message prefill. The conversation must end with a user message.")
    if last.blocks and (text := last.blocks[-1][1].get("text", "")) != text.rstrip():
        bad("messages: final assistant content cannot end with trailing whitespace")


def _refuse_thoughtless(turns: list[_Turn]) -> None:
    """With thinking switched on, the turn that is being continued begins with a thought."""
    open_turn = turns[-1] if turns[-1].role == "assistant" else turns[-2] if len(turns) > 1 else None
    going_on = open_turn is turns[-1] or bool(turns[-1].of("tool_result"))
    if open_turn is None or not going_on or not open_turn.blocks:
        return
    where, first = open_turn.blocks[0]
    if first["type"] not in ("thinking", "redacted_thinking"):
        bad(
            f"{where}.type: Expected `thinking` or `redacted_thinking`, but found `{first['type']}`. When `thinking` "
            "is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of "
            "`tool_use` and `tool_result` blocks)."
        )


def takes_prefill(model: str) -> bool:
    """Whether the model goes on with a message of the assistant that ends the request; newer ones do not."""
    return not since(model, NO_PREFILL_SINCE)


LEAST_BUDGET: Final = 1024
ADAPTS_SINCE: Final = (4, 6)
NO_BUDGET_SINCE: Final = (4, 7)
NO_SAMPLING_SINCE: Final = (4, 7)
SAMPLING: Final = ("temperature", "top_p", "top_k")
WITHOUT_SAMPLING: Final = "2026-10-21"
"""The version of the API that no longer knows the parameters of sampling."""

# fmt: off
PARAMETERS: Final = frozenset({
    "model", "messages", "max_tokens", "cache_control", "container", "context_management", "diagnostics",
    "inference_geo", "mcp_servers", "metadata", "output_config", "service_tier", "speed", "stop_sequences", "stream",
    "system", "temperature", "thinking", "tool_choice", "tools", "top_k", "top_p",
})
# fmt: on


def refuse(request: Incoming, body: Any, terms: Terms) -> None:
    """Raise `Refused` where the real provider would answer with an error."""
    refuse_key(request, terms)
    if "anthropic-version" not in request.headers:
        bad("anthropic-version: header is required")
    if not isinstance(body, dict):
        bad("The request body is not valid JSON.")
    for name in ("model", "max_tokens", "messages"):
        if name not in body:
            bad(f"{name}: Field required")
    for name in body:
        if name not in PARAMETERS or (name in SAMPLING and request.headers["anthropic-version"] >= WITHOUT_SAMPLING):
            bad(f"{name}: Extra inputs are not permitted")
    if not isinstance(body["model"], str) or not terms.has(body["model"], MODELS):
        raise Refused(unknown_model(str(body["model"])))
    _refuse_limits(body)
    _refuse_sampling(body)
    _refuse_tools(body.get("tools") or [])
    _refuse_system(body.get("system"))
    refuse_messages(body)


def refuse_key(request: Incoming, terms: Terms) -> None:
    if terms.key is None:
        return
    key = request.headers.get("x-api-key")
    if key is None and "authorization" in request.headers:
        key = request.headers["authorization"].partition(" ")[2]
    if not key:
        raise Refused(problem_of(401, "authentication_error", "x-api-key header is required"))
    if key != terms.key:
        raise Refused(problem_of(401, "authentication_error", "invalid x-api-key"))


def unknown_model(model: str) -> Problem:
    return problem_of(404, "not_found_error", f"model: {model}")


def _refuse_limits(body: dict[str, Any]) -> None:
    limit = body["max_tokens"]
    if not isinstance(limit, int) or isinstance(limit, bool):
        bad("max_tokens: Input should be a valid integer")
    if limit < 0:
        bad("max_tokens: Input should be greater than or equal to 0")
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "adaptive" and not since(body["model"], ADAPTS_SINCE, unknown=True):
        bad("adaptive thinking is not supported on this model")
    if thinking.get("type") != "enabled":
        return
    if since(body["model"], NO_BUDGET_SINCE):
        bad(
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
            '"output_config.effort" to control thinking behavior.'
        )
    budget = thinking.get("budget_tokens")
    if budget is None:
        bad("thinking.enabled.budget_tokens: Field required")
    if budget < LEAST_BUDGET:
        bad(f"thinking.enabled.budget_tokens: Input should be greater than or equal to {LEAST_BUDGET}")
    if budget >= limit:
        bad("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _refuse_sampling(body: dict[str, Any]) -> None:
    thinks = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
    for name in SAMPLING:
        if body.get(name) is not None and since(body["model"], NO_SAMPLING_SINCE):
            bad(f"`{name}` is deprecated for this model.")
    if thinks and body.get("temperature") not in (None, 1):
        bad("`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.")


def _refuse_tools(tools: list[dict[str, Any]]) -> None:
    for place, tool in enumerate(tools):
        if tool.get("type", "custom") != "custom":
            continue
        for name in ("name", "input_schema"):
            if name not in tool:
                bad(f"tools.{place}.custom.{name}: Field required")
        if not NAME.fullmatch(tool["name"]):
            bad(f"tools.{place}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if not isinstance(tool["input_schema"], dict) or tool["input_schema"].get("type") != "object":
            bad(f"tools.{place}.custom.input_schema.type: Input should be 'object'")
    names = [tool.get("name") for tool in tools]
    if len(set(names)) < len(names):
        bad("tools: Tool names must be unique.")


def _refuse_system(system: object) -> None:
    if isinstance(system, list):
        refuse_blank("system", (block.get("text", "") for block in system))
    elif system is not None and not isinstance(system, str):
        bad("system: Input should be a valid list")
