"""`checkrein exec` in tmux at 80 x 24: a full-screen program looks the same, is resized, and goes on when detached.

tmux is a terminal of others: what it says is on the screen is on the screen.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cli.shell import PROGRAM, Shell, until
from tests.cli.test_exec import TICKS, none_left, ticks
from tests.cli.test_exec_terminal import FULL, expected

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux here to look at a screen")


class Tmux:
    """A server of its own with one window, in which a shell waits."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._base = ["tmux", "-S", str(shell.folder / "tmux.sock"), "-f", "/dev/null"]
        self.do("new-session", "-d", "-x", "80", "-y", "24", "env PS1=ready: sh")

    def do(self, *words: str) -> str:
        environment = {**self._shell.environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        done = subprocess.run(
            [*self._base, *words],
            capture_output=True,
            text=True,
            cwd=self._shell.folder,
            env=environment,
            timeout=60,
            check=True,
        )
        return done.stdout

    def type(self, *command: str) -> None:
        file = self._shell.folder / "line.sh"
        file.write_text(f"exec {shlex.join(command)}\n")
        self.do("send-keys", "sh ./line.sh", "Enter")

    def resize(self, columns: int, rows: int) -> None:
        """Return when whatever is started in it sees that: tmux tells the terminal a moment later."""
        self.do("resize-window", "-x", str(columns), "-y", str(rows))

        def is_seen() -> bool:
            self.do("send-keys", "clear; stty size", "Enter")
            return f"{rows} {columns}" in self.do("capture-pane", "-p")

        until(is_seen)
        self.do("send-keys", "clear", "Enter")

    def screen(self, rows: int) -> list[str]:
        lines = self.do("capture-pane", "-p").split("\n")[:rows]
        return lines + [""] * (rows - len(lines))

    def shows(self, lines: list[str]) -> bool:
        return self.screen(len(lines)) == [line.rstrip() for line in lines]


@pytest.fixture
def tmux(shell: Shell) -> Iterator[Tmux]:
    made = Tmux(shell)
    yield made
    made.do("kill-server")


def exec_(*command: str) -> list[str]:
    return [*PROGRAM, "exec", "--", *command]


@pytest.mark.torture  # beside other work tmux told a plain program too the size of before, and never the new one
def test_a_full_screen_program_looks_the_same_and_is_resized(tmux: Tmux) -> None:
    tmux.resize(80, 23)
    tmux.type(sys.executable, "-c", FULL)
    until(lambda: tmux.shows(expected(23, 80)), lambda: tmux.do("capture-pane", "-p"))
    alone = tmux.screen(23)
    tmux.do("send-keys", "q")
    until(lambda: "ready:" in tmux.do("capture-pane", "-p"))
    tmux.resize(80, 24)

    tmux.type(*exec_(sys.executable, "-c", FULL))

    until(lambda: tmux.screen(23) == alone, lambda: tmux.do("capture-pane", "-p"))
    until(lambda: "pause" in tmux.screen(24)[23])
    tmux.do("resize-window", "-x", "100", "-y", "30")
    until(lambda: tmux.shows(expected(29, 100)), lambda: tmux.do("capture-pane", "-p"))
    until(lambda: "pause" in tmux.screen(30)[29])
    tmux.do("send-keys", "q")
    until(lambda: "ready:" in tmux.do("capture-pane", "-p"))


def test_detached_the_shell_is_back_and_the_program_goes_on(shell: Shell, tmux: Tmux) -> None:
    """D16"""
    tmux.type(*exec_(sys.executable, "-c", TICKS))
    until(lambda: ticks(shell) > 1)
    until(lambda: "Running" in tmux.do("capture-pane", "-p"))

    tmux.do("send-keys", "C-]", "d")

    until(lambda: "goes on as run r-" in tmux.do("capture-pane", "-p", "-J"))
    until(lambda: "ready:" in tmux.do("capture-pane", "-p").split("goes on as run")[-1])
    before = ticks(shell)
    until(lambda: ticks(shell) > before + 1)
    assert shell.say("cancel", "last").code == 0
    none_left(shell)
