"""A terminal for tests: a real pty with a real process at its end, and an emulator that shows what a person sees."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyte

from tests.cli.shell import start_at
from tests.support.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]


class Terminal:
    """Runs `python -m tests.cli.screen.program …` at 80 columns and 24 rows, or as told."""

    def __init__(self, *arguments: str, columns: int = 80, rows: int = 24) -> None:
        self._master, slave = pty.openpty()
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._size(columns, rows)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
        for name in ("NO_COLOR", "COLUMNS", "LINES", "TEXTUAL"):
            environment.pop(name, None)
        command = [sys.executable, "-m", "tests.cli.screen.program", *arguments]
        self.process = start_at(slave, command, cwd=ROOT, env=environment)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            print("\n".join(self.lines()))
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(timeout=30)
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # the other end is closed
                return
            if not data:
                return
            with self._lock:
                self._stream.feed(data)

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    # -- what a person does

    def keys(self, text: str) -> None:
        os.write(self._master, text.encode())

    def resize(self, columns: int, rows: int) -> None:
        with self._lock:
            self._screen.resize(rows, columns)
        self._size(columns, rows)
        self.process.send_signal(signal.SIGWINCH)

    # -- what a person sees

    def lines(self) -> list[str]:
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    def text(self) -> str:
        return "\n".join(self.lines())

    def sees(self, *wanted: str) -> bool:
        """Whether all of this is on the screen, be it broken into lines."""
        text = self.text()
        flat = " ".join(text.split())
        return all(one in text or one in flat for one in wanted)

    def until(self, *wanted: str) -> str:
        """Wait until all of this is on the screen at once."""

        def there() -> bool:
            ended = self.process.poll() is not None
            assert self.sees(*wanted) or not ended, f"it ended, with {wanted} not on the screen:\n{self.text()}"
            return self.sees(*wanted)

        wait_for(there, lambda: f"{wanted} is not on the screen:\n{self.text()}")
        return self.text()

    def until_gone(self, *unwanted: str) -> None:
        wait_for(lambda: not any(map(self.sees, unwanted)), self.text)

    def ended(self) -> int:
        """Wait for the end of the process and give its code."""
        code = self.process.wait(timeout=PATIENCE_SECONDS)
        self._reader.join(timeout=30)
        return code


def wait_for(condition: Callable[[], Any], explain: Callable[[], str] = lambda: "it did not come true") -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.02)
