"""The journal's own rules of admission, asked about one append to the run of a world."""

from __future__ import annotations

from checkrein.core.events import Event
from checkrein.core.words import Status
from checkrein.journal import rules


def admitted(
    events: tuple[Event, ...],
    *,
    status: Status,
    epoch: int | None,
    current_epoch: int,
    behind: bool,
    fenced: bool,
) -> tuple[Event, ...]:
    """Which of the events are taken: seqs are levelled out here, so `behind` stands for an unseen deciding event."""
    head = rules.Head(seq=1, decided=1, epoch=current_epoch, status=status)
    cover = rules.Cover.CANCEL if fenced else rules.Cover.NONE
    proposal = rules.propose(events, after=0 if behind else 1, epoch=epoch)
    return events[: rules.admit(proposal, head, cover=cover).taken]
