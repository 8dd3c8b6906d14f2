"""The same agent, interruptible: `checkrein run examples/frameworks/google_adk_interruptible.py "Refund order 7."`."""

from pathlib import Path

from google.adk.agents import LlmAgent

from checkrein import Undone
from checkrein.adapters.google_adk import Rules, interruptible


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


def take_back(call: Undone) -> None:
    with Path("refunds.log").open("a") as log:
        log.write(f"{call.arguments['number']} taken back\n")


agent = interruptible(support, tools={"find_order": Rules(effect="none"), "refund": Rules(undo=take_back)})
