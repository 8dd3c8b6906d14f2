"""The same agent, interruptible: `checkrein run examples/frameworks/langgraph_interruptible.py "Refund order 7."`."""

from pathlib import Path

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from checkrein import Undone
from checkrein.adapters.langgraph import Reins, Rules, interruptible


def find_order(number: int) -> str:
    """Look an order up."""
    return f"Order {number}: one chair, 40 francs, paid."


def refund(number: int, francs: int) -> str:
    """Pay the money of an order back."""
    with Path("refunds.log").open("a") as log:
        log.write(f"{number} {francs}\n")
    return f"{francs} francs are on their way."


support = create_agent(
    ChatOpenAI(model="gpt-5"),
    [find_order, refund],
    system_prompt="Look the order up, then refund it.",
    name="support",
    middleware=[Reins()],
)


def take_back(call: Undone) -> None:
    with Path("refunds.log").open("a") as log:
        log.write(f"{call.arguments['number']} taken back\n")


agent = interruptible(support, tools={"find_order": Rules(effect="none"), "refund": Rules(undo=take_back)})
