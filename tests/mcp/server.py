"""A real MCP server, made with the package's own server. What its tools do they write to a log of their own.

`python -m tests.mcp.server` speaks on its standard input and output; with `--http FILE` it listens on a port of
this machine, which it writes to that file. The log is named by the variable `LOG`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.witness import note

server = MCPServer("notes")
LOG = os.environ.get("LOG", os.devnull)
_notes: dict[int, str] = {}


def say(word: str) -> None:
    note(LOG, word)


@server.tool()
async def add_note(text: str) -> int:
    """Keep a note, and give it a number."""
    say(f"add {text}")
    _notes[len(_notes) + 1] = text
    return len(_notes)


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
async def delete_note(number: int) -> str:
    """Throw a note away."""
    say(f"delete {number}")
    return f"gone: {_notes.pop(number, None)}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
async def whoami() -> int:
    """The number of the server's process."""
    say("whoami")
    return os.getpid()


@server.tool()
async def work(context: Context, steps: int = 3, seconds: float = 0.0, word: str = "work", until: str = "") -> str:
    """Work for a while, and say how far it is; with `until`, until there is such a file."""
    say(f"{word} begins")
    try:
        for step in range(steps):
            await context.report_progress(step + 1, steps, "reading")
            say(f"{word} step")
            await asyncio.sleep(seconds)
        while until and not os.path.exists(until):
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        say(f"{word} cancelled")
        raise
    say(f"{word} done")
    return f"{word} done"


@server.tool()
async def table() -> dict[str, list[int]]:
    """Structure and nothing else."""
    return {"rows": [1, 2]}


@server.tool()
async def picture() -> Image:
    """A picture of seven bytes."""
    return Image(data=b"1234567", format="png")


@server.tool()
async def fail() -> str:
    """Fail."""
    raise ToolError("the shelf is empty")


@server.tool()
async def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
async def variable(called: str) -> str:
    """What it was given in its environment."""
    return os.environ.get(called, "nothing")


@server.tool()
async def key(context: Context) -> str:
    """The key that a call came with."""
    meta: Any = context.request_context.meta
    return str((meta or {}).get("checkrein/key"))


@server.tool()
async def breed() -> int:
    """Start a process that leaves the server's session and works on."""
    code = "from tests.mcp.server import tick; tick()"
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdin=subprocess.DEVNULL)
    return child.pid


def tick() -> None:
    while True:
        say("tick")
        time.sleep(0.05)


@server.tool()
async def learn(context: Context) -> str:
    """Have one more tool from now on."""

    async def trick() -> str:
        """Something new."""
        return "ta-da"

    server.add_tool(trick, name="trick")
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        await context.notify_tools_changed()
    else:
        await context.session.send_tool_list_changed()
    return "learned"


# -- over HTTP


def guarded(app: ASGIApp) -> ASGIApp:
    """Only for those who know the token in a file, if there is one."""
    file = os.environ.get("TOKEN_FILE")

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        token = Path(file).read_text() if file else ""
        if scope["type"] == "http" and token and headers.get(b"authorization") != f"Bearer {token}".encode():
            await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
        else:
            await app(scope, receive, send)

    return guard


def serve(file: str) -> None:
    with socket.create_server(("127.0.0.1", int(os.environ.get("PORT", "0")))) as listening:
        app = guarded(server.streamable_http_app())
        half = Path(f"{file}.half")
        half.write_text(str(listening.getsockname()[1]))
        half.rename(file)
        config = uvicorn.Config(app, log_level="warning")
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    say("started")
    if sys.argv[1:2] == ["--http"]:
        serve(sys.argv[2])
    else:
        server.run("stdio")
