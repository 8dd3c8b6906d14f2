"""An MCP server of the older kind, written out by hand: it starts at once, and may do what a well-made one does not.

It hears nothing while it works, so it cannot be told to stop, and answers late: `post` waits for the file `GO`. `die`
ends it, so many times. What it does it writes to `LOG`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.witness import Witness, note

LOG, GO = os.environ["LOG"], Path(os.environ["LOG"] + ".go")
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("post", "die", "whoami")]
INITIALISED = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "bare", "version": "1"},
}


def answer(request: dict[str, Any]) -> dict[str, Any] | None:
    match request["method"]:
        case "initialize":
            return INITIALISED
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            text = perform(request["params"]["name"], request["params"].get("arguments") or {})
            return {"content": [{"type": "text", "text": text}]}
    return None


def perform(name: str, arguments: dict[str, Any]) -> str:
    note(LOG, name)
    if name == "post":
        while not GO.exists():
            time.sleep(0.01)
        note(LOG, "posted")
    if name == "die" and len(Witness(Path(LOG)).lines("die")) <= arguments.get("times", 99):
        os._exit(3)
    return f"{name}: {os.getpid()}"


note(LOG, "started")
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "notifications/cancelled":
        note(LOG, "told")
    if "id" in request:
        result = answer(request)
        unknown = {"code": -32601, "message": "no such method"}
        reply = {"result": result} if result is not None else {"error": unknown}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}), flush=True)
