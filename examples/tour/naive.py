"""The same model and the same tools in a plain loop, with a Stop that cancels the task: how it is often done.

The loop is synchronous, as its tools are. A program that must stay responsive runs it with `asyncio.to_thread`, and its
Stop button cancels the task that waits for it. The task ends at once and is reported as stopped. The thread cannot be
cancelled, since Python has no way to do that: the tool goes on, its child goes on, and so does the loop. (Were the loop
itself async, with only the tools in threads, it would end here. Tool and child would go on just the same.)

    python -m examples.tour.naive DATA PACE GOAL

`stop` on standard input is the Stop button; the answer on standard output is what the program then shows its user. The
end of standard input ends the process, thread and all.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import msgspec

from checkrein.demo import INSTRUCTIONS
from checkrein.demo.model import think
from checkrein.demo.tools import TOOLS
from checkrein.models.messages import Assistant, Message, Request, ToolCall, ToolResult, ToolSpec, User, as_json

MODEL_SECONDS = 0.5
"""How long the model takes to answer, at pace 1."""


def run_agent(data: Path, pace: float, goal: str) -> str:
    """A model and tools, round after round, until the model has nothing more to ask for."""
    tools = {tool.name: tool for tool in TOOLS}
    specs = tuple(ToolSpec(tool.name, tool.description, as_json(tool.schema)) for tool in TOOLS)
    messages: list[Message] = [User(goal)]
    while True:
        time.sleep(MODEL_SECONDS * pace)
        turn = think(Request(INSTRUCTIONS, tuple(messages), specs), data, pace)
        if not turn.calls:
            return turn.text
        for asked in turn.calls:
            assert not isinstance(asked, ToolCall)
            name, arguments = asked
            result = tools[name](**arguments)
            call = ToolCall(f"call_{len(messages)}", name, as_json(arguments))
            content = result if isinstance(result, str) else msgspec.json.encode(result).decode()
            messages += [Assistant(turn.text, calls=(call,)), ToolResult(call.id, name, content)]


async def serve(data: Path, pace: float, goal: str) -> None:
    """Run the agent, with a Stop button."""
    task = asyncio.create_task(asyncio.to_thread(run_agent, data, pace, goal))
    while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if line == "stop":
            task.cancel()
            await asyncio.wait([task])
            print("stopped" if task.cancelled() else "finished", flush=True)
    os._exit(0)  # leaving properly would wait for the thread


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]))
