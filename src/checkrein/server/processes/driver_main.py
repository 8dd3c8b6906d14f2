"""A driver process of `checkrein serve` or `worker`, and of the demo's page: loads its agents and drives their runs.

    python -P -m checkrein.server.processes.driver_main STORE file FILE… DESCRIPTOR
    python -P -m checkrein.server.processes.driver_main STORE demo FOLDER PACE DESCRIPTOR

The store is named for whoever reads a list of processes, without its password; the descriptor is the line to the front,
which says the whole address. What agents and tools print goes to the terminal of the front, clean.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from checkrein import logs
from checkrein.agents.loader import agents_in
from checkrein.core.escape import printable
from checkrein.errors import CheckreinError, WrongInput, describe
from checkrein.journal.address import shown
from checkrein.processes import orphans
from checkrein.processes.capture import caught
from checkrein.server.processes.driver_link import FrontLink

if TYPE_CHECKING:
    from checkrein.driver.program_api import Program

_log = logging.getLogger(__name__)

WRONG_INPUT: Final = 2
"""The exit code when there are no agents to drive."""
TORN_DOWN: Final = 70
"""The exit code when the event loop has ended otherwise than in order."""


def command_for_files(store: str, *files: str | Path) -> list[str]:
    """What starts a driver of the agents in `files`, but for the descriptor."""
    return [*_PYTHON, shown(store), "file", *map(str, files)]


def command_for_demo(store: str, folder: Path, pace: float) -> list[str]:
    return [*_PYTHON, shown(store), "demo", str(folder), str(pace)]


_PYTHON = (sys.executable, "-P", "-m", "checkrein.server.processes.driver_main")


def main(_: str, what: str, *rest: str) -> int:
    logs.configure()  # as the environment says, which is the front's
    front = FrontLink(int(rest[-1]))
    with caught(lambda line: None) as taps:
        # Printed at once whoever reads: were this to wait, an async tool that prints would, and the event loop with it.
        printed = logs.LineWriter(lambda: taps.err)
        taps.tell = lambda line: printed.write(printable(line))
        try:
            agents = _agents(what, *rest[:-1])
        except CheckreinError as error:
            _log.info("no agents to drive: %s", error)
            front.tell_broken(error)
            return WRONG_INPUT
        run_to_the_end(_drive(front, agents))
    printed.flush()
    return 0


async def _drive(front: FrontLink, agents: Mapping[str, Program]) -> None:
    async with orphans.adopting():
        await front.drive(agents)


class DriverLoop(asyncio.SelectorEventLoop):
    """An event loop that nothing of a run can end.

    A task or a callback that exits, or is interrupted, would end it for all runs of this process. Here the task has
    failed, whoever waits for it is told, and the loop goes on.
    """

    _main: asyncio.Future[Any] | None = None

    def run_until_complete(self, future: Any) -> Any:
        self._main = asyncio.ensure_future(future, loop=self)
        return super().run_until_complete(self._main)

    def _run_once(self) -> None:
        try:
            super()._run_once()  # type: ignore[misc]
        except (SystemExit, KeyboardInterrupt) as error:
            if self._main is None or self._main.done():
                raise
            # What is ready and was not run is still in the queue.
            _log.warning("something of a run would have ended the driver: %s", describe(error), exc_info=error)


def run_to_the_end(drive: Coroutine[Any, Any, None]) -> None:
    """Drive until it is enough. Should that end in any other way, this process ends at once, and what it was doing is
    in doubt: to end every task in order first might never come to an end, and would tell the runs of stops that nobody
    has asked for."""
    with asyncio.Runner(loop_factory=DriverLoop) as runner:
        try:
            runner.run(drive)
        except BaseException as error:
            _log.critical("the driver cannot go on: %s", describe(error), exc_info=error)
            logs.flush()
            os._exit(TORN_DOWN)


def _agents(what: str, *where: str) -> Mapping[str, Program]:
    if what == "demo":
        from checkrein import demo

        folder, pace = where
        played = demo.agent(Path(folder), pace=float(pace))
        return {played.name: played}
    found: dict[str, Program] = {}
    for file in where:
        for name, agent in agents_in(file).items():
            if found.setdefault(name, agent) is not agent:
                raise WrongInput(
                    f"There are two agents with the name {name}, one of them in {file}; a run could not tell which.",
                    code="usage",
                )
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
