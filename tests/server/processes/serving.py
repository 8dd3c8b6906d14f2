"""Real servers for tests: `checkrein serve` in a folder of its own, and the process table as the witness."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import psutil

from tests.cli.shell import Shell, Started, until
from tests.server.processes.client import TOKEN, Client

CREW = Path(__file__).parent / "samples" / "crew.py"


class Server:
    """One `checkrein serve` and a client of it."""

    def __init__(self, started: Started) -> None:
        self.started = started
        started.until("Ctrl-C pauses what is at work")
        found = re.search(r"http://127\.0\.0\.1:(\d+)/enter\?code=(\S+)", started.text)
        assert found is not None, started.text
        self.link = found[0]
        self.client = Client(int(found[1]))

    @property
    def pid(self) -> int:
        return self.started.process.pid

    def drivers(self) -> list[int]:
        """The driver processes, by the process table."""
        return [
            one.pid for one in psutil.Process(self.pid).children() if "checkrein.cli.driving" in " ".join(_line(one))
        ]

    def driver(self) -> int:
        until(lambda: len(self.drivers()) == 1)
        return self.drivers()[0]

    def end(self) -> int:
        self.started.process.terminate()
        return self.started.wait()


class Place:
    """One folder with one store and a file of agents, and every server that was started on it."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.file = shell.folder / "crew.py"
        shutil.copy(CREW, self.file)
        shell.environment["CHECKREIN_TOKEN"] = TOKEN

    def serve(self, *arguments: str) -> Server:
        return Server(self.shell.start("serve", "crew.py", "--port", "0", *arguments))

    def processes(self) -> list[psutil.Process]:
        """Every living process that comes from here: each has inherited the name of the log."""
        return [one for one in psutil.process_iter() if _is_of(one, str(self.shell.log))]

    def nothing_is_left(self) -> None:
        until(lambda: not self.processes(), lambda: f"left: {[_line(one) for one in self.processes()]}")


def _is_of(process: psutil.Process, log: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get("WITNESS") == log
    except psutil.Error:
        return False


def _line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
