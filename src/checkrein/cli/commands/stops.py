"""`checkrein stops`: each pause, redirect, cancel and halt, with what was on show by then and what was noticed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from checkrein.cli import options, output
from checkrein.cli.session import StoreSession, with_store
from checkrein.cli.wording import moment
from checkrein.core.escape import one_line
from checkrein.core.wording import milliseconds, plural
from checkrein.errors import WrongInput
from checkrein.journal.address import shown

if TYPE_CHECKING:
    from checkrein.control.stops import Stop, Stops


@click.command
@click.option("--reason", metavar="TEXT", help="Only stops whose reason has this text in it.")
@click.option("--flagged", is_flag=True, help="Only stops of runs that a watcher flagged.")
@click.option("--verb", type=click.Choice(["pause", "redirect", "cancel", "halt"]), help="Only stops of this kind.")
@click.option("--csv", "as_csv", is_flag=True, help="A table for spreadsheets, with a line of heads.")
@click.option(
    "--limit",
    metavar="N",
    type=options.WholeNumber(1, options.MOST_LISTED),
    default=100,
    show_default=True,
    help="How many stops at most, the newest.",
)
@options.as_json
@options.store
def stops(
    reason: str | None, flagged: bool, verb: str | None, as_csv: bool, limit: int, as_json: bool, store: str
) -> int:
    """List every stop: when, who, why, and what was on show.

    The last text shown by then and the nearest flag of a watcher stand beside it. What checkrein stopped by itself is
    listed too: a cap that was reached, a watcher that acted. Exit code: 1 when the record of one of these runs does not
    verify.
    """
    from checkrein.control.stops import all_stops, csv_of

    if as_csv and as_json:
        raise WrongInput("Either --csv or --json, not both.", code="usage")

    async def act(session: StoreSession) -> Stops:
        return await all_stops(session.journal)

    everything = with_store(store, act)
    found = everything.fitting(reason=reason, flagged=flagged, verb=verb)
    if as_csv:
        sys.stdout.write(csv_of(found[-limit:]))
    for stop in [] if as_csv else found[-limit:]:
        if as_json:
            output.out_json(stop)
        else:
            for line in _lines(stop):
                output.out(line)
    if not found and not as_json and not as_csv:
        print(f"No stop in {shown(store)} fits.", file=sys.stderr)
    for run, damage in everything.damaged.items():
        print(f"problem: the record of run {run} was tampered with or is damaged. {damage}", file=sys.stderr)
    return 1 if everything.damaged else 0


def _lines(stop: Stop) -> Iterator[str]:
    why = "; ".join(one_line(reason, 200) for reason in stop.reasons) or "no reason given"
    yield f"{moment(stop.at)}  {stop.verb.value:<8}  {stop.run}  by {one_line(stop.by, 40)}: {why}"
    if stop.damage:
        yield "    NOT SURE: the record of this run does not verify; who, when and why may have been changed"
    yield f"    agent {one_line(stop.agent, 40)}: {one_line(stop.goal, 120)}"
    took = "" if stop.stopped_ms is None else f"stopped in {milliseconds(stop.stopped_ms)}, "
    yield f"    {took}{plural(stop.tokens_after_stop, 'token')} after it"
    if stop.last_text:
        yield f"    last shown: …{one_line(stop.last_text[-160:])}"
    if stop.flag is not None:
        when = abs(stop.flag.seconds_before)
        side = "before" if stop.flag.seconds_before >= 0 else "after"
        yield f"    flag: {one_line(stop.flag.watcher)}, {one_line(stop.flag.what, 200)} ({when:.1f} s {side} the stop)"
