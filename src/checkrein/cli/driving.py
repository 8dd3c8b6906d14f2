"""A driver process of `checkrein serve`, and of the demo's page: loads its agents and drives their runs.

    python -P -m checkrein.cli.driving STORE file FILE DESCRIPTOR
    python -P -m checkrein.cli.driving STORE demo FOLDER PACE DESCRIPTOR

The descriptor is the line to the front. What agents and tools print goes to the terminal of the front, clean.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from checkrein.cli import exits
from checkrein.cli.clean import printable
from checkrein.cli.finding import agents_in
from checkrein.cli.prints import Taps, caught
from checkrein.errors import CheckreinError
from checkrein.server.front.driving import ToFront

if TYPE_CHECKING:
    from checkrein.runtime.spec import Program


def command_for_file(store: str, file: Path) -> list[str]:
    """What starts a driver of the agents in `file`, but for the descriptor."""
    return [*_PYTHON, store, "file", str(file)]


def command_for_demo(store: str, folder: Path, pace: float) -> list[str]:
    return [*_PYTHON, store, "demo", str(folder), str(pace)]


_PYTHON = (sys.executable, "-P", "-m", "checkrein.cli.driving")


def main(store: str, what: str, *rest: str) -> int:
    front = ToFront(int(rest[-1]))
    with caught(lambda line: None) as taps:
        taps.tell = lambda line: _print(line, taps)
        try:
            agents = _agents(what, *rest[:-1])
        except CheckreinError as error:
            front.tell_broken(error)
            return exits.WRONG_INPUT
        asyncio.run(front.drive(agents, store))
    return exits.DONE


def _agents(what: str, where: str, pace: str = "") -> Mapping[str, Program]:
    if what == "demo":
        from checkrein import demo

        agent = demo.agent(Path(where), pace=float(pace))
        return {agent.name: agent}
    return agents_in(Path(where))


def _print(line: str, taps: Taps) -> None:
    with suppress(OSError):  # the terminal may be gone: a tool that prints is not stopped by that
        print(printable(line), file=taps.err, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
