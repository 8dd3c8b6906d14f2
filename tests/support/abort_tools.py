"""Tools for whole runs: undoable ones, and those that a stop, a pause or a crash meets in the middle.

Each writes its own log. Those that merely resist being stopped are in `tests.support.tools`.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from checkrein import current_call, tool
from tests.support.tools import whatever_is_raised
from tests.support.witness import Witness, note

# -- effects that can be undone


def discard(call: Any) -> None:
    note(call.arguments["log"], f"undo {call.arguments['what']}")


async def discard_async(call: Any) -> None:
    note(call.arguments["log"], f"undo {call.arguments['what']}")


async def rest(seconds: float, file: str) -> None:
    """Return after so many seconds, or once there is a file of this name."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (file and os.path.exists(file)):
        await asyncio.sleep(min(0.01, seconds))


@tool(undo=discard_async)
async def draft(log: str, what: str = "draft", seconds: float = 0.0, file: str = "") -> str:
    """Make something that a cancel discards."""
    note(log, what)
    await rest(seconds, file)
    note(log, f"{what} made")
    return what


@tool(undo=discard)
def lock(log: str, what: str = "lock", seconds: float = 0.0) -> str:
    """Take a lock, in a worker process."""
    note(log, what)
    time.sleep(seconds)
    note(log, f"{what} made")
    return what


@tool(undo=discard_async)
async def keep(log: str, what: str = "kept") -> str:
    """Do something undoable that is meant to stay."""
    current_call().settle()
    note(log, what)
    return what


@tool(undo=discard)
def keep_in_worker(log: str, what: str = "kept") -> str:
    current_call().settle()
    note(log, what)
    return what


def fail_to_discard(call: Any) -> None:
    """Fails until somebody has mended what is wrong."""
    note(call.arguments["log"], f"undo {call.key}")
    if not Path(call.arguments["mended"]).exists():
        raise ConnectionError("the draft service is down")
    note(call.arguments["log"], "undone")


@tool(undo=fail_to_discard)
async def stubborn_draft(log: str, mended: str) -> str:
    note(log, "draft")
    return "draft"


async def hang_while_discarding(call: Any) -> None:
    note(call.arguments["log"], f"undo {call.key}")
    await asyncio.sleep(3600)


@tool(undo=hang_while_discarding)
async def sticky_draft(log: str) -> str:
    note(log, "draft")
    return "draft"


async def wait_while_discarding(call: Any) -> None:
    """Takes until the file `let` exists."""
    note(call.arguments["log"], f"begin undo {call.arguments['what']}")
    while not Path(call.arguments["let"]).exists():
        await asyncio.sleep(0.01)
    note(call.arguments["log"], f"undo {call.arguments['what']}")


@tool(undo=wait_while_discarding)
async def slow_draft(log: str, let: str, what: str = "draft", seconds: float = 0.0) -> str:
    note(log, what)
    await asyncio.sleep(seconds)
    return what


def tell_all(call: Any) -> None:
    """What an undo is given."""
    note(call.arguments["log"], f"undo {call.key} {call.name} {call.outcome} {call.result}")


@tool(undo=tell_all)
def open_session(log: str, seconds: float = 0.0) -> dict[str, int]:
    note(log, "open")
    time.sleep(seconds)
    return {"session": 7}


@tool(undo=discard_async, isolation="thread")
def stuck(log: str, what: str) -> None:
    """In a system call that nothing interrupts, and deaf on its way there."""

    def work() -> None:
        if not Witness(log).lines(what):
            note(log, what)
        time.sleep(3600)

    whatever_is_raised(work)


# -- tools without an undo


@tool(effect="none")
async def work(log: str, word: str = "work", seconds: float = 3600.0, file: str = "") -> str:
    """Something that takes its time, and changes nothing."""
    note(log, word)
    await rest(seconds, file)
    note(log, f"{word} done")
    return word


@tool
def send(log: str, seconds: float = 0.0, word: str = "send", file: str = "") -> str:
    """Send an e-mail: nobody can take it back. It takes so many seconds, or until there is a file of this name."""
    note(log, word)
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (file and os.path.exists(file)):
        time.sleep(0.01)
    note(log, "sent")
    return "sent"


@tool(idempotent=True, on_pause="abort")
def fetch(log: str, seconds: float = 0.0) -> int:
    """Slow at the first attempt only."""
    call = current_call()
    note(log, f"fetch {call.attempt} {call.key}")
    if call.attempt == 1:
        time.sleep(seconds)
    note(log, f"fetched {call.attempt}")
    return call.attempt


@tool(on_pause="hold", effect="none")
def count_held(log: str, file: str) -> int:
    """Count until there is a file of this name."""
    ticks = 0
    while not os.path.exists(file):
        note(log, "tick")
        time.sleep(0.02)
        ticks += 1
    return ticks


@tool(on_pause="hold", effect="none")
async def count_held_async(log: str, file: str) -> int:
    ticks = 0
    while not os.path.exists(file):
        await current_call().checkpoint()
        note(log, "tick")
        await asyncio.sleep(0.02)
        ticks += 1
    return ticks


@tool(effect="none")
async def wait_for(log: str, file: str) -> str:
    """Return once there is a file of this name."""
    note(log, "waiting")
    while not os.path.exists(file):
        await asyncio.sleep(0.01)
    note(log, "let go")
    return "let go"


@tool(effect="none")
def wait_for_in_worker(log: str, file: str) -> str:
    note(log, "waiting in a worker")
    while not os.path.exists(file):
        time.sleep(0.01)
    note(log, "worker let go")
    return "let go"


@tool(effect="irreversible")
async def pay(log: str, amount: int = 100) -> str:
    """Send money: asks first."""
    note(log, f"paid {amount}")
    return f"paid {amount}"


# -- files


@tool(effect="none")
def report(log: str, folder: str, waits: bool) -> str:
    """Write a report by way of a scratch folder."""
    call = current_call()
    (call.scratch() / "notes").write_text("rough")
    with call.write(os.path.join(folder, "report.txt")) as file:
        file.write("the whole report")
    note(log, f"scratch {call.scratch()}")
    if waits:
        time.sleep(3600)
    return "written"


def scratch_of(witness: Witness) -> Path:
    return Path(next(line.word for line in witness.lines() if line.word.startswith("scratch ")).partition(" ")[2])
