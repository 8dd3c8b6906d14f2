"""`checkrein halt`, out of band: a flag on this host, the fence in the store, and then the ends of runs.

Each step is in force by itself and said at once. The first two need the standard library and, for PostgreSQL, its
driver: no event loop, no server, no engine, and nothing of this package that takes long to be imported.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from checkrein.errors import CheckreinError, RunNotFound, StoreNotOurs, StoreUnavailable
from checkrein.journal import operations
from checkrein.journal.address import MEMORY, address_of, file_of, is_postgres, shown
from checkrein.processes import halt_flags

SCOPES: Final = ("run", "agent", "owner", "all")
PATIENCE_SECONDS: Final = 10.0
"""How long a store that does not answer is asked again."""
FLAG_ONLY: Final = 6
"""The exit code where the fence is not in the store: only what the sentence says holds."""
WRONG_INPUT: Final = 2
LONGEST_NAME: Final = 200
LONGEST_REASON: Final = 2000


class Wrong(Exception):
    """What was typed cannot be meant; nothing was latched."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Wrong(f"{message[:1].upper()}{message[1:]}; see --help.")


def run(arguments: list[str]) -> int:
    """Carry it out and return the exit code: 0 only when the fence is in the store, or the server says so."""
    try:
        asked = _parsed(arguments)
        return _at_server(asked) if asked.server else _at_store(asked)
    except Wrong as wrong:
        return _complain("usage", str(wrong), "--json" in arguments, WRONG_INPUT)
    except CheckreinError as error:
        return _complain(error.code, error.message, "--json" in arguments, WRONG_INPUT)


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="checkrein halt", add_help=False, allow_abbrev=False)
    parser.add_argument("scope")
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("--reason", default="")
    parser.add_argument("--by", default="")
    parser.add_argument("--store")
    parser.add_argument("--server")
    parser.add_argument("--token")
    parser.add_argument("--wait", type=float, default=5.0)
    parser.add_argument("--json", action="store_true", dest="as_json")
    asked = parser.parse_args(arguments)
    _check(asked)
    if asked.store and asked.server:
        raise Wrong("Say either --store or --server: a server has a store of its own.")
    if not asked.store:
        asked.server = asked.server or os.environ.get("CHECKREIN_SERVER")
    asked.by = asked.by or _login_name()
    return asked


def _check(asked: argparse.Namespace) -> None:
    if asked.scope not in SCOPES:
        raise Wrong(f"A halt is for one of {', '.join(SCOPES)}, not {asked.scope!r}; nothing was halted.")
    if asked.scope == "all" and asked.name:
        raise Wrong("A halt of all takes no name; say `agent` or `owner` to halt less. Nothing was halted.")
    if asked.scope != "all" and not asked.name:
        raise Wrong(f"Say which {asked.scope} is meant; nothing was halted.")
    if len(asked.name) > LONGEST_NAME or len(asked.reason) > LONGEST_REASON:
        raise Wrong(f"A name has at most {LONGEST_NAME} letters, a reason {LONGEST_REASON}; nothing was halted.")
    try:
        (asked.name + asked.reason + asked.by).encode()
    except UnicodeEncodeError:
        raise Wrong("That is no text (UTF-8); nothing was halted.") from None
    if not 0 <= asked.wait <= 86_400:
        raise Wrong("--wait is a number of seconds from 0 to 86400; nothing was halted.")


def _login_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"


# -- at a store


def _store_of(asked: argparse.Namespace) -> str:
    said = asked.store or os.environ.get("CHECKREIN_STORE")
    if not said:
        from checkrein.cli.config import configured

        said = configured().get("store") or "sqlite:///.checkrein/runs.db"
    address = address_of(said)
    path = file_of(address)
    if address == MEMORY:
        raise Wrong("memory: is the journal of one process; call `runtime.halt()` there. Nothing was halted.")
    if path is not None and not os.path.exists(path):
        raise Wrong(f"There is no store {shown(address)}; name another with --store. Nothing was halted.")
    return address


