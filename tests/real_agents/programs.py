"""Agents that people run in a terminal, as they are installed from npm and PyPI: which, how, and how each is asked.

Data, one entry a program. The versions are those that were tried.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

FOLDER: Final = Path(__file__).parents[2] / ".venv-agents"
"""Where they are installed, each in a folder of its own."""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """One program, and how it is given a goal without a person at a terminal."""

    name: str
    file: str
    """Below its folder."""
    npm: tuple[str, ...] = ()
    pypi: tuple[str, ...] = ()
    megabytes: int
    """What it takes on the disk."""
    arguments: tuple[str, ...]
    """`{goal}` is what it is asked."""
    variables: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
    """Settings below its home."""
    last_call: tuple[str, dict[str, str]] | None = None
    """The tool that it must be asked for at the end; None: it ends with an answer that asks for none."""
    streams: bool = True
    sub_agent: tuple[str, dict[str, Any]] | None = None
    """The tool that hands a task to a sub-agent and waits for it, without the task; None: it has none."""
    hears_of_kills: bool = True
    """It goes on when its command was killed."""

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def path(self) -> Path:
        return self.folder / self.file

    def command(self, goal: str) -> list[str]:
        return [str(self.path), *(argument.replace("{goal}", goal) for argument in self.arguments)]


_FOREGROUND: Final = {"description": "a task", "run_in_background": False}

AGENTS: Final = (
    Agent(
        name="claude",
        file="node_modules/.bin/claude",
        npm=("@anthropic-ai/claude-code@2.1.326",),
        megabytes=355,
        # As root it refuses to skip permissions, so they are given.
        arguments=("-p", "{goal}", "--model", "claude-sonnet-4-5", "--allowedTools", "Bash"),
        sub_agent=("Agent", _FOREGROUND | {"subagent_type": "general-purpose"}),
        variables={"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
    ),
    Agent(
        name="codex",
        file="node_modules/.bin/codex",
        npm=("@openai/codex@0.169.0",),
        megabytes=404,
        arguments=(
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "-m",
            "gpt-5",
            "{goal}",
        ),
        files={".codex/config.toml": "check_for_update_on_startup = false\n"},
    ),
    Agent(
        name="gemini",
        file="node_modules/.bin/gemini",
        npm=("@google/gemini-cli@0.61.0",),
        megabytes=100,
        arguments=("--yolo", "--skip-trust", "-m", "gemini-2.5-pro", "-p", "{goal}"),
        files={
            ".gemini/settings.json": '{"general":{"disableAutoUpdate":true,"enableAutoUpdate":false},'
            '"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false}}'
        },
    ),
    Agent(
        name="opencode",
        file="node_modules/.bin/opencode",
        npm=("opencode-ai@1.18.33",),
        megabytes=354,
        arguments=("run", "-m", "anthropic/claude-sonnet-4-5", "{goal}"),
        sub_agent=("task", {"description": "a task", "subagent_type": "general"}),
        hears_of_kills=False,
        variables={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    ),
    Agent(
        name="qwen",
        file="node_modules/.bin/qwen",
        npm=("@qwen-code/qwen-code@0.24.4",),
        megabytes=144,
        arguments=("--yolo", "--auth-type", "openai", "-m", "gpt-4o", "-p", "{goal}"),
        sub_agent=("agent", _FOREGROUND | {"subagent_type": "general-purpose"}),
        files={
            ".qwen/settings.json": '{"general":{"disableAutoUpdate":true,"enableAutoUpdate":false},'
            '"privacy":{"usageStatisticsEnabled":false}}'
        },
    ),
    Agent(
        name="copilot",
        file="node_modules/.bin/copilot",
        npm=("@github/copilot@1.0.102",),
        megabytes=189,
        arguments=("--allow-all-tools", "--no-auto-update", "-p", "{goal}"),
        sub_agent=(
            "task",
            {"description": "a task", "agent_type": "general-purpose", "name": "looker", "mode": "sync"},
        ),
        variables={"COPILOT_PROVIDER_API_KEY": "{key}", "COPILOT_MODEL": "gpt-5", "COPILOT_AUTO_UPDATE": "false"},
    ),
    Agent(
        name="mini",
        file="bin/mini",
        pypi=("mini-swe-agent==2.4.6", "mcp"),
        megabytes=735,
        arguments=("-y", "--exit-immediately", "-m", "openai/gpt-5", "-t", "{goal}"),
        variables={"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"},
        last_call=("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}),
        streams=False,
    ),
    Agent(
        name="gptme",
        file="bin/gptme",
        pypi=("gptme==0.35.1",),
        megabytes=254,
        arguments=("-n", "-m", "openai/gpt-5", "--tool-format", "tool", "-t", "shell", "{goal}"),
        last_call=("complete", {}),
    ),
)


def chosen() -> list[Agent]:
    """All of them, or those that CHECKREIN_TEST_AGENTS names."""
    wanted = os.environ.get("CHECKREIN_TEST_AGENTS", "").split()
    unknown = {*wanted} - {agent.name for agent in AGENTS}
    assert not unknown, f"CHECKREIN_TEST_AGENTS names {unknown}; there are {[agent.name for agent in AGENTS]}"
    return [agent for agent in AGENTS if not wanted or agent.name in wanted]
