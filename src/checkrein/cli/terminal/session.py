"""Two processes at one terminal: one that the shell waits for, and one that does the work and may stay when it goes.

The first only holds the terminal: it makes it raw and puts it back, passes signals on, and ends with the exit code of
the second, or as soon as that is detached. The second has a session of its own, so that it can go on without a
terminal. When the first dies without a word, so does the second: whoever kills Checkrein means the run.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable
from typing import Final, NamedTuple

DETACHED: Final = b"detached "
HANGS_UP: Final = b"h"


class Line(NamedTuple):
    """What the process at work has of the one that holds the terminal."""

    lives: int
    """Readable when that one has something to say, at its end when it is gone."""
    tell: int
    attributes: list[object]
    """How the terminal was set before."""

    def detach(self, words: str) -> None:
        """Let go of the terminal: whoever holds it says these words and ends."""
        os.write(self.tell, DETACHED + words.encode())
        os.close(self.tell)


def hold_terminal(work: Callable[[Line], int]) -> int:
    """Do `work` in a process of its own, at this terminal; the exit code of it, or 0 when it was detached."""
    attributes = termios.tcgetattr(0)
    sys.stdout.flush()
    sys.stderr.flush()
    lives, living = os.pipe()
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(living)
        os.close(told)
        os.setsid()
        _work(work, Line(lives, tell, attributes))
    os.close(lives)
    os.close(tell)
    return _Holder(pid, living, told).wait(attributes)


def _work(work: Callable[[Line], int], line: Line) -> None:
    """Never returns: what the caller would do afterwards is for the other process to do."""
    code = 70
    try:
        code = work(line)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


class _Holder:
    def __init__(self, pid: int, living: int, told: int) -> None:
        self._pid, self._living, self._told = pid, living, told
        self._is_hung_up = False

    def wait(self, attributes: list[object]) -> int:
        for number in (signal.SIGWINCH, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            signal.signal(number, self._pass_on)
        signal.signal(signal.SIGHUP, self._hang_up)
        tty.setraw(0)
        words = b""
        try:
            while not self._is_hung_up:
                ready, _, _ = select.select([self._told], [], [], 0.5)
                said = os.read(self._told, 4096) if ready else b"-"
                if not said:
                    break
                words += said if ready else b""
        finally:
            try:
                termios.tcsetattr(0, termios.TCSADRAIN, attributes)  # type: ignore[arg-type]
            except termios.error:
                self._is_hung_up = True  # the terminal is gone
        if self._is_hung_up:
            return 0
        if words.startswith(DETACHED):
            print(words.removeprefix(DETACHED).decode(), flush=True)
            return 0
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return code if code >= 0 else 128 - code

    def _pass_on(self, number: int, frame: object) -> None:
        try:
            os.kill(self._pid, signal.SIGWINCH if number == signal.SIGCONT else number)
        except ProcessLookupError:
            return

    def _hang_up(self, number: int, frame: object) -> None:
        self._is_hung_up = True
        os.write(self._living, HANGS_UP)
