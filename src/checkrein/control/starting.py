"""How a run begins: what is checked, and what is written. Whoever then drives it is not this module's business."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Final, Literal, get_args

from checkrein.control.verbs import Control
from checkrein.core.conditions import Condition
from checkrein.core.events import RunCreated
from checkrein.core.words import TERMINAL, Status
from checkrein.errors import MisuseError, Refused
from checkrein.journal.contract import Journal
from checkrein.runtime.secrets import Secrets

IfBusy = Literal["queue", "redirect", "refuse"]
"""What a new run on a thread with a live one does: waits behind it, becomes its next instruction, or is refused."""

GO_ON: Final = "Go on from where you stopped."
UNFINISHED: Final = frozenset(Status) - TERMINAL


async def begin(
    journal: Journal,
    control: Control,
    agent: str,
    goal: str = "",
    *,
    stop_when: Condition | None,
    secrets: Secrets,
    clock: Callable[[], float],
    thread: str | None = None,
    continues: str | None = None,
    owner: str = "",
    if_busy: IfBusy = "queue",
    by: str = "",
) -> tuple[str, bool]:
    """Write a new run down, and say its id; or, with `if_busy="redirect"`, the id of the live run that took the goal.

    The second value is whether the run is new. `by` is who asks, for the record of a redirect. Raises `MisuseError` for
    what cannot be meant, `RunNotFound` for a run to continue that there is not, `Refused` for a busy thread, and what
    `Journal.create` raises.
    """
    if if_busy not in get_args(IfBusy):
        raise MisuseError(f"if_busy is one of {', '.join(get_args(IfBusy))}, not {if_busy!r}.")
    if continues is not None:
        thread = (await journal.load(continues)).thread
        goal = goal or GO_ON
    if not goal.strip():
        raise MisuseError("A run needs a goal: say in a sentence what is to be done.")
    if thread is not None and (live := await _live_on(journal, thread)) is not None:
        if if_busy == "refuse":
            raise Refused(f"Thread {thread} is busy with run {live}.", code="thread_busy", run=live)
        if if_busy == "redirect":
            await control.redirect(live, goal, by=by or owner or "program")
            return live, False
    run = f"r-{uuid.uuid4().hex[:12]}"
    created = RunCreated(
        id=f"{run}.created",
        at=clock(),
        run=run,
        agent=agent,
        goal=secrets.text(goal),
        thread=thread or run,
        owner=owner,
        continues=continues,
        stop_when=stop_when,
    )
    await journal.create(created)
    return run, True


async def _live_on(journal: Journal, thread: str) -> str | None:
    """The run of the thread whose turn it is: the oldest that is not finished."""
    rows = await journal.runs(thread=thread, status=UNFINISHED, limit=1000)
    return rows[-1].id if rows else None
