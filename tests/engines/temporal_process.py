"""A worker of the Temporal engine as a process: `python -m tests.engines.temporal_process STORE HOST:PORT NAMESPACE
SLOTS LEASE_SECONDS HEARTBEAT_SECONDS`.

It drives runs of the agent `stepper` until SIGTERM. A tool that is at work waits for its gate, a file that the test
makes. What a tool did, it says itself.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from functools import partial
from pathlib import Path

from checkrein import Runtime, agent, tool
from checkrein.agents.context import Context
from checkrein.engines.temporal import TemporalEngine, TemporalOptions
from tests.support.witness import note


@tool
async def step(log: str, name: str) -> str:
    """Waits for its gate. Cannot be repeated."""
    note(log, f"begin {name}")
    while not Path(f"{log}.{name}").exists():
        await asyncio.sleep(0.01)
    note(log, f"end {name}")
    return name


@tool
async def block(log: str, name: str, seconds: float) -> str:
    """Does what no async tool should: it keeps the event loop from turning."""
    note(log, f"begin {name}")
    time.sleep(seconds)  # noqa: ASYNC251
    note(log, f"end {name}")
    return name


@agent(tools=[step, block])
async def stepper(ctx: Context, goal: str) -> str:
    """The goal is `LOG STEP…`: each a name, with `=3` behind it one that blocks the event loop for so long."""
    log, *names = goal.split()
    for name in names:
        name, _, seconds = name.partition("=")
        if seconds:
            await ctx.tool(block, log=log, name=name, seconds=float(seconds))
        else:
            await ctx.tool(step, log=log, name=name)
    return "done"


async def main(store: str, address: str, namespace: str, slots: str, lease: str, heartbeat: str) -> None:
    options = TemporalOptions(address=address, namespace=namespace, heartbeat_seconds=float(heartbeat))
    engine = partial(TemporalEngine, options=options)
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    async with Runtime(store, agents=[stepper], lease_seconds=float(lease), slots=int(slots), engine=engine):
        print("ready", flush=True)
        await end.wait()
    print("ended", flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(*sys.argv[1:]))
