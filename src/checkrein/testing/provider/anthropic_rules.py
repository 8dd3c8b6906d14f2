"""What Anthropic's messages refuse about a request as a whole, in their words.

Some of it depends on the model's generation (thinking by a budget, sampling), some on the version of the API that the
request names.
"""

from __future__ import annotations

from typing import Any, Final

from checkrein.testing.provider.anthropic import MODELS, problem_of
from checkrein.testing.provider.anthropic_turns import NAME, bad, refuse_blank, refuse_messages, since
from checkrein.testing.provider.http import Incoming
from checkrein.testing.provider.wire import Problem, Refused, Terms

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
