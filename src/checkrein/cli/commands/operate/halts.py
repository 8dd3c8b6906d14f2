"""`checkrein halt`, `reset` and `halts`: the operator's kill switch.

What a halt does is in `cli/halt.py`, which needs none of this; here are its words.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any, Final

import click

from checkrein.cli import options, output
from checkrein.cli.output import print_table
from checkrein.cli.session import StoreSession, with_store
from checkrein.client import AsyncClient
from checkrein.control.halt import Halting, LatchedHalt, checked_scope
from checkrein.core.escape import one_line
from checkrein.core.wording import clock
from checkrein.errors import MisuseError, WrongInput
from checkrein.journal.address import shown
from checkrein.journal.base import Scope
from checkrein.processes import halt_flags
from checkrein.processes.identity import this_process

HALT_TOKEN_VARIABLE: Final = "CHECKREIN_HALT_TOKEN"
"""What lets somebody reset at a server, which was given the same one."""


_scope = click.argument("scope", metavar="SCOPE", help="Of whose runs: run, agent, owner or all.")
_name = click.argument("name", metavar="[NAME]", required=False, default="", help="Which run, agent or owner.")


@click.command(context_settings={"ignore_unknown_options": True})
@_scope
@_name
@click.option("--reason", metavar="TEXT", default="", help="Why. It is recorded.")
@click.option(
    "--wait",
    metavar="SECONDS",
    type=options.Number(0, options.LONGEST_WAIT),
    default=5.0,
    show_default=True,
    help="How long to wait for drivers to say that they have stopped.",
)
@options.by
@options.as_json
@options.store
@options.server
def halt(**given: Any) -> int:
    """The kill switch: nothing begins in the scope, on any host, until it is reset.

    First a flag on this host, then the fence in the store; then every live run in the scope is ended. Nothing is
    undone. Exit code 0: the fence is in. 6: only what is said holds. 2: that cannot be meant, and nothing was halted.
    """
    from checkrein.cli.halt import run

    words = [given["scope"], *([given["name"]] if given["name"] else []), "--reason", given["reason"]]
    words += ["--by", given["by"], "--wait", str(given["wait"]), *(["--json"] if given["as_json"] else [])]
    if given["server"]:
        words += ["--server", given["server"], *(["--token", given["token"]] if given["token"] else [])]
    else:
        words += ["--store", given["store"]]
    return run(words)


@click.command
@_scope
@_name
@click.option("--reason", metavar="TEXT", default="", help="Why. It is recorded.")
@options.by
@options.as_json
@options.store
@options.server
def reset(
    scope: str, name: str, reason: str, by: str, as_json: bool, store: str, server: str | None, token: str | None
) -> None:
    """Lift a halt. Nothing is resumed by it.

    Who, why and when is recorded. A flag of this host is taken down; other hosts take theirs down when they see it.
    """
    try:
        meant = checked_scope(scope, name)
    except MisuseError as error:
        raise WrongInput(error.message) from None
    if server is not None:
        return _reset_at_server(server, os.environ.get(HALT_TOKEN_VARIABLE) or token, meant, name, reason, as_json)

    async def act(session: StoreSession) -> bool:
        lifted = await Halting(session.journal, this_process()).reset(meant, name, by=by, reason=reason)
        return lifted.was_latched

    was_latched = with_store(store, act)
    was_up = halt_flags.take_down(store, meant.value, name)
    _report(meant, name, was_latched or was_up, as_json)


def _reset_at_server(server: str, token: str | None, scope: Scope, name: str, reason: str, as_json: bool) -> None:
    async def act() -> bool:
        async with AsyncClient(server, token) as client:
            return (await client.reset(scope.value, name, reason=reason)).was_latched

    _report(scope, name, asyncio.run(act()), as_json)


def _report(scope: Scope, name: str, was_latched: bool, as_json: bool) -> None:
    what = one_line(f"{scope.value} {name}".rstrip())
    if as_json:
        output.out_json({"scope": scope.value, "name": name, "was_latched": was_latched})
    elif was_latched:
        output.out(f"The halt of {what} is lifted. Nothing was resumed.")
    else:
        output.out(f"{what[:1].upper()}{what[1:]} was not halted.")


@click.command
@options.as_json
@options.store
@options.server
def halts(as_json: bool, store: str, server: str | None, token: str | None) -> None:
    """List what is halted: who, why and since when."""
    found = _at_server(server, token) if server is not None else _at_store(store)
    if as_json:
        for one in found:
            output.out_json(one)
    elif found:
        print_table(
            ("HALTED", "BY", "SINCE", "WHERE", "REASON"),
            [_row(one) for one in found],
            widest=(40, 20, 12, 10, 80),
        )
    else:
        print(f"Nothing is halted at {server or shown(store)}.", file=sys.stderr)


def _at_store(store: str) -> tuple[LatchedHalt, ...]:
    async def act(session: StoreSession) -> tuple[LatchedHalt, ...]:
        return await Halting(session.journal, this_process()).halts(store)

    return with_store(store, act)


def _at_server(server: str, token: str | None) -> tuple[LatchedHalt, ...]:
    async def act() -> tuple[LatchedHalt, ...]:
        async with AsyncClient(server, token) as client:
            return await client.halts()

    return asyncio.run(act())


def _row(one: LatchedHalt) -> tuple[str, ...]:
    return (
        one_line(f"{one.scope} {one.name}".rstrip()),
        one_line(one.by) or "-",
        clock(max(0.0, time.time() - one.at)),
        "everywhere" if one.where == "store" else "this host",
        one_line(one.reason) or "-",
    )
