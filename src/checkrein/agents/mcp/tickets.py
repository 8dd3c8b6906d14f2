"""What is known of one call on its way to a server and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

Progress = Callable[[float, float | None, str | None], None]
"""Told how far a call is, of how much, and in words."""


class Ticket:
    """One call: which request it became, and whether it was answered."""

    def __init__(self) -> None:
        self.request: Any = None
        """The number of its request; None as long as nothing was sent."""
        self.answer: Any = None
        self.is_let_go = False
        """Nobody waits for its answer any more."""
        self.on_late: Callable[[], None] | None = None
        """For one that was let go: told when it is known to be over after all."""

    def answered(self, answer: Any) -> None:
        self.answer = answer
        self.over()

    def over(self) -> None:
        """The call is known to be over: answered, or nobody is left who could be at it."""
        late, self.on_late = self.on_late, None
        if late is not None:
            late()


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What a server has answered."""

    is_error: bool
    value: Any


class BrokenOff(Exception):
    """There will be no answer: the connection is gone. `was_sent` says whether the server may know of the call."""

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent
