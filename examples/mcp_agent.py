"""An agent that uses the tools of an MCP server, on a real model.

    pip install 'checkrein[mcp]'
    export OPENAI_API_KEY=…
    python examples/mcp_agent.py "Note that the milk is empty, then proofread my notes."

It starts `notes_server.py`, shows how far a tool is, and takes back what was noted if you cancel it: Ctrl-C once.
Any model will do: --model anthropic:claude-sonnet-4-5, --model ollama:llama3.1.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from checkrein import MCP, Agent, Elapsed, Receipt, Run, RunFailed, Runtime, Turns


async def take_back(call: Any) -> None:
    """The undo of `add_note`: another tool of the same server. It may be called twice, and the second does no harm."""
    if call.result is not None:
        await notes.call("delete_note", number=call.result)


notes = MCP(
    "notes",
    command=[sys.executable, str(Path(__file__).with_name("notes_server.py"))],
    env={"NOTES_FILE": os.environ.get("NOTES_FILE", "notes.json")},
    tools={
        "add_note": {"effect": "reversible", "undo": take_back},
        "list_notes": {"effect": "none", "idempotent": True},
        "proofread": {"effect": "none"},
        "delete_note": {"effect": "irreversible"},  # so a person is asked first
    },
)


def make_agent(model: str) -> Agent:
    return Agent(
        "notes",
        model=model,
        instructions="Keep the person's notes with the tools you have. Say in one sentence what you did.",
        tools=[notes],
        stop_when=Turns(20) | Elapsed(minutes=5),
    )


async def cancel(run: Run) -> None:
    receipt = await run.cancel(reason="Ctrl-C")
    assert isinstance(receipt, Receipt)
    for call in receipt.calls:
        print(f"\n[stopped: {call.name} is {call.now}]")
    for effect in receipt.effects:
        print(f"[effect: {effect.what} is {effect.now.value}]")


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("goal")
    parser.add_argument("--model", default="openai:gpt-5-mini")
    given = parser.parse_args()
    async with Runtime("memory:") as runtime:
        run = await runtime.start(make_agent(given.model), given.goal)
        runtime.listen(run.id, lambda chunk: print(chunk.text, end="", flush=True))
        stopping: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, lambda: stopping.add(loop.create_task(cancel(run))))
        try:
            await run.result()
            print()
        except RunFailed as failed:
            await asyncio.gather(*stopping)
            print(f"[{failed.message}]")


if __name__ == "__main__":
    asyncio.run(main())
