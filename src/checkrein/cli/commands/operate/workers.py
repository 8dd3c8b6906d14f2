"""`checkrein workers`, the roster of a store, and `checkrein bury`: an operator's word that one of them is dead."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from checkrein.cli import options, output
from checkrein.cli.output import print_table
from checkrein.cli.session import StoreSession, with_store
from checkrein.core.escape import one_line
from checkrein.core.wording import clock
from checkrein.errors import WrongInput

if TYPE_CHECKING:
    from checkrein.journal.base import Worker


class ListedWorker(msgspec.Struct, frozen=True, kw_only=True):
    """One worker in the list."""

    name: str
    is_seen: bool
    """Whether it gave a sign of life lately."""
    host: str
    pid: int
    version: str
    agents: tuple[str, ...]
    slots: int
    free: int
    engine: str
    since: float
    seen_until: float
    buried_by: str = ""
    """Who has said that it is dead; empty: nobody."""
    reason: str = ""


@click.command
@options.as_json
@options.store
def workers(as_json: bool, store: str) -> None:
    """List the workers that drive runs of a store."""

    async def act(session: StoreSession) -> tuple[list[ListedWorker], float]:
        now = session.journal.now()
        return [_listed(one, now) for one in await session.journal.workers()], now

    listed, now = with_store(store, act)
    if as_json:
        for one in listed:
            output.out_json(one)
    elif listed:
        print_table(
            ("WORKER", "SEEN", "VERSION", "AGENTS", "FREE", "SINCE", "HOST"),
            [_row(one, now) for one in listed],
            widest=(30, 30, 16, 40, 12, 10, 30),
        )
    else:
        from checkrein.journal.address import shown

        print(f"No worker on the roster of {shown(store)}.", file=sys.stderr)


@click.command
@click.argument("name", metavar="NAME", help="The name of a worker that is dead.")
@click.option("--reason", metavar="TEXT", required=True, help="How you know that it is dead. It is recorded.")
@options.by
@options.as_json
@options.store
def bury(name: str, reason: str, by: str, as_json: bool, store: str) -> None:
    """Say that a worker is dead: what it left in doubt is answered for.

    For one on another host that will not come back under its name. If it lives after all, it may not drive any more;
    but what it was doing when you said so may still happen.
    """

    async def act(session: StoreSession) -> list[Worker]:
        journal = session.journal
        found = [one for one in await journal.workers() if one.name == name or one.name.startswith(f"{name}/")]
        for one in found:
            if one.is_seen(journal.now()):
                raise WrongInput(
                    f"Worker {one.name} gave a sign of life from {one.owner.host} a moment ago: it lives. End it, "
                    "or wait until `checkrein workers` does not show it as seen.",
                    code="worker_seen",
                )
        return [await journal.bury(one.name, by=by, reason=reason) for one in found] or [
            await journal.bury(name, by=by, reason=reason)
        ]

    for one in with_store(store, act):
        if as_json:
            output.out_json(_listed(one, 0.0))
        else:
            output.out(f"Worker {one_line(one.name)} is buried: {_burial(_listed(one, 0.0))}.")


def _listed(worker: Worker, now: float) -> ListedWorker:
    burial = worker.burial
    return ListedWorker(
        name=worker.name,
        is_seen=worker.is_seen(now),
        host=worker.owner.host,
        pid=worker.owner.pid,
        version=worker.version,
        agents=worker.agents,
        slots=worker.slots,
        free=worker.free,
        engine=worker.engine,
        since=worker.since,
        seen_until=worker.seen_until,
        buried_by="" if burial is None else burial.by,
        reason="" if burial is None else burial.reason,
    )


def _row(one: ListedWorker, now: float) -> tuple[str, ...]:
    return (
        one_line(one.name),
        _seen(one, now),
        one_line(one.version) or "-",
        one_line(", ".join(one.agents)) or "-",
        f"{one.free} of {one.slots}" if one.slots else "any",
        clock(max(0.0, now - one.since)),
        one_line(one.host),
    )


def _seen(one: ListedWorker, now: float) -> str:
    if one.buried_by:
        return _burial(one)
    return "yes" if one.is_seen else f"not for {clock(max(0.0, now - one.seen_until))}"


def _burial(one: ListedWorker) -> str:
    return f"dead, says {one_line(one.buried_by)} ({one_line(one.reason)})"
