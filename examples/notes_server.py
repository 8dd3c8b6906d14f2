"""A small MCP server that keeps notes in a file: the other half of `mcp_agent.py`, which starts it.

    NOTES_FILE=notes.json python examples/notes_server.py

It is made with the package `mcp` alone and knows nothing of Checkrein; any other MCP server will do as well.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("notes", log_level="WARNING")
FILE = Path(os.environ.get("NOTES_FILE", "notes.json"))


def load() -> dict[str, str]:
    return dict(json.loads(FILE.read_text())) if FILE.exists() else {}


def save(notes: dict[str, str]) -> None:
    half = FILE.with_suffix(".half")
    half.write_text(json.dumps(notes, indent=1))
    half.replace(FILE)


@server.tool()
async def add_note(text: str) -> int:
    """Keep a note. Returns its number."""
    notes = load()
    number = max(map(int, notes), default=0) + 1
    save({**notes, str(number): text})
    return number


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def list_notes() -> dict[str, str]:
    """Every note, by its number."""
    return load()


@server.tool()
async def delete_note(number: int) -> bool:
    """Throw a note away. False when there is none of this number."""
    notes = load()
    if notes.pop(str(number), None) is None:
        return False
    save(notes)
    return True


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def proofread(context: Context, seconds_each: float = 0.2) -> str:
    """Read all notes slowly, and say how far it is."""
    notes = load()
    for done, text in enumerate(notes.values(), start=1):
        await asyncio.sleep(seconds_each)
        await context.report_progress(done, len(notes), text[:40])
    return f"{len(notes)} notes read, nothing wrong with them"


if __name__ == "__main__":
    server.run("stdio")
