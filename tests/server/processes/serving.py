"""Real servers for tests: `checkrein serve` in a folder of its own, and the process table as the witness."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.cli.shell import Shell, Started, until
from tests.server.processes.client import TOKEN, Client
from tests.support.hosts import command_line

CREW = Path(__file__).parent / "samples" / "crew.py"


class Server:
    """One `checkrein serve` and a client of it."""

    def __init__(self, started: Started) -> None:
        self.started = started
        started.until("\nCtrl-C ")
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
            one.pid
            for one in psutil.Process(self.pid).children()
            if "checkrein.server.processes.driver_main" in " ".join(command_line(one))
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

    def let_go(self) -> None:
        """From now on whatever is asked of the agent `worker` is answered without long talk."""
        self.shell.log.with_name(f"{self.shell.log.name}.go").touch()

    def begun(self, server: Server) -> str:
        """A run of `worker` that has done its first piece of work and talks without end before the second.

        Whoever takes it up after it was interrupted brings it to its end at once.
        """
        run = server.client.start("worker")
        self.shell.saw("first")
        until(lambda: "word2 " in _text_of_third_call(server.client.view(run)))
        self.let_go()
        return run

    def processes(self) -> list[psutil.Process]:
        """Every living process that comes from here: each has inherited the name of the log."""
        return [one for one in psutil.process_iter() if _is_of(one, str(self.shell.log))]

    def nothing_is_left(self) -> None:
        until(lambda: not self.processes(), lambda: f"left: {[command_line(one) for one in self.processes()]}")


@contextmanager
def new_place(folder: Path) -> Iterator[Place]:
    shell = Shell(folder)
    place = Place(shell)
    yield place
    shell.close()
    place.nothing_is_left()


def _text_of_third_call(view: Any) -> str:
    return str(view["calls"][2].get("text", "")) if len(view["calls"]) > 2 else ""


def _is_of(process: psutil.Process, log: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get("WITNESS") == log
    except psutil.Error:
        return False
