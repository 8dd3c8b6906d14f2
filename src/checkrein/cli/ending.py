"""The last words about a run that a terminal was attached to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from checkrein.cli import hints
from checkrein.cli.clean import one_line, printable
from checkrein.cli.receipts import receipt_lines
from checkrein.cli.words import clock, value_of
from checkrein.control.viewing import look
from checkrein.core.words import Status, Verb

if TYPE_CHECKING:
    from checkrein.control.view import RunView
    from checkrein.journal.contract import Journal


async def result_of(journal: Journal, run: str) -> dict[str, Any]:
    """The last line of JSON."""
    view = await look(journal, run, at=time.time())
    return {"type": "result", "run": run, "status": view.status, "result": view.result, "error": view.error}


async def last_words(journal: Journal, run: str) -> list[str]:
    """What is worth reading once the screen is gone."""
    view = await look(journal, run, at=time.time())
    return [
        f"Run {run} {_STATUS.get(view.status, view.status.value)} after {clock(view.elapsed_seconds)}.",
        *_rest(view),
    ]


_STATUS = {
    Status.COMPLETED: "completed",
    Status.FAILED: "failed",
    Status.CANCELLED: "was cancelled",
    Status.KILLED: "was halted by an operator",
    Status.PAUSED: "is paused",
}


def _rest(view: RunView) -> list[str]:
    if view.status is Status.COMPLETED:
        return [printable(view.result if isinstance(view.result, str) else value_of(view.result))]
    if view.status is Status.FAILED:
        return [one_line(view.error or "")]
    if view.status in (Status.CANCELLED, Status.KILLED):
        stop = [receipt for receipt in view.receipts if receipt.verb in (Verb.CANCEL, Verb.HALT)]
        return receipt_lines(stop[-1]) if stop else []
    return []


def how_to_go_on(run: str) -> str:
    """After a run was left unfinished."""
    return f"It is kept. To go on with it: {hints.take_up(run)}"
