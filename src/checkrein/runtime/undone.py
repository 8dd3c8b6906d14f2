"""What an undo or a verify function is given, and how a worker calls one. Imports little: a first undo waits for it."""

from __future__ import annotations

from typing import Any

from checkrein.runtime.loading import Target, load


class Undone:
    """The call that an undo or a verify function is about."""

    def __init__(self, *, id: str, key: str, name: str, arguments: Any, result: Any, outcome: str) -> None:
        self.id = id
        self.key = key
        """The same every time: what to give to a service as its idempotency key."""
        self.name = name
        self.arguments = arguments
        self.result = result
        """None when it is not known."""
        self.outcome = outcome
        """How the call ended: `completed`, `failed`, `aborted`, `killed`, `detached` or `in_doubt`."""

    def __repr__(self) -> str:
        return f"<Undone {self.name} {self.id}>"


def perform(target: list[str], call: dict[str, Any]) -> Any:
    """Runs in a worker: find the function and call it."""
    return load(Target(*target))(Undone(**call))
