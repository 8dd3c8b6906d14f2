"""What both wires' readers of an answer have in common: how far it has come, and what has come of it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from checkrein.models.messages import Request
from checkrein.models.port import Collector, Delta, Reply


class Reader(ABC):
    """Makes deltas of events, one answer long, and remembers them."""

    __slots__ = ("_said", "is_complete", "is_finished")

    def __init__(self) -> None:
        self.is_finished = False
        """The model has said all it is going to say. What may still come is what it used."""
        self.is_complete = False
        """The provider has said that nothing more will come."""
        self._said: list[Delta] = []

    @abstractmethod
    def read(self, event: bytes) -> list[Delta]:
        """What `event` adds to the answer. Raises `ErrorInStream`, or `msgspec.DecodeError` for what is no event."""

    def partial(self, request: Request) -> Reply:
        """What has come so far."""
        collector = Collector(request)
        for delta in self._said:
            collector.add(delta)
        return collector.partial()
