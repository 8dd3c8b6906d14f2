"""How a run begins: what is checked, and what is written. Whoever then drives it is not this module's business."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Final, Literal, get_args

import msgspec

from checkrein.control.control import Control
from checkrein.core.conditions import Condition
from checkrein.core.events import RunCreated
from checkrein.errors import MisuseError, Refused
from checkrein.journal.base import Journal
from checkrein.secrets import Secrets

_log = logging.getLogger(__name__)

IfBusy = Literal["queue", "redirect", "refuse"]
"""What a new run on a thread with a live one does: waits behind it, becomes its next instruction, or is refused."""


class StartRun(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody wants a goal reached."""

    agent: str
    goal: str = ""
    """May be left out of a run that continues another."""
    thread: str | None = None
    """A conversation of its owner: two owners who use one name have two threads, and neither hears of the other's."""
    continues: str | None = None
    """A run that has ended: the new one goes on from there, on the same thread, and belongs to the same owner."""
    owner: str = ""
    """Whose run it is."""
    if_busy: IfBusy = "queue"
    by: str = ""
    """Who asks, for the record of a redirect."""


REDIRECTS: Final = 10
"""So often a run that has ended meanwhile is given way to the next one of its thread."""
GO_ON: Final = "Go on from where you stopped."


async def begin(
    journal: Journal,
    control: Control,
    wanted: StartRun,
    *,
    stop_when: Condition | None,
    secrets: Secrets,
    clock: Callable[[], float],
) -> tuple[str, bool]:
    """Write a new run down, and say its id; or, with `if_busy="redirect"`, the id of the live run that took the goal.

    The second value is whether the run is new. Raises `MisuseError` for what cannot be meant, `RunNotFound` for a run
    to continue that there is not, `Refused` for a busy thread, and what `Journal.create` raises.
    """
    if wanted.if_busy not in get_args(IfBusy):
        raise MisuseError(f"if_busy is one of {', '.join(get_args(IfBusy))}, not {wanted.if_busy!r}.")
    goal, thread, owner = await _continued(journal, wanted)
    if not goal.strip():
        raise MisuseError("A run needs a goal: say in a sentence what is to be done.")
    run = f"r-{uuid.uuid4().hex[:12]}"
    created = RunCreated(
        id=f"{run}.created",
        at=clock(),
        run=run,
        agent=wanted.agent,
        goal=secrets.text(goal),
        thread=thread or run,
        owner=owner,
        continues=wanted.continues,
        stop_when=stop_when,
    )
    for _ in range(REDIRECTS):
        try:
            await journal.create(created, if_busy="queue" if wanted.if_busy == "queue" else "refuse")
            return run, True
        except Refused as busy:
            if busy.code != "thread_busy" or wanted.if_busy != "redirect":
                raise
            if await _redirected(control, busy.run, goal, wanted.by or owner or "program"):
                return busy.run, False
    await journal.create(created)  # one run after the other ends there: it waits for its turn
    return run, True


async def _continued(journal: Journal, wanted: StartRun) -> tuple[str, str | None, str]:
    """Goal, thread and owner of a run, which are those of the one that it continues where it says nothing else."""
    if wanted.continues is None:
        return wanted.goal, wanted.thread, wanted.owner
    before = await journal.load(wanted.continues)
    if wanted.owner and wanted.owner != before.owner:
        whose = f"belongs to {before.owner}" if before.owner else "has no owner"
        raise MisuseError(
            f"Run {wanted.continues} {whose}, and so has what goes on from it: {wanted.owner} cannot be its owner.",
            run=wanted.continues,
        )
    return wanted.goal or GO_ON, before.thread, before.owner


async def _redirected(control: Control, run: str, goal: str, by: str) -> bool:
    """False when the run has just ended: the thread is free for a new one."""
    try:
        await control.redirect(run, goal, by=by)
    except Refused as refused:
        if refused.code != "finished":
            raise
        _log.debug("a run on the thread ended before it could be redirected", extra={"run": run})
        return False
    return True
