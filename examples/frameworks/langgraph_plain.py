"""A support agent with LangGraph, as anybody would write it: `python examples/frameworks/langgraph_plain.py`."""

from pathlib import Path

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


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
)


if __name__ == "__main__":
    print(support.invoke({"messages": [{"role": "user", "content": "Refund order 7."}]})["messages"][-1].text)
