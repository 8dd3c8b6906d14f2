"""How a series of crashes went, in one line, and all of them in another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Tally(NamedTuple):
    kind: str
    """What was done to the journal: "crash points", "kills", "power cuts", "full disks"."""
    what: str
    tried: int
    promised: int
    """How many acknowledgements were checked."""
    lost: int
    """In how many of the crashes something was lost, or wrong in any other way."""
    detail: str = ""
    is_control: bool = False
    """It shows that the harness can find a loss, or does not invent one; it says nothing about the journal."""

    def __str__(self) -> str:
        name = f"control, {self.kind}" if self.is_control else self.kind
        detail = f" ({self.detail})" if self.detail else ""
        return f"{name}, {self.what}: {self.tried}{detail}, {self.promised} acknowledged, {_losses(self.lost)}"


def _losses(count: int) -> str:
    return f"lost or wrong: {count}"


def total(tallies: Sequence[Tally]) -> str:
    """One line over everything that was done to the journal."""
    proofs = [tally for tally in tallies if not tally.is_control]
    tried: Counter[str] = Counter()
    for tally in proofs:
        tried[tally.kind] += tally.tried
    counts = ", ".join(f"{count} {kind}" for kind, count in tried.items())
    promised, lost = sum(tally.promised for tally in proofs), sum(tally.lost for tally in proofs)
    return f"in all: {counts}; {promised} acknowledged, {_losses(lost)}"
