"""A small program with a run on its screen: `program.py MODE LOG STORE [RUN]`. Its last words say how it was left."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import termios
from collections.abc import Callable, Sequence
from typing import Any

from checkrein import Agent, Runtime, Tokens, Turns
from checkrein.cli.screen import Left, attach
from checkrein.control.control import Control
from checkrein.journal import open_journal
from checkrein.models import Request, ScriptedModel, Turn, User
from checkrein.processes.identity import this_process
from tests.cli.screen.tools import block_everything, make_lasting_draft
from tests.support.agent_tools import crunch, make_draft, note, wire_money

WORDS = "one two three four five six seven eight nine ten"
NASTY = "It says \x1b[31mred\x1b[0m and \x07 and [bold]no markup[/bold] and so on. "
PLAN = ["Fetch customer list", "Score churn risk", "Write summary memo"]


def turns(mode: str, log: str) -> list[Turn]:
    return {
        "talk": [Turn(NASTY + f"{WORDS}\n" * 1000)],
        "crunch": [
            Turn("A draft first.", calls=[("make_draft", {"log": log}), ("plan", {"step": 2})]),
            Turn("Now the numbers.", calls=[("crunch", {"log": log})]),
            Turn("As you say. " + f"{WORDS}\n" * 1000),
        ],
        "stubborn": [
            Turn("A draft first.", calls=[("make_lasting_draft", {"log": log})]),
            Turn("And now I talk. " + f"{WORDS}\n" * 1000),
        ],
        "wedged": [Turn("This blocks.", calls=[("block_everything", {"log": log})]), Turn("never")],
    }[mode]


def told(log: str, turn: Turn) -> Callable[[Request], Turn]:
    """The turn, and the model's own log of the last thing a person told it."""

    def play(request: Request) -> Turn:
        said = [message.text for message in request.messages if isinstance(message, User)]
        note(log, f"told {said[-1]}")
        return turn

    return play


def agent(mode: str, log: str) -> Agent:
    script: Sequence[Any] = [told(log, turn) for turn in turns(mode, log)]
    return Agent(
        "churn",
        model=ScriptedModel(script, tokens_per_second=20),
        tools=[crunch, make_draft, make_lasting_draft, wire_money, block_everything],
        plan=PLAN,
        stop_when=Turns(50) | Tokens(50_000),
        loops=False,
    )


async def drive(mode: str, log: str, store: str, *, on_screen: bool = True) -> Left:
    async with Runtime(store) as runtime:
        run = await runtime.start(agent(mode, log), "Which customers will churn this quarter?")
        note(log, f"run {run.id}")
        if not on_screen:
            await run.result()
            return Left.FINISHED
        left = await attach(runtime, runtime.journal, runtime.control, run.id, owns=True)
        if left is Left.KILL:
            print(f"LEFT {left}", flush=True)
            os._exit(137)
        return left


async def watch(store: str, run: str) -> Left:
    async with await open_journal(store) as journal:
        return await attach(None, journal, Control(journal, this_process()), run, owns=False)


def main() -> None:
    mode, log, store, *rest = sys.argv[1:]
    if sys.stdin.isatty():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    if mode == "watch":
        left = asyncio.run(watch(store, rest[0]))
    else:
        left = asyncio.run(drive(mode.removeprefix("silent-"), log, store, on_screen=not mode.startswith("silent-")))
    print(f"LEFT {left}", flush=True)


if __name__ == "__main__":
    main()