def _at_store(asked: argparse.Namespace) -> int:
    store = _store_of(asked)
    what = f"{asked.scope} {asked.name}".rstrip()
    wanted = operations.request(
        operations.HALTED,
        asked.scope,
        asked.name,
        by=asked.by,
        reason=_redacted(asked.reason),
        at=time.time(),
        host=os.uname().nodename,
    )
    flag = _put_flag(store, wanted, asked)
    was_up = flag is not None and flag.id != wanted.id
    try:
        was_latched = _fence(store, wanted)
    except (RunNotFound, StoreNotOurs) as error:
        if flag and not was_up:
            halt_flags.take_down(store, wanted.scope, wanted.name)
        raise Wrong(f"{error.message} The flag is taken down again; nothing is halted.") from None
    except (CheckreinError, OSError) as error:
        held = f"{what} is halted on this host only" if flag else f"{what} is NOT halted anywhere"
        _say(
            asked,
            "fence",
            f"{held}: {_sentence(error)} On other hosts nothing is in force; run this again when the store answers.",
            is_done=False,
        )
        return FLAG_ONLY
    if flag is not None and was_up:
        halt_flags.is_recorded(flag, wanted.id)
    again = " It was halted before: the first one's words stay." if was_latched else ""
    _say(asked, "fence", f"Fence: no call begins in {what}, on any host, until `checkrein reset {what}`.{again}")
    if asked.scope in ("agent", "owner") and not _is_known(store, asked.scope, asked.name):
        _say(asked, "warning", f"No run of {what} was ever seen in {shown(store)}: check how it is spelt.")
    return _end_runs(asked, store, what)


def _redacted(reason: str) -> str:
    """A reason is kept for ever. What looks for secrets takes a while to be imported, and few reasons can hold one."""
    if len(reason) < 16 or not any(mark in reason for mark in ("-", "_", "=", ".", ":")):
        return reason
    from checkrein.secrets import Secrets

    return Secrets.of(None).text(reason)


def _put_flag(store: str, wanted: operations.Request, asked: argparse.Namespace) -> halt_flags.Flag | None:
    """The flag that is up, by this halt or by one before."""
    flag = halt_flags.Flag(wanted.scope, wanted.name, wanted.by, wanted.reason, wanted.at, wanted.host, wanted.id)
    try:
        found = halt_flags.put_up(store, flag)
    except OSError as error:
        _say(asked, "flag", f"No flag on this host: {halt_flags.own_folder()}: {error.strerror}.", is_done=False)
        return None
    _say(asked, "flag", f"Flag: {wanted.scope} {wanted.name}".rstrip() + f" is halted on this host ({found.path}).")
    return found


def _fence(store: str, wanted: operations.Request) -> bool:
    path = file_of(store)
    if path is not None:
        from checkrein.journal.sqlite.halts import latch_at as latch_in_file

        return latch_in_file(path, wanted, patience=PATIENCE_SECONDS)
    assert is_postgres(store)
    try:
        from checkrein.journal.postgres.halts import latch_at as latch_in_database
    except ImportError as error:
        raise StoreUnavailable(f"The driver of PostgreSQL is not installed ({error}).", path=shown(store)) from None
    return latch_in_database(store, wanted, patience=PATIENCE_SECONDS)


def _is_known(store: str, scope: str, name: str) -> bool:
    path = file_of(store)
    if path is not None:
        from checkrein.journal.sqlite.halts import is_known_at as is_known_in_file

        return is_known_in_file(path, scope, name)
    from checkrein.journal.postgres.halts import is_known_at as is_known_in_database

    return is_known_in_database(store, scope, name)


