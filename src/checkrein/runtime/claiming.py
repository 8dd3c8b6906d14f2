"""Taking a run up from whoever had it before.

A lease that has run out may be claimed by anybody. One whose owner is known to be dead need not be waited for, but must
be taken from that owner and no other: two processes may have seen the same corpse.
"""

from __future__ import annotations

from checkrein.journal import refusals
from checkrein.journal.contract import Journal, Lease, Owner
from checkrein.runtime import marking, processes
from checkrein.runtime.identity import is_known_dead
from checkrein.runtime.lineage import Family


async def claim(
    journal: Journal, run: str, owner: Owner, *, seconds: float, at: float, buried: set[str] | None = None
) -> tuple[Lease, bool]:
    """The lease, and whether nothing that was begun under an earlier one can still be going on.

    Raises `LeaseHeld`, or `StaleEpoch` when somebody else was faster. Of an owner that is dead, whatever its tools have
    left is ended first; `buried` remembers for which that was done.
    """
    held = await journal.lease(run)
    if held is not None and held.owner.process != owner.process and is_known_dead(held.owner):
        is_over = await _bury(held.owner, buried)
        lease = await journal.claim(run, owner, seconds=seconds, force=True, epoch=held.epoch + 1)
        return lease, is_over
    if held is not None and is_held(held, owner, at):
        raise refusals.held(run, held.owner, held.deadline)  # asked first, because a claim costs everybody a commit
    lease = await journal.claim(run, owner, seconds=seconds)
    return lease, _is_over(lease.previous, owner)


def is_held(lease: Lease, owner: Owner, at: float) -> bool:
    """Whether somebody other than `owner` has this lease at the time `at`, and is not known to be dead."""
    return lease.owner.process != owner.process and lease.deadline > at and not is_known_dead(lease.owner)


def _is_over(previous: Owner | None, owner: Owner) -> bool:
    """Whoever gives a lease back has stopped everything before; so has an earlier driver of this process."""
    return previous is None or previous.process == owner.process or is_known_dead(previous)


async def _bury(owner: Owner, buried: set[str] | None) -> bool:
    """End what the tools of a dead runtime have left, should its supervisor not have come to it; False: not all."""
    if buried is not None and owner.process in buried:
        return True
    family = Family(marks=((marking.RUNTIME, owner.process),), since=owner.started)
    if await processes.end(family, grace_seconds=0.0):
        return False
    if buried is not None:
        buried.add(owner.process)
    return True
