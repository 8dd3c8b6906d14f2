"""A process that drives the demo's agent, for others to pause, kill and replace.

    python -m examples.tour.drive STORE DATA PACE GOAL         begin a run
    python -m examples.tour.drive STORE DATA PACE --resume RUN

Prints the id of the run, and its result when it has one.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from checkrein.demo import agent
from checkrein.runtime import Runtime


async def drive(store: str, data: Path, pace: float, *, goal: str = "", resume: str = "") -> None:
    churn = agent(data, pace=pace)
    async with Runtime(store, agents=[churn]) as runtime:
        run = await runtime.get(resume) if resume else await runtime.start(churn, goal)
        print(run.id, flush=True)
        if resume:
            await run.resume(by="you")
        print(await run.result(), flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [store, data, pace, "--resume", run]:
            asyncio.run(drive(store, Path(data), float(pace), resume=run))
        case [store, data, pace, goal]:
            asyncio.run(drive(store, Path(data), float(pace), goal=goal))
        case _:
            sys.exit("usage: python -m examples.tour.drive STORE DATA PACE (GOAL | --resume RUN)")
