"""An MCP server of the older kind that hears nothing while it works: it cannot be told to stop, and answers late.

Written out by hand, so that it may do what a well-made server does not. Waits for the file `GO` before it answers a
call, and writes what it does to `LOG`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.runtime.witness import note

LOG, GO = os.environ["LOG"], Path(os.environ["GO"])
TOOL = {"name": "post", "description": "Post a letter.", "inputSchema": {"type": "object"}}
INITIALISED = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "deaf", "version": "1"},
}


def answer(request: dict[str, Any]) -> dict[str, Any] | None:
    match request["method"]:
        case "initialize":
            return INITIALISED
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            note(LOG, "post begins")
            while not GO.exists():
                time.sleep(0.01)
            note(LOG, "post done")
            return {"content": [{"type": "text", "text": "posted"}]}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "notifications/cancelled":
        note(LOG, "told")
    if "id" in request:
        result = answer(request)
        unknown = {"code": -32601, "message": "no such method"}
        reply = {"result": result} if result is not None else {"error": unknown}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}), flush=True)
