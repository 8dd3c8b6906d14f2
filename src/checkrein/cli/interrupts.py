"""What Ctrl-C does: in a terminal that drives the run the first pauses, the second cancels, the third ends the process.

In one that only looks on, and once the run has ended, it leaves.
"""

from __future__ import annotations

from enum import Enum, auto

from checkrein.core.words import TERMINAL, Status


class Press(Enum):
    """What one press of Ctrl-C asks for."""

    LEAVE = auto()
    PAUSE = auto()
    IS_PAUSED = auto()
    """Nothing yet: it is paused already, and the first press never destroys anything."""
    CANCEL = auto()
    IS_CANCELLING = auto()
    KILL = auto()


class Interrupts:
    """Counts presses. A run that was paused and goes on begins anew."""

    def __init__(self, *, owns: bool) -> None:
        self._owns = owns
        self._presses = 0
        self._status: Status | None = None

    @property
    def is_pressed(self) -> bool:
        return self._presses > 0

    def saw(self, status: Status) -> None:
        """Take in what the run's events say."""
        if self._status is Status.PAUSED and status in (Status.RUNNING, Status.QUEUED, Status.REDIRECTING):
            self._presses = 0
        self._status = status

    def press(self) -> Press:
        if not self._owns or self._status in TERMINAL:
            return Press.LEAVE
        self._presses += 1
        if self._presses > 2:
            return Press.KILL
        if self._status is Status.CANCELLING:
            self._presses = 2
            return Press.IS_CANCELLING
        if self._presses == 2:
            return Press.CANCEL
        return Press.IS_PAUSED if self._status is Status.PAUSED else Press.PAUSE
