"""How a person left the screen."""

from __future__ import annotations

from enum import StrEnum


class Left(StrEnum):
    FINISHED = "finished"
    """The run has ended."""
    DETACHED = "detached"
    """It goes on without this screen."""
    PAUSED = "paused"
    """A person left it paused."""
    KILL = "kill"
    """This process is to end at once."""
