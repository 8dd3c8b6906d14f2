"""Tools that keep a log of their own: the witness of what was done, fsynced, outside the runtime."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from checkrein import tool


def note(log: str, line: str) -> None:
    with open(log, "a") as file:
        file.write(f"{time.time():.6f} {line}\n")
        file.flush()
        os.fsync(file.fileno())


def lines(log: str | Path) -> list[str]:
    path = Path(log)
    return [line.partition(" ")[2] for line in path.read_text().splitlines()] if path.exists() else []


def times(log: str | Path, wanted: str) -> list[float]:
    return [
        float(line.partition(" ")[0]) for line in Path(log).read_text().splitlines() if line.partition(" ")[2] == wanted
    ]


def discard(call: Any) -> None:
    note(call.arguments["log"], f"discard {call.result}")


@tool(undo=discard)
async def make_draft(log: str) -> str:
    """Make a draft."""
    note(log, "draft")
    return "draft-7"


@tool(effect="none")
def crunch(log: str, ticks: int = 600) -> int:
    """Work for long, and leave a child that works too."""
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import time\nwhile True:\n    time.sleep(0.02); open({log!r}, 'a').write('0 child\\n')",
        ],
        start_new_session=True,
    )
    note(log, f"child {child.pid}")
    for _ in range(ticks):
        time.sleep(0.05)
        note(log, "tick")
    child.kill()
    return ticks


@tool
def send(log: str, seconds: float = 0.0, file: str = "") -> str:
    """Send an e-mail. It takes so many seconds, or until there is a file of this name."""
    note(log, "sending")
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (file and os.path.exists(file)):
        time.sleep(0.01)
    note(log, "sent")
    return "sent"


@tool(effect="irreversible")
async def wire_money(log: str) -> str:
    """Send money."""
    note(log, "wired")
    return "wired"
