"""`checkrein store`: the tables of a store in PostgreSQL. A file needs none of this: whoever opens it does it."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

import click

from checkrein.cli import options, output
from checkrein.errors import WrongInput
from checkrein.journal import driver_needed
from checkrein.journal.address import address_of, is_postgres, shown

if TYPE_CHECKING:
    from checkrein.journal.postgres.schema import Found


@click.group(no_args_is_help=False)
def store() -> None:
    """Make, bring up to date and check the tables of a store in PostgreSQL.

    Made for a role that owns the schema: those that drive runs need not be allowed to change it.
    """


_address = click.argument(
    "address", metavar="ADDRESS", envvar=options.STORE_VARIABLE, help="postgresql://user@host:port/database?schema=name"
)


_roles = click.option(
    "--roles",
    is_flag=True,
    help="Also make three roles, or grant them anew what they may do: to drive runs, to take the verbs of people, to "
    "halt.",
)


@store.command
@_address
@_roles
@options.as_json
def init(address: str, roles: bool, as_json: bool) -> None:
    """Make the tables, unless they are there."""
    address, schema = _schema(address, "init")
    found = schema.init(address)
    _tell(address, "has its tables", found, schema.make_roles(address) if roles else None, as_json)


@store.command
@_address
@_roles
@options.as_json
def migrate(address: str, roles: bool, as_json: bool) -> None:
    """Bring the tables up to what this version knows."""
    address, schema = _schema(address, "migrate")
    found = schema.migrate(address)
    _tell(address, "is up to date", found, schema.make_roles(address) if roles else None, as_json)


@store.command
@_address
@options.as_json
def check(address: str, as_json: bool) -> None:
    """Say whether runs can be kept there, and if not, what would help; and what this user may do there."""
    address, schema = _schema(address, "check")
    found, rights, sentences = schema.check(address)
    if as_json:
        output.out_json({"store": shown(address), **found._asdict(), **rights._asdict()})
        return
    output.out(f"{shown(address)} is fit to keep runs (schema {found.version}).")
    for sentence in sentences:
        output.out(sentence)


def _schema(address: str, what: str) -> tuple[str, ModuleType]:
    """The whole address, and the module that knows the tables. Raises `WrongInput` for what needs none of this."""
    address = address_of(address)
    if not is_postgres(address):
        raise WrongInput(
            f"{shown(address)} needs no `store {what}`: that is for postgresql:// addresses, and a file is made and "
            "brought up to date by whoever opens it.",
            code="usage",
        )
    with driver_needed(shown(address)):
        from checkrein.journal.postgres import schema
    return address, schema


def _tell(address: str, done: str, found: Found, made: Mapping[str, bool] | None, as_json: bool) -> None:
    if as_json:
        output.out_json({"store": shown(address), **found._asdict(), **({} if made is None else {"roles": [*made]})})
        return
    output.out(f"{shown(address)} {done} (schema {found.version}).")
    if made is None:
        return
    from checkrein.journal.postgres.roles import ROLES

    for (name, is_new), what in zip(made.items(), ROLES.values(), strict=True):
        output.out(f"Role {name} {'was made' if is_new else 'is up to date'}: it may read, and {what}.")
    output.out(f"A login gets what it needs by: GRANT {next(iter(made))} TO my_login;")