def _end_runs(asked: argparse.Namespace, store: str, what: str) -> int:
    """The third step: every live run in the scope is ended, with a receipt. Only now is the rest loaded."""
    import asyncio

    from checkrein.control.halt import Halted, Halting
    from checkrein.core.escape import one_line
    from checkrein.journal import open_journal
    from checkrein.processes.identity import this_process

    async def end() -> Halted:
        async with await open_journal(store) as journal:
            return await Halting(journal, this_process()).end(asked.scope, asked.name, wait=asked.wait)

    try:
        halted = asyncio.run(end())
    except CheckreinError as error:
        _say(
            asked, "ended", f"Runs could not be ended: {error.message} They are fenced; run this again.", is_done=False
        )
        return 0
    said = [f"Ended: {len(halted.receipts)} {'run' if len(halted.receipts) == 1 else 'runs'} in {one_line(what)}."]
    if halted.missed:
        said.append(f"Fenced but not ended, run this again: {', '.join(halted.missed[:10])}.")
    if halted.unconfirmed:
        said.append(f"Not confirmed by their driver yet: {', '.join(halted.unconfirmed[:10])}.")
    values = {
        "ended": [receipt.run for receipt in halted.receipts],
        "missed": list(halted.missed),
        "unconfirmed": list(halted.unconfirmed),
    }
    _say(asked, "ended", " ".join(said), values=values)
    return 0


# -- at a server


def _at_server(asked: argparse.Namespace) -> int:
    import json
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    token = asked.token or os.environ.get("CHECKREIN_HALT_TOKEN") or os.environ.get("CHECKREIN_TOKEN") or ""
    body = {"scope": asked.scope, "name": asked.name, "reason": asked.reason, "wait": asked.wait}
    address = f"{asked.server.rstrip('/')}/api/halt"
    if not address.startswith(("http://", "https://")):
        raise Wrong(f"{asked.server} is no address of a server; nothing was halted.")
    request = Request(
        address,
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": f"Bearer {token}"},
    )
    try:
        with urlopen(request, timeout=PATIENCE_SECONDS + asked.wait) as answer:
            halted = json.loads(answer.read())
    except HTTPError as error:
        said = _read_error(error.read())
        if error.code < 500:
            raise Wrong(f"{said} Nothing was halted.") from None
        _say(asked, "fence", said, is_done=False)
        return FLAG_ONLY
    except (URLError, OSError, ValueError) as error:
        _say(
            asked,
            "fence",
            f"{asked.server} could not be asked ({error}); nothing is known to be halted.",
            is_done=False,
        )
        return FLAG_ONLY
    what = f"{asked.scope} {asked.name}".rstrip()
    _say(asked, "fence", f"Fence: no call begins in {what}, on any host, until it is reset.")
    ended = [receipt["run"] for receipt in halted.get("receipts", ())]
    _say(
        asked,
        "ended",
        f"Ended: {len(ended)} {'run' if len(ended) == 1 else 'runs'} in {what}.",
        values={"ended": ended},
    )
    return 0


def _read_error(body: bytes) -> str:
    import json

    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return "The server refused."


# -- words


def _say(
    asked: argparse.Namespace,
    step: str,
    sentence: str,
    *,
    is_done: bool = True,
    values: Mapping[str, Any] | None = None,
) -> None:
    """At once: whoever waits for the next step must know that this one is in force."""
    if asked.as_json:
        import json

        print(json.dumps({"step": step, "done": is_done, "message": sentence, **(values or {})}), flush=True)
    else:
        print(sentence, file=sys.stdout if is_done else sys.stderr, flush=True)


def _sentence(error: Exception) -> str:
    said = error.message if isinstance(error, CheckreinError) else str(error)
    return said if said.endswith(".") else f"{said}."


def _complain(code: str, sentence: str, as_json: bool, exit_code: int) -> int:
    import json

    said = json.dumps({"code": code, "message": sentence}) if as_json else f"error[{code}]: {sentence}"
    print(said, file=sys.stderr)
    return exit_code
