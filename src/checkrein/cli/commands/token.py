from __future__ import annotations

from typing import Annotated

import typer

from checkrein.cli.options import DEFAULT_STORE, Json, Store
from checkrein.server.auth.principals import Role


def token() -> None:
    """Say who may see and steer runs over HTTP: create, list, revoke.

    Works with and without a server running; a server heeds it at once.
    """


def create(
    role: Annotated[Role, typer.Option("--role", help="See only; see and steer; or everything, halt included.")],
    owner: Annotated[str, typer.Option("--owner", help="Whose runs. Operators see all and need none.")] = "",
    expires: Annotated[
        str, typer.Option("--expires", metavar="WHEN", help="After 90d, 12h or 30m, on a date (2027-01-31), or never.")
    ] = "90d",
    name: Annotated[
        str, typer.Option("--name", help="What to call its user in the record. The owner if left out.")
    ] = "",
    run: Annotated[str | None, typer.Option("--run", help="Only for this run and what it starts itself.")] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option("--origin", help="With --run: pages of this origin may use it. May be given several times."),
    ] = None,
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """Make a token and print it, this once.

    Only the token is on standard output; what it is good for is said on standard error.
    """
    from checkrein.cli.tokens import create_token

    create_token(store, role=role, owner=owner, expires=expires, name=name, run=run, origins=origin or (), as_json=json)


def list_(
    all_tokens: Annotated[bool, typer.Option("--all", help="Also those that have expired or were revoked.")] = False,
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """List the tokens: whose they are, what for, until when, and when they were last used."""
    from checkrein.cli.tokens import list_tokens

    list_tokens(store, all_tokens=all_tokens, as_json=json)


def revoke(
    which: Annotated[str, typer.Argument(metavar="TOKEN", help="The id of a token (t-…), or the beginning of it.")],
    json: Json = False,
    store: Store = DEFAULT_STORE,
) -> None:
    """End a token at once, with the sessions and streams that were opened with it."""
    from checkrein.cli.tokens import revoke_token

    revoke_token(store, which, as_json=json)


def link(
    address: Annotated[str, typer.Option("--address", help="Where the server is reached.")] = "http://127.0.0.1:8420",
    store: Store = DEFAULT_STORE,
) -> None:
    """Print an address that opens the page once, within five minutes, as the server's operator."""
    from checkrein.cli.tokens import print_link

    print_link(store, address)
