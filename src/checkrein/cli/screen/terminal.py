"""The terminal, and a last resort: three Ctrl-C end the process even when its event loop is blocked by an agent's code.

Keys are read by a thread of their own. Normally it only passes them on.
"""

from __future__ import annotations

import os
import signal
import termios
import time
from contextlib import suppress
from typing import Final

from textual import events
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

PRESSES: Final = 3
PATIENCE_SECONDS: Final = 1.0
"""How long the event loop may leave the first of them unheard."""

_LEAVE: Final = b"\x1b[?2004l\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
_WORDS: Final = b"The agent's code blocked this process, so Ctrl-C ended it at once. What it was doing is in doubt.\r\n"


class Unheard:
    """Presses of Ctrl-C that the event loop has not taken up yet."""

    def __init__(self) -> None:
        self._count = 0
        self._since = 0.0

    def press(self, now: float) -> bool:
        """Whether it is time for the last resort."""
        if self._count == 0:
            self._since = now
        self._count += 1
        return self._count >= PRESSES and now - self._since >= PATIENCE_SECONDS

    def heard(self) -> None:
        self._count = 0


class Terminal(LinuxDriver):
    """A terminal whose third unheard Ctrl-C ends the process. Tools do not outlive it: the supervisor sees to that."""

    unheard = Unheard()

    def process_message(self, message: Message) -> None:
        if isinstance(message, events.Key) and message.key == "ctrl+c" and self.unheard.press(time.monotonic()):
            self._end()
        super().process_message(message)

    def _end(self) -> None:
        if self.attrs_before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
        with suppress(OSError, ValueError):
            os.write(self.fileno if self._file is None else self._file.fileno(), _LEAVE + _WORDS)
        os.kill(os.getpid(), signal.SIGKILL)
