"""A demonstration without key or network: a scripted model, real tools, a real data set, and slow enough to stop.

`checkrein demo` plays the agent for a person to interrupt; `tour.play` plays by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from checkrein.agents.loop import Agent

GOAL: Final = "Which customers will churn next quarter, and what should we do about it?"

INSTRUCTIONS: Final = (
    "You are an analyst of a small software company. Find out which customers are likely to leave next quarter: fetch "
    "the customer list, join it against revenue, score the risk, and write a short memo with what to do about it. Lock "
    "the revenue table while you read it, and release it when you are done. Send nothing unless you are asked to."
)


def agent(folder: Path, *, pace: float = 1.0) -> Agent:
    """The agent `churn`, on the data set in `folder`, which is made there unless it exists.

    At pace 1 a run takes about half a minute; at pace 0 nothing waits.
    """
    # Here, and not above: every worker process that runs one of the tools imports this package.
    from checkrein.agents.loop import Agent
    from checkrein.core.conditions import Cost, Elapsed, Turns
    from checkrein.demo import data, script, tools

    folder = folder.absolute()
    data.make(folder)
    return Agent(
        "churn",
        model=script.churn_model(folder, pace),
        instructions=INSTRUCTIONS,
        tools=tools.TOOLS,
        plan=script.STEPS,
        stop_when=Turns(20) | Cost(usd=1) | Elapsed(minutes=10),
    )
