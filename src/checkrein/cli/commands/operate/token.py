"""`checkrein token`: straight to the keys beside the store or in it, whether a server runs or not."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click
import msgspec

from checkrein.cli import options, output
from checkrein.cli.options import who
from checkrein.cli.output import print_table
from checkrein.cli.session import StoreSession, with_store
from checkrein.core.escape import one_line
from checkrein.errors import WrongInput
from checkrein.journal.address import MEMORY, is_postgres, shown
from checkrein.server.auth.key_store import FileKeyStore, KeyStore, key_store
from checkrein.server.auth.policy import configured_origin
from checkrein.server.auth.principals import Role
from checkrein.server.auth.token_store import Keys, Token, access_folder, server_token

if TYPE_CHECKING:
    from checkrein.core.state import State

T = TypeVar("T")

_SECONDS: Final = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_LASTS: Final = re.compile(r"([1-9][0-9]{0,5})([mhdw])")


@click.group(no_args_is_help=False)
def token() -> None:
    """Say who may see and steer runs over HTTP: create, list, revoke.

    Works with and without a server running; a server heeds it at once.
    """


@token.command
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    required=True,
    help="See only; see and steer; or everything, halt included.",
)
@click.option("--owner", metavar="NAME", default="", help="Whose runs. Operators see all and need none.")
@click.option(
    "--expires",
    metavar="WHEN",
    default="90d",
    show_default=True,
    help="After 90d, 12h or 30m, on a date (2027-01-31), or never.",
)
@click.option("--name", metavar="NAME", default="", help="What to call its user in the record. The owner if left out.")
@click.option("--run", metavar="RUN", help="Only for this run and what it starts itself.")
@click.option(
    "--origin",
    "origins",
    metavar="ORIGIN",
    multiple=True,
    help="With --run: pages of this origin may use it. May be given several times.",
)
@options.as_json
@options.store
def create(
    role: str, owner: str, expires: str, name: str, run: str | None, origins: tuple[str, ...], as_json: bool, store: str
) -> None:
    """Make a token and print it, this once.

    Only the token is on standard output; what it is good for is said on standard error.
    """
    _create(Role(role), owner=owner, expires=expires, name=name, run=run, origins=origins, as_json=as_json, store=store)


def _create(
    role: Role,
    *,
    owner: str,
    expires: str,
    name: str,
    run: str | None,
    origins: Sequence[str],
    as_json: bool,
    store: str,
) -> None:
    """Everything is checked before anything is made."""
    expires_at = expiry(expires, now=time.time())
    allowed = tuple(dict.fromkeys(configured_origin(origin) for origin in origins))
    if allowed and run is None:
        raise WrongInput("A token for pages of other origins is for one run; name it with --run.", code="token_scope")
    if run is not None:
        run, owner = _run_and_owner(store, role, run, owner)
    elif role is not Role.OPERATOR and not owner:
        raise WrongInput(
            f"A {role.value} sees the runs of one owner; say whose with --owner (or which run with --run).",
            code="token_scope",
        )
    made, secret = _with_keys(
        store,
        lambda keys: keys.create(
            role=role, name=name, owner=owner, run=run, origins=allowed, expires_at=expires_at, created_by=who("")
        ),
    )
    if as_json:
        output.out_json({**msgspec.structs.asdict(made), "token": secret})
        return
    output.note(f"Token {made.id}: {_good_for(made)}, {_until(made)}. It is shown this once.")
    output.out(secret)


@token.command("list")
@click.option("--all", "all_tokens", is_flag=True, help="Also those that have expired or were revoked.")
@options.as_json
@options.store
def list_(all_tokens: bool, as_json: bool, store: str) -> None:
    """List the tokens: whose they are, what for, until when, and when they were last used."""
    now = time.time()
    kept = _with_keys(store, lambda keys: keys.tokens(), must_exist=True)
    tokens = [token for token in kept if all_tokens or token.is_good(now)]
    if as_json:
        for token in tokens:
            output.out_json(token)
    elif tokens:
        print_table(
            ("TOKEN", "NAME", "ROLE", "OWNER", "RUN", "UNTIL", "LAST USED", "ORIGINS"),
            [_row(token, now) for token in tokens],
            widest=(16, 24, 10, 20, 20, 22, 16, 60),
        )
    else:
        more = "" if all_tokens else f" Ended ones: {output.command('token list --all')}"
        output.note(f"No token for {shown(store)} besides the server's own.{more}")


@token.command
@click.argument("which", metavar="TOKEN", help="The id of a token (t-…), or the beginning of it.")
@options.as_json
@options.store
def revoke(which: str, as_json: bool, store: str) -> None:
    """End a token at once, with the sessions and streams that were opened with it."""

    async def act(keys: KeyStore) -> tuple[Token, Token]:
        found = _one(which, await keys.tokens())
        return found, await keys.revoke(found.id) or found

    found, revoked = _with_keys(store, act, must_exist=True)
    was_good = found.is_good(time.time())
    if as_json:
        output.out_json(revoked)
    elif was_good:
        output.out(f"Revoked {found.id} ({_good_for(found)}). It lets nobody in any more; its streams end in seconds.")
    else:
        output.out(f"{found.id} had ended already.")


@token.command
@click.option(
    "--address", metavar="URL", default="http://127.0.0.1:8420", show_default=True, help="Where the server is reached."
)
@options.token_file
@options.store
def link(address: str, token_file: Path | None, store: str) -> None:
    """Print an address that opens the page once, within five minutes, as the server's operator."""
    origin = configured_origin(address)
    secret = server_token(store, token_file)
    code = _with_keys(store, lambda keys: keys.new_code(secret))
    output.note("Open this once, within five minutes:")
    output.out(f"{origin}/enter?code={code}")


