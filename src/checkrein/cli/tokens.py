"""Tokens from the command line: straight to the file of keys beside the store, whether a server runs or not."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from checkrein.cli import hints, saying
from checkrein.cli.clean import one_line
from checkrein.cli.options import who
from checkrein.cli.session import Session, with_store
from checkrein.cli.table import print_table
from checkrein.errors import WrongInput
from checkrein.server.auth.addresses import configured_origin
from checkrein.server.auth.keys import Keys, Token, access_folder
from checkrein.server.auth.principals import Role
from checkrein.server.auth.server_token import OPERATOR, server_token

if TYPE_CHECKING:
    from checkrein.core.state import State

_SECONDS: Final = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_LASTS: Final = re.compile(r"([1-9][0-9]{0,5})([mhdw])")


def create_token(
    store: str,
    *,
    role: Role,
    owner: str,
    expires: str,
    name: str,
    run: str | None,
    origins: Sequence[str],
    as_json: bool,
) -> None:
    """Make a token. Everything is checked before anything is made."""
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
    with _keys(store) as keys:
        token, secret = keys.create(
            role=role, name=name, owner=owner, run=run, origins=allowed, expires_at=expires_at, created_by=who("")
        )
    if as_json:
        saying.out_json({**msgspec.structs.asdict(token), "token": secret})
        return
    saying.note(f"Token {token.id}: {_good_for(token)}, {_until(token)}. It is shown this once.")
    saying.out(secret)


def list_tokens(store: str, *, all_tokens: bool, as_json: bool) -> None:
    now = time.time()
    with _keys(store, must_exist=True) as keys:
        tokens = [token for token in keys.tokens() if all_tokens or token.is_good(now)]
    if as_json:
        for token in tokens:
            saying.out_json(token)
    elif tokens:
        print_table(
            ("TOKEN", "NAME", "ROLE", "OWNER", "RUN", "UNTIL", "LAST USED", "ORIGINS"),
            [_row(token, now) for token in tokens],
            widest=(16, 24, 10, 20, 20, 22, 16, 60),
        )
    else:
        more = "" if all_tokens else f" Ended ones: {hints.command('token list --all')}"
        saying.note(f"No token for {store} besides the server's own.{more}")


def revoke_token(store: str, which: str, *, as_json: bool) -> None:
    with _keys(store, must_exist=True) as keys:
        token = _one(which, keys.tokens())
        was_good = token.is_good(time.time())
        revoked = keys.revoke(token.id) or token
    if as_json:
        saying.out_json(revoked)
    elif was_good:
        saying.out(f"Revoked {token.id} ({_good_for(token)}). It lets nobody in any more; its streams end in seconds.")
    else:
        saying.out(f"{token.id} had ended already.")


def print_link(store: str, address: str) -> None:
    folder = access_folder(store)
    origin = configured_origin(address)
    secret = server_token(folder)
    with _keys(store) as keys:
        keys.trust(secret, OPERATOR)
        code = keys.new_code(secret)
    saying.note("Open this once, within five minutes:")
    saying.out(f"{origin}/enter?code={code}")


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
    from checkrein.cli.naming import find_run

    if role is Role.OPERATOR:
        raise WrongInput("An operator's token is for everything; for one run make a controller's.", code="token_scope")

    async def act(session: Session) -> State:
        return await session.journal.load(await find_run(session, text))

    state = with_store(store, act)
    if owner and owner != state.owner:
        raise WrongInput(
            f"Run {state.run} belongs to {one_line(state.owner) or 'nobody'}, not to {one_line(owner)}; leave --owner "
            "out.",
            code="token_scope",
        )
    return state.run, state.owner


@contextmanager
def _keys(store: str, *, must_exist: bool = False) -> Iterator[Keys]:
    folder = _folder(store)
    if must_exist and not folder.exists():
        raise WrongInput(
            f"There are no tokens for {store} yet; make one with {hints.command('token create')}.", code="no_tokens"
        )
    with closing(Keys(folder)) as keys:
        yield keys


def _folder(store: str) -> Path:
    from checkrein.journal.address import MEMORY

    if store == MEMORY:
        raise WrongInput("memory: has no tokens that outlive it; name a file with --store.", code="store_not_found")
    return access_folder(store)


def _one(which: str, tokens: Sequence[Token]) -> Token:
    wanted = f"t-{which.removeprefix('t-')}"
    found = [token for token in tokens if token.id.startswith(wanted) and wanted != "t-"]
    exact = [token for token in found if token.id == wanted]
    if not found:
        raise WrongInput(
            f"There is no token {one_line(which)}; see {hints.command('token list')}.", code="token_not_found"
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
