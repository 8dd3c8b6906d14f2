"""The journal's own rules of admission, asked about one append to the run of a world."""

from __future__ import annotations

from checkrein.core.enums import Status
from checkrein.core.events import Event
from checkrein.journal import admission


def admitted(
    events: tuple[Event, ...], *, status: Status, epoch: int | None, current_epoch: int, behind: bool, fenced: bool
) -> tuple[Event, ...]:
    """Which of the events are taken: seqs are levelled out here, so `behind` stands for an unseen deciding event."""
    head = admission.Head(seq=1, decided=1, epoch=current_epoch, status=status)
    cover = admission.FenceLevel.CANCEL if fenced else admission.FenceLevel.NONE
    proposal = admission.propose(events, after=0 if behind else 1, epoch=epoch)
    return events[: admission.admit(proposal, head, cover=cover).taken]
