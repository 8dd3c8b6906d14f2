"""The agent of the demo: what it is told, what it may use, and what ends it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from checkrein.agents.agent import Agent

GOAL: Final = "Which customers will churn next quarter, and what should we do about it?"

GOALS: Final = (
    GOAL,
    "Which customers in France will churn? Send the memo to the account team.",
    "Which contracts that end in Q3 are at risk? Do not send anything.",
)
"""Offered in the page, to be clicked: all of it, with an e-mail that asks for consent, and without one."""

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
    from checkrein.agents.agent import Agent
    from checkrein.core.conditions import Cost, Elapsed, Turns
    from checkrein.demo import data, model, tools

    folder = folder.absolute()
    data.make(folder)
    return Agent(
        "churn",
        model=model.churn_model(folder, pace),
        instructions=INSTRUCTIONS,
        tools=tools.TOOLS,
        plan=model.STEPS,
        goals=GOALS,
        stop_when=Turns(20) | Cost(usd=1) | Elapsed(minutes=10),
    )
