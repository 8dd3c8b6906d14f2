"""A process that drives a run of an adapted agent, to be killed: `child.py FRAMEWORK STORE URL KEY LOG GOAL`."""

from __future__ import annotations

import asyncio
import importlib
import sys

from checkrein import Runtime


async def main(framework: str, store: str, url: str, key: str, log: str, goal: str) -> None:
    agent = importlib.import_module(framework).adapted(url, key, log)
    async with Runtime(store, agents=[agent]) as runtime:
        print((await runtime.start(agent, goal)).id if goal else "", flush=True)
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
