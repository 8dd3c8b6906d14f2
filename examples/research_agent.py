"""A research agent: searches, reads and summarises a folder of local files on a real model.

    export OPENAI_API_KEY=…
    python examples/research_agent.py docs "What happens to a tool when a run is cancelled?"

Any model will do: --model anthropic:claude-sonnet-4-5, --model ollama:llama3.1. Ctrl-C pauses it durably; the same
command with --store goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from pathlib import Path

from checkrein import Agent, Cost, Elapsed, Runtime, Turns, current_call, tool

LONGEST = 8_000
"""How many characters of a file the model is given at a time."""


def folder() -> Path:
    """The folder to search: what the agent was given as `deps`."""
    return Path(current_call().deps)


def inside(name: str) -> Path:
    """A file of the folder. What a model writes is not trusted: nothing outside is read."""
    path = (folder() / name).resolve()
    if not path.is_relative_to(folder().resolve()) or not path.is_file():
        raise ValueError(f"There is no file {name}.")
    return path


@tool(effect="none")
async def search(words: str) -> list[str]:
    """Find the files that hold all of these words, with the first line where one of them stands."""
    wanted = [word.lower() for word in words.split()]
    found = []
    for path in sorted(folder().rglob("*")):
        if path.is_file() and path.suffix in {".md", ".txt", ".py", ".rst"}:
            text = path.read_text(errors="replace")
            if all(word in text.lower() for word in wanted):
                line = next((one for one in text.splitlines() if wanted and wanted[0] in one.lower()), "")
                found.append(f"{path.relative_to(folder())}: {line.strip()[:120]}")
    return found[:20]


@tool(effect="none")
async def read(name: str, start: int = 0) -> str:
    """Read a file, from a character on."""
    text = inside(name).read_text(errors="replace")
    rest = len(text) - start - LONGEST
    return text[start : start + LONGEST] + (f"\n[{rest} more characters]" if rest > 0 else "")


def make_agent(model: str, where: str) -> Agent:
    return Agent(
        "research",
        model=model,
        instructions=(
            "Answer the question from the files in the folder and nothing else. Search, read what looks relevant, then "
            "answer in a few sentences and name the files you used."
        ),
        tools=[search, read],
        plan=True,
        deps=where,
        stop_when=Turns(20) | Cost(usd=0.50) | Elapsed(minutes=5),
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=re.split(r"\n\n", __doc__ or "")[0])
    parser.add_argument("folder")
    parser.add_argument("question")
    parser.add_argument("--model", default="openai:gpt-5-mini")
    parser.add_argument("--store", default="memory:")
    given = parser.parse_args()
    agent = make_agent(given.model, given.folder)
    async with Runtime(given.store, agents=[agent]) as runtime:
        run = await runtime.start(agent, given.question)
        runtime.listen(run.id, lambda chunk: print(chunk.text, end="", flush=True))
        await run.result()
        usage = (await run.state()).usage
        cost = "unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
        print(f"\n[{usage.turns} turns, {usage.tokens} tokens, cost {cost}]")


if __name__ == "__main__":
    asyncio.run(main())
