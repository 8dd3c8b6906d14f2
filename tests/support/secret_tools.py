"""Tools that have a secret, and do with it what a careless tool does. Each notes in a log of its own that it had it."""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Any

from checkrein import tool
from tests.support.agent_tools import note

NAME = "SERVICE_KEY"


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def have(log: str) -> str:
    secret = os.environ[NAME]
    note(log, f"had {digest(secret)}")
    return secret


@tool(effect="none")
def tell(log: str) -> str:
    """Tell the key. Runs in a worker process."""
    return f"The key is {have(log)}, use it."


@tool(effect="none")
async def tell_in_json(log: str) -> dict[str, Any]:
    """Tell the key, in several ways."""
    secret = have(log)
    encoded = base64.b64encode(f"user:{secret}".encode()).decode()
    return {"plain": [secret], secret: True, "headers": {"Authorization": f"Basic {encoded}"}, "count": 3}


@tool(effect="none", isolation="thread")
def fail_with_it(log: str) -> None:
    """Fail, and tell the key in the error."""
    raise ValueError(f"401 for key {have(log)}")


def forget(call: Any) -> None:
    note(call.arguments["log"], f"undone {call.result}")


@tool(undo=forget)
async def make_session(log: str) -> str:
    """Open a session and return its token."""
    return have(log)


@tool(effect="none")
def fetch(log: str, key: str = os.environ.get(NAME, "Zx8kQ2mLw9Rt4Vb7Nc1Y")) -> str:
    """Take the key as a default argument, which is read when the module is imported."""
    note(log, f"given {key}")
    return "fetched"


@tool(effect="irreversible")
async def pay(log: str) -> str:
    """Pay."""
    note(log, "paid")
    return "paid"
