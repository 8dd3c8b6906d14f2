"""A support agent with the OpenAI Agents SDK, as anybody would write it."""

from pathlib import Path

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI


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

if __name__ == "__main__":
    print(Runner.run_sync(support, "Refund order 7.").final_output)
