"""A scenario for programs that bring a tool for shell commands: have one run, then say something.

Programs call that tool by different names and give it different arguments. It is found among the tools that the request
offers, on whichever wire.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from checkrein.testing.provider.log import Request
from checkrein.testing.provider.scenario import Choose, Reply

NAMES: Final = ("bash", "shell", "run_shell_command", "shell_command", "exec_command", "run_command", "execute", "exec")
"""What programs call it, in small letters; the earlier one is taken where there are several."""

THOUGHT: Final = "A command will tell."

RESULTS: Final = (b'"tool_result"', b'"role":"tool"', b'"function_call_output"', b'"functionResponse"')


def runs_command(command: str, then: Reply | str) -> Choose:
    """Ask for `command` in the first request that offers a shell, and answer everything else with `then`."""

    def choose(request: Request) -> Reply | str:
        sent = bytes(request.raw).replace(b'": ', b'":')
        if any(sign in sent for sign in RESULTS):
            return then
        shells = sorted((place, tool) for tool in _tools(request.body) if (place := _place(tool)) is not None)
        if not shells:
            return then
        _, (name, schema) = shells[0]
        return Reply(thinking=THOUGHT if thinks(request) else "", calls=[(name, _arguments(schema, command))])

    return choose


def thinks(request: Request) -> bool:
    """Whether thinking is switched on, so that an answer with a call has to begin with a thought: Anthropic's rule."""
    return request.wire == "anthropic" and (request.body.get("thinking") or {}).get("type") == "enabled"


def _place(tool: tuple[str, dict[str, Any]]) -> int | None:
    name = tool[0].lower()
    return NAMES.index(name) if name in NAMES else None


def _tools(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and schema of every tool that a request offers."""
    for tool in body.get("tools") or ():
        for one in (tool.get("function") or tool, *(tool.get("functionDeclarations") or ())):
            if "name" in one:
                schemas = ("input_schema", "parameters", "parametersJsonSchema")
                yield one["name"], next((one[key] for key in schemas if one.get(key)), {})


def _arguments(schema: dict[str, Any], command: str) -> dict[str, Any]:
    """`command` where the schema wants it, and a word for whatever else is required."""
    properties = schema.get("properties", {})
    field = next((name for name in ("command", "cmd", "commands", "script", "code") if name in properties), "command")
    words = {name: "a command" for name in schema.get("required", ()) if name != field}
    is_list = str(properties.get(field, {}).get("type", "")).lower() == "array"
    return words | {field: ["bash", "-lc", command] if is_list else command}
