"""`checkrein new`, and the file that it writes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import click

from checkrein.cli import options, output
from checkrein.errors import WrongInput

GOAL: Final = "Write to everybody who has not paid."

AGENT: Final = '''"""A first agent. Start it in one terminal, and stop it from another:

    checkrein run {file} "{goal}"
    checkrein cancel

The model only plays a script, so this needs neither key nor network. Everything else is real: the tools run in
processes of their own, and a cancel ends them and takes back what they did.
"""

import time
from pathlib import Path

from checkrein import Agent, Turns, tool
from checkrein.models import ScriptedModel, Turn

DRAFTS = Path("drafts")


def discard_draft(call):
    """Take back what write_draft did, also when it was stopped half-way. May be called twice: that does no harm."""
    (DRAFTS / f"{{call.arguments['to']}}.txt").unlink(missing_ok=True)


@tool(undo=discard_draft)
def write_draft(to: str, text: str) -> str:
    """Write a draft of a letter."""
    DRAFTS.mkdir(exist_ok=True)
    path = DRAFTS / f"{{to}}.txt"
    path.write_text(text)
    return str(path)


@tool(effect="none", on_pause="hold")  # it only looks: there is nothing to undo, and a pause may freeze it
def find_unpaid(months: int) -> list[str]:
    """Look through the invoices of the last months. Slow, and it does not look up: a stop ends its process."""
    for _ in range(months):
        time.sleep(1)
    return ["ann", "bob"]


# For a real model, write model="openai:gpt-5" (or another provider) in place of this script.
model = ScriptedModel(
    [
        Turn("First a letter to Ann.", calls=[("write_draft", {{"to": "ann", "text": "Dear Ann, …"}})]),
        Turn("Now I look for the others.", calls=[("find_unpaid", {{"months": 12}})]),
        Turn("Bob has not paid either.", calls=[("write_draft", {{"to": "bob", "text": "Dear Bob, …"}})]),
        "Both letters are in the folder drafts.",
    ],
    tokens_per_second=15,
)

agent = Agent(
    "letters",
    model=model,
    instructions="You write friendly reminders.",
    tools=[write_draft, find_unpaid],
    stop_when=Turns(20),
)
'''


@click.command
@click.argument(
    "file", metavar="[FILE]", type=options.FILE, default="agent.py", help="What to call it. agent.py if left out."
)
@options.as_json
def new(file: Path, as_json: bool) -> None:
    """Write a small agent to begin with.

    It runs without a key, and has a tool that can be undone. A file that exists is left alone.
    """
    next_commands = write(file)
    if as_json:
        output.out_json({"file": str(file), "next": next_commands})
        return
    output.out(f"Wrote {file}. It needs neither key nor network. Next:")
    for command in next_commands:
        output.out(f"  {command}")


def write(file: Path) -> list[str]:
    """Write the starter file and return the commands to try next. Raises `WrongInput` rather than overwrite one."""
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise WrongInput(
            f"Worker processes could not import {file} under its name; call it something like agent.py.",
            code="file_name",
        )
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(AGENT.format(file=file, goal=GOAL))
    except FileExistsError:
        raise WrongInput(
            f"{file} exists already and was left as it is; choose another name.", code="file_exists"
        ) from None
    except OSError as error:
        raise WrongInput(f"{file} cannot be written: {error.strerror}.", code="file_name") from None
    return [f'checkrein run {shlex.quote(str(file))} "{GOAL}"', f"checkrein doctor {shlex.quote(str(file))}"]
