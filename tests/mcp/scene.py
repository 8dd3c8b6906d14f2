"""What these tests share: servers of both kinds, and agents that use them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from checkrein import MCP, Agent, Run, Runtime
from checkrein.models import ScriptedModel, ToolResult, Turn
from tests.support.witness import Witness, until

ROOT = str(Path(__file__).parents[2])
SERVER = [sys.executable, "-m", "tests.mcp.server"]


def command(witness: Witness, name: str = "notes", *, run: Sequence[str] = SERVER, **options: Any) -> MCP:
    """The server as a command."""
    env = {"PYTHONPATH": ROOT, "LOG": witness.log, **options.pop("env", {})}
    return MCP(name, command=run, env=env, **options)


def bare(witness: Witness, **options: Any) -> MCP:
    """A server written out by hand, which cannot be told anything while it works."""
    return command(witness, "bare", run=[sys.executable, "-m", "tests.mcp.bare"], **options)


@asynccontextmanager
async def listening(witness: Witness, folder: Path, **env: str) -> AsyncIterator[tuple[str, subprocess.Popen[bytes]]]:
    """The server on a port of this machine; its address, and its process."""
    file = folder / f"port-{len(list(folder.glob('port-*')))}"
    environment = {**os.environ, "PYTHONPATH": ROOT, "LOG": witness.log, **env}
    process = subprocess.Popen([*SERVER, "--http", str(file)], env=environment)
    try:
        await until(file.exists)
        yield f"http://127.0.0.1:{file.read_text()}/mcp", process
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


def agent(turns: Sequence[Any], *tools: Any, name: str = "churn", pace: float | None = None) -> Agent:
    return Agent(name, model=ScriptedModel(turns, tokens_per_second=pace), tools=tools)


def ask(name: str, **arguments: object) -> Turn:
    """A turn in which the model asks for one tool."""
    return Turn("Working.", calls=[(name, arguments)])


def model(of: Agent) -> ScriptedModel:
    assert isinstance(of.model, ScriptedModel)
    return of.model


def told(of: Agent) -> list[str]:
    """What the model was told of its tool calls, with its latest request."""
    return [message.content for message in model(of).asked[-1].messages if isinstance(message, ToolResult)]


def offered(of: Agent, turn: int = -1) -> list[str]:
    """The tools that the model was offered."""
    return [tool.name for tool in model(of).asked[turn].tools]


async def started(runtime: Runtime, of: Agent) -> Run:
    return await runtime.start(of, "Take notes.")
