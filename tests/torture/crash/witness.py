"""What the client was promised, kept by the client itself: the one list that the journal does not write.

An acknowledgement counts from the moment its line is in the file; each line is synced before the client goes on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self


class Promise(NamedTuple):
    """Something acknowledged: that the event `id` has the seq `number` in `run`.

    With one of the ids below it is not about an event.
    """

    run: str
    number: int
    id: str


LEASE: Final = "lease"
"""`run` was claimed, with the epoch `number`."""
FENCE: Final = "fence"
"""A halt of the agent named `run` was latched (1) or lifted (0)."""


class Witness:
    """Appends to the list. Usable by many tasks of one process; several processes need a list each."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self._fd)

    def saw(self, *promises: Promise) -> None:
        """Write down what was acknowledged. Durable on return."""
        os.write(self._fd, "".join(f"{p.run} {p.number} {p.id}\n" for p in promises).encode())
        os.fsync(self._fd)


def parse(text: bytes) -> list[Promise]:
    """The promises in a witness file; a last line without its end was never acknowledged."""
    lines = text.decode().split("\n")[:-1]
    return [Promise(run, int(number), id_) for run, number, id_ in (line.split(" ") for line in lines)]


def read(path: Path) -> list[Promise]:
    return parse(path.read_bytes()) if path.exists() else []


def is_event(promise: Promise) -> bool:
    return promise.id not in (LEASE, FENCE)


def contradictions(promises: Sequence[Promise]) -> list[str]:
    """Events that were acknowledged twice with different seqs, and seqs that were given to two events."""
    by_id: dict[tuple[str, str], int] = {}
    by_seq: dict[tuple[str, int], str] = {}
    found = []
    for run, seq, id_ in filter(is_event, promises):
        if by_id.setdefault((run, id_), seq) != seq:
            found.append(f"{run}: {id_} was acknowledged as {by_id[run, id_]} and as {seq}")
        if by_seq.setdefault((run, seq), id_) != id_:
            found.append(f"{run}: seq {seq} was acknowledged for {by_seq[run, seq]} and for {id_}")
    return found
