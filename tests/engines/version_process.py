"""A worker process of some version: `python -m tests.engines.version_process VERSION ADDRESS LOG [begin]`.

One that knows more migrations than this version has stands for the next one. It drives runs until it is too old for its
store; then it says why, and ends.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time

from checkrein import Agent, Runtime, tool
from checkrein.journal.postgres import schema
from checkrein.models import ScriptedModel, Turn
from tests.support.witness import note

STEPS = 12
ADDED = "ALTER TABLE {schema}.runs ADD COLUMN added text; UPDATE {schema}.version SET version = version + 1;"
"""What the next version's migration does: something old code does not know, and need not."""
CONTRACTED = "UPDATE {schema}.version SET least_reader = version, least_writer = version"
"""What follows once nobody needs the old version any more."""


@tool
def step(number: int, log: str) -> str:
    """Waits to be let through, and says so. Cannot be repeated."""
    while _let_through(log) < number:
        time.sleep(0.02)
    note(log, f"step {number}")
    return "done"


def _let_through(log: str) -> int:
    with open(f"{log}.gate") as file:
        return int(file.read() or 0)


def know(version: int) -> None:
    """Make this process one of a version that knows so many migrations."""
    known = schema.scripts()
    schema.scripts = lambda: (*known, *[ADDED] * version)[:version]  # type: ignore[assignment]


async def main(address: str, log: str, begins: bool) -> None:
    turns = [Turn(f"Step {n}.", calls=[("step", {"number": n, "log": log})]) for n in range(1, STEPS + 1)]
    stepper = Agent("stepper", model=ScriptedModel([*turns, "Done."]), tools=[step])
    async with Runtime(address, agents=[stepper], lease_seconds=5.0) as runtime:
        if begins:
            await runtime.start(stepper, "Take the steps.")
        print("ready", flush=True)
        too_new = await runtime.until_too_old()
    print(too_new.code, flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    know(int(sys.argv[1]))
    asyncio.run(main(sys.argv[2], sys.argv[3], len(sys.argv) > 4))
