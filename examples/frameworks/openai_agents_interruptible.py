"""The same, interruptible: `checkrein run examples/frameworks/openai_agents_interruptible.py "Refund order 7."`"""

from pathlib import Path

from agents import Agent, OpenAIChatCompletionsModel, function_tool
from openai import AsyncOpenAI

from checkrein import Undone
from checkrein.adapters.openai_agents import Rules, interruptible


@function_tool
def find_order(number: int) -> str:
    """Look an order up."""
    return f"Order {number}: one chair, 40 francs, paid."


@function_tool
def refund(number: int, francs: int) -> str:
    """Pay the money of an order back."""
    with Path("refunds.log").open("a") as log:
        log.write(f"{number} {francs}\n")
    return f"{francs} francs are on their way."


support = Agent(
    name="support",
    instructions="Look the order up, then refund it.",
    model=OpenAIChatCompletionsModel("gpt-5", AsyncOpenAI()),
    tools=[find_order, refund],
)


def take_back(call: Undone) -> None:
    with Path("refunds.log").open("a") as log:
        log.write(f"{call.arguments['number']} taken back\n")


agent = interruptible(support, tools={"find_order": Rules(effect="none"), "refund": Rules(undo=take_back)})
