"""The agent of `checkrein demo`, on a real model instead of the scripted one.

    export ANTHROPIC_API_KEY=…
    python examples/churn_on_a_real_model.py --model anthropic:claude-sonnet-4-5

The tools are real: a SQLite data set, a lock, a draft, a scoring process with a child. From another terminal:
`checkrein --help`, with --store as printed.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from checkrein import Agent, Cost, Elapsed, Runtime, Turns
from checkrein.demo import GOAL, INSTRUCTIONS, data
from checkrein.demo.model import STEPS
from checkrein.demo.tools import TOOLS


def make_agent(model: str, folder: Path) -> Agent:
    data.make(folder)
    return Agent(
        "churn",
        model=model,
        instructions=f"{INSTRUCTIONS} The data is in {folder}: give that to every tool as `data`.",
        tools=TOOLS,
        plan=STEPS,
        stop_when=Turns(30) | Cost(usd=1) | Elapsed(minutes=10),
    )


async def main(model: str, folder: Path, goal: str) -> None:
    store = f"sqlite:///{folder}/runs.db"
    agent = make_agent(model, folder)
    async with Runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, goal)
        print(f"run {run.id}; steer it with: checkrein watch {run.id} --store {store}")
        runtime.listen(run.id, lambda chunk: print(chunk.text, end="", flush=True))
        print("\n" + str(await run.result()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The churn agent on a real model.")
    parser.add_argument("--model", default="openai:gpt-5")
    parser.add_argument("--folder", default=None, help="where the data set is, or is to be made")
    parser.add_argument("--goal", default=GOAL)
    given = parser.parse_args()
    where = Path(given.folder or tempfile.mkdtemp(prefix="churn-")).absolute()
    asyncio.run(main(given.model, where, given.goal))
