"""An agent that sends one thing after the other, none of which may be sent twice; and a host on which it works.

python -m tests.support.senders ADDRESS LOG CLOCK LEASE_SECONDS: another host, as far as anybody can tell, whose wall
clock is wrong by as many seconds as stand in the file CLOCK. It drives one run until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import cache
from pathlib import Path

if __name__ == "__main__":
    _true, _clock = time.time, Path(sys.argv[3])
    time.time = lambda: _true() + float(_clock.read_text())

from checkrein import Context, Runtime, agent, tool
from checkrein.processes import identity
from tests.support.witness import Witness, note


@tool
async def send(log: str, what: str) -> str:
    """Send something, which cannot be sent twice."""
    note(log, what)
    await asyncio.sleep(0.05)
    return what


@tool(effect="none", idempotent=True)
async def is_enough(log: str) -> bool:
    """Whether somebody has said so."""
    return Witness(f"{log}.enough").words() != []


@agent
async def sender(ctx: Context, log: str) -> int:
    """Sends one thing after the other until it is enough. Its goal is the path of the log."""
    number = 0
    while not await ctx.tool(is_enough, log=log):
        await ctx.tool(send, log=log, what=f"{ctx.run}-{number}")
        number += 1
    return number


async def main(address: str, log: str, lease_seconds: float) -> None:
    identity._host = cache(lambda: "elsewhere")
    identity._boot_id = cache(lambda: "another boot")
    async with Runtime(address, agents=[sender], lease_seconds=lease_seconds) as runtime:
        await runtime.start(sender, log)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[4])))
