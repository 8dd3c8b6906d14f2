"""A support agent with Google ADK, as anybody would write it: `python examples/frameworks/google_adk_plain.py`."""

import asyncio
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner


def find_order(number: int) -> str:
    """Look an order up."""
    return f"Order {number}: one chair, 40 francs, paid."


def refund(number: int, francs: int) -> str:
    """Pay the money of an order back."""
    with Path("refunds.log").open("a") as log:
        log.write(f"{number} {francs}\n")
    return f"{francs} francs are on their way."


support = LlmAgent(
    name="support",
    model="gemini-2.5-flash",
    instruction="Look the order up, then refund it.",
    tools=[find_order, refund],
)

if __name__ == "__main__":
    asyncio.run(InMemoryRunner(support).run_debug("Refund order 7."))
