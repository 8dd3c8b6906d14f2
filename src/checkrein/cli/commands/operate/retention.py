"""`checkrein export` and `prune`: a run taken out of its store, as a copy or for good."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING

import click

from checkrein.cli import options, output
from checkrein.cli.commands.operate.evidence import own_key
from checkrein.cli.lookup import find_run
from checkrein.cli.session import StoreSession, with_store
from checkrein.core.wording import plural
from checkrein.errors import WrongInput

if TYPE_CHECKING:
    from checkrein.control.evidence.retention import Pruned

_SECONDS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}


@click.command
@options.run
@options.store
def export(run: str | None, store: str) -> None:
    """Write a run as JSON lines.

    Each event with its seq and its hash, as it is stored; after them the text that was shown, piece by piece.
    """
    import msgspec

    from checkrein.control.evidence.bundle import event_line, gather

    async def act(session: StoreSession) -> bytes:
        contents = await gather(session.journal, await find_run(session, run), with_withheld=False)
        lines = [event_line(record) for record in contents.records]
        pieces = [{"chunk": chunk} for chunk in contents.chunks]
        return b"".join([*lines, *(msgspec.json.encode(piece) + b"\n" for piece in pieces)])

    sys.stdout.write(with_store(store, act).decode())
    sys.stdout.flush()


def _older_than(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """`90d`, `12h` or `4w` in seconds: a number without a unit could mean anything, and what is deleted is gone."""
    match = re.fullmatch(r"([1-9][0-9]{0,4})([hdw])", value)
    if match is None:
        raise click.BadParameter("give hours, days or weeks: 12h, 90d, 4w", ctx, param)
    return int(match[1]) * _SECONDS[match[2]]


@click.command
@click.option(
    "--older-than", metavar="AGE", required=True, callback=_older_than, help="12h, 90d or 4w since the last event."
)
@click.option("--keep-stopped", is_flag=True, help="Keep every run that was stopped, with all of its family.")
@click.option("--dry-run", is_flag=True, help="Only say which.")
@options.by
@options.as_json
@options.store
def prune(older_than: float, keep_stopped: bool, dry_run: bool, by: str, as_json: bool, store: str) -> None:
    """Delete old runs whole; a signed tombstone of each stays.

    Events, text, files and withheld text go; what stays is the run's id, its head, when and by whom it was deleted.
    What is not over is refused, and so are runs of which something has changed since. Sub-runs go with their run.
    """
    from checkrein.control.evidence.retention import prune as delete

    key = own_key(store)
    if key is None:
        raise WrongInput(
            "There is no signing key here, and what is deleted leaves a signed tombstone; `checkrein evidence init` "
            "makes one.",
            code="no_signing_key",
        )
    at = time.time()

    async def act(session: StoreSession) -> Pruned:
        before = at - older_than
        return await delete(session.journal, key, before=before, keep_stopped=keep_stopped, by=by, at=at, dry=dry_run)

    pruned = with_store(store, act)
    if as_json:
        output.out_json(pruned)
        return
    verb = "would be deleted" if dry_run else "deleted"
    output.out(f"{plural(len(pruned.deleted), 'run')} {verb}, {len(pruned.kept)} kept.")
    for run, why in pruned.kept.items():
        output.note(f"kept {run}: {why}")
    if pruned.copies:
        output.note(f"Copies may be left in {pruned.copies}.")
