"""A support agent with Pydantic AI, as anybody would write it: `python examples/frameworks/pydantic_ai_plain.py`."""

from pathlib import Path

from pydantic_ai import Agent

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


if __name__ == "__main__":
    print(support.run_sync("Refund order 7.").output)
