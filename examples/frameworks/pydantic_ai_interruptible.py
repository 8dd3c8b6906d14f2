"""The same agent, interruptible: `checkrein run examples/frameworks/pydantic_ai_interruptible.py "Refund order 7."`."""

from pathlib import Path

from pydantic_ai import Agent

from checkrein import Undone
from checkrein.adapters.pydantic_ai import Rules, interruptible

support = Agent("openai-chat:gpt-5", name="support", instructions="Look the order up, then refund it.")


@support.tool_plain
def find_order(number: int) -> str:
    """Look an order up."""
    return f"Order {number}: one chair, 40 francs, paid."


@support.tool_plain
def refund(number: int, francs: int) -> str:
    """Pay the money of an order back."""
    with Path("refunds.log").open("a") as log:
        log.write(f"{number} {francs}\n")
    return f"{francs} francs are on their way."


def take_back(call: Undone) -> None:
    with Path("refunds.log").open("a") as log:
        log.write(f"{call.arguments['number']} taken back\n")


agent = interruptible(support, tools={"find_order": Rules(effect="none"), "refund": Rules(undo=take_back)})
