"""A shell for tests: real processes of `checkrein` in a folder of their own, on pipes or at a real terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from checkrein.cli import output
from checkrein.cli.app import run as run_program
from tests.support.patience import PATIENCE_SECONDS

SAMPLE = Path(__file__).parent / "samples" / "work.py"
PROGRAM = (sys.executable, "-P", "-c", "from checkrein.cli import main; main()")
"""As the installed script starts it: without the current folder on the path."""


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


def until(holds: Callable[[], object], what: Callable[[], str] = lambda: "it did not happen in time") -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < give_up, what()
        time.sleep(0.02)


class Started:
    """A process at work. What it prints is collected as it comes."""

    def __init__(self, process: subprocess.Popen[bytes], source: int) -> None:
        self.process = process
        self._source = source
        self._output = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._source, 65536)
            except OSError:  # the other end of a terminal is closed
                return
            if not data:
                return
            self._output += data

    @property
    def raw(self) -> bytes:
        return self._output

    @property
    def text(self) -> str:
        return self._output.decode(errors="replace").replace("\r\n", "\n")

    def until(self, text: str) -> None:
        until(lambda: text in self.text or self._has_ended(), lambda: f"{text!r} is late; so far:\n{self.text}")
        assert text in self.text, f"{text!r} was not printed, but:\n{self.text}"

    def _has_ended(self) -> bool:
        return self.process.poll() is not None and not self._reader.is_alive()

    @property
    def run(self) -> str:
        """The id of the run that it prints about."""
        self.until(", agent ")
        found = re.search(r"run +(r-\w+), agent ", self.text)
        assert found is not None, self.text
        return found[1]

    def keys(self, keys: str) -> None:
        os.write(self._source, keys.encode())

    def wait(self) -> int:
        until(lambda: self.process.poll() is not None, lambda: f"it does not end; so far:\n{self.text}")
        code = self.process.wait()
        self._reader.join(timeout=30)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(timeout=30)
        os.close(self._source)


def start_at(slave: int, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, at a terminal, which is closed here."""
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, **options)
    os.close(slave)
    return process


class Shell:
    """One folder with one store, and every process started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self._started: list[Started] = []
        self.environment: dict[str, str] = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CHECKREIN")},
            "WITNESS": str(self.log),
        }

    def do(self, *arguments: str, **variables: str) -> Done:
        """Run a command to its end."""
        here = self._here(variables)
        done = subprocess.run([*PROGRAM, *arguments], capture_output=True, timeout=PATIENCE_SECONDS, **here)
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def say(self, *arguments: str, **variables: str) -> Done:
        """Run a command that imports no agent to its end, in this process: another one than whatever it is about."""
        out, err = io.StringIO(), io.StringIO()
        with (
            chdir(self.folder),
            patch.dict(os.environ, {**self.environment, **variables}, clear=True),
            patch.object(sys, "stdin", io.StringIO()),
            patch.object(output, "_options", []),
            patch.object(output, "_file", ["FILE"]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = run_program([*arguments])
        return Done(code, out.getvalue(), err.getvalue())

    def start(self, *arguments: str, before: Sequence[str] = (), **variables: str) -> Started:
        """Start a command with its output in a pipe; with a command `before` it that executes it."""
        return self._piped([*before, *PROGRAM, *arguments], variables)

    def start_program(self, program: str, *arguments: str, **variables: str) -> Started:
        """The same of a program of Python that runs ours with another setting than is to be had."""
        return self._piped([sys.executable, "-P", "-c", program, *arguments], variables)

    def _piped(self, command: Sequence[str], variables: Mapping[str, str]) -> Started:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **self._here(variables),
        )
        assert process.stdout is not None
        return self._kept(Started(process, os.dup(process.stdout.fileno())), process)

    def terminal(self, *arguments: str, variables: Mapping[str, str] | None = None) -> Started:
        """Start a command at a terminal that is its own, so that Ctrl-C is a signal."""
        master, slave = pty.openpty()

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        environment = {**self.environment, "TERM": "xterm-256color", **(variables or {})}
        command = [*PROGRAM, *arguments]
        process = start_at(slave, command, cwd=self.folder, env=environment, preexec_fn=take_terminal)
        return self._kept(Started(process, master), process)

    def _here(self, variables: Mapping[str, str]) -> dict[str, Any]:
        return {"cwd": self.folder, "env": {**self.environment, **variables}, "stdin": subprocess.DEVNULL}

    def _kept(self, started: Started, process: subprocess.Popen[bytes]) -> Started:
        if process.stdout is not None:
            process.stdout.close()
        self._started.append(started)
        return started

    def close(self) -> None:
        for started in self._started:
            started.close()

    # -- what the tools wrote themselves

    def words(self) -> list[str]:
        if not self.log.exists():
            return []
        return [line.split(maxsplit=2)[2].strip() for line in self.log.read_text().splitlines() if line]

    def saw(self, word: str) -> None:
        until(lambda: word in self.words(), lambda: f"{word!r} is not in the log: {self.words()}")

    def child(self) -> int:
        """The process that the tool `crunch` has started."""
        until(lambda: any(word.startswith("child ") for word in self.words()))
        return int(next(word for word in self.words() if word.startswith("child ")).split()[1])

    def who_wrote(self, word: str) -> int:
        """The process that was the first to write `word`."""
        lines = [line.split(maxsplit=2) for line in self.log.read_text().splitlines()]
        return next(int(pid) for _, pid, written in lines if written.strip() == word)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """The tool `send` does not finish before this block has ended."""
        hold = self.folder / "log.hold"
        hold.touch()
        try:
            yield
        finally:
            hold.unlink(missing_ok=True)

    def let_send(self) -> None:
        """The tool `send` finishes now."""
        (self.folder / "log.hold").unlink()

    # -- what a person types most

    def run(self, agent: str, *arguments: str, **variables: str) -> Started:
        """Start an agent of the sample file, in plain lines."""
        return self.start("run", str(SAMPLE), "Do it.", "--agent", agent, "--plain", *arguments, **variables)
