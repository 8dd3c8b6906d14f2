"""What the exit code of a command says."""

from __future__ import annotations

from typing import Final

from checkrein.core.words import Status

DONE: Final = 0
FAILED: Final = 1
WRONG_INPUT: Final = 2
CANCELLED: Final = 3
PAUSED: Final = 4
"""The run was left paused, or unfinished in another way: it can be taken up again."""
INTERNAL: Final = 70
INTERRUPTED: Final = 130

OF_STATUS: Final = {
    Status.COMPLETED: DONE,
    Status.FAILED: FAILED,
    Status.CANCELLED: CANCELLED,
    Status.KILLED: CANCELLED,
}


def of_status(status: Status) -> int:
    """The exit code of a command that saw a run to its end, or left it in this status."""
    return OF_STATUS.get(status, PAUSED)