def expiry(text: str, *, now: float) -> float | None:
    """When a token ends, in Unix seconds: None for never. Raises `WrongInput`."""
    if text == "never":
        return None
    found = _LASTS.fullmatch(text)
    if found is not None:
        return now + int(found[1]) * _SECONDS[found[2]]
    try:
        at = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise WrongInput(
            f"{text!r} is no time to expire; write 30m, 12h, 90d or 4w, a date as in 2027-01-31, or never.",
            code="token_expiry",
        ) from None
    if at <= now:
        raise WrongInput(f"{text} is past; a token that ends then lets nobody in.", code="token_expiry")
    return at


def _run_and_owner(store: str, role: Role, text: str, owner: str) -> tuple[str, str]:
    from checkrein.cli.lookup import find_run

    if role is Role.OPERATOR:
        raise WrongInput("An operator's token is for everything; for one run make a controller's.", code="token_scope")

    async def act(session: StoreSession) -> State:
        return await session.journal.load(await find_run(session, text))

    state = with_store(store, act)
    if owner and owner != state.owner:
        raise WrongInput(
            f"Run {state.run} belongs to {one_line(state.owner) or 'nobody'}, not to {one_line(owner)}; leave --owner "
            "out.",
            code="token_scope",
        )
    return state.run, state.owner


def _with_keys(store: str, act: Callable[[KeyStore], Awaitable[T]], *, must_exist: bool = False) -> T:
    """Do one thing with the keys to a store. Those of a file are reached without its journal."""
    if store == MEMORY:
        raise WrongInput("memory: has no tokens that outlive it; name a file with --store.", code="store_not_found")
    if is_postgres(store):
        return with_store(store, lambda session: act(key_store(store, lambda: session.journal)))
    folder = access_folder(store)
    if must_exist and not folder.exists():
        raise WrongInput(
            f"There are no tokens for {shown(store)} yet; make one with {output.command('token create')}.",
            code="no_tokens",
        )

    async def done() -> T:
        with closing(Keys(folder)) as keys:
            return await act(FileKeyStore(keys))

    return asyncio.run(done())


def _one(which: str, tokens: Sequence[Token]) -> Token:
    wanted = f"t-{which.removeprefix('t-')}"
    found = [token for token in tokens if token.id.startswith(wanted) and wanted != "t-"]
    exact = [token for token in found if token.id == wanted]
    if not found:
        raise WrongInput(
            f"There is no token {one_line(which)}; see {output.command('token list')}.", code="token_not_found"
        )
    if len(found) > 1 and not exact:
        listed = ", ".join(token.id for token in found)
        raise WrongInput(f"{one_line(which)} could be any of {listed}.", code="ambiguous_token")
    return (exact or found)[0]


def _good_for(token: Token) -> str:
    if token.run is not None:
        return f"{token.role.value} of run {token.run}"
    return token.role.value if token.role is Role.OPERATOR else f"{token.role.value} of {one_line(token.owner)}'s runs"


def _until(token: Token) -> str:
    return "for ever" if token.expires_at is None else f"until {_time(token.expires_at)}"


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M}"


def _row(token: Token, now: float) -> tuple[str, ...]:
    if token.revoked_at is not None:
        until = f"revoked {_time(token.revoked_at)}"
    elif token.is_good(now):
        until = "never ends" if token.expires_at is None else _time(token.expires_at)
    else:
        until = f"expired {_time(token.expires_at or 0)}"
    return (
        token.id,
        one_line(token.name),
        token.role.value,
        one_line(token.owner) or "-",
        token.run or "-",
        until,
        "never" if token.used_at is None else _time(token.used_at),
        " ".join(token.origins) or "-",
    )
