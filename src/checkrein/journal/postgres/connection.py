"""Connections to a PostgreSQL server, and what its errors and those of the network mean for a journal.

A connection is used by one thread. It commits each statement by itself and never holds a lock while the server waits
for this process: a process that is frozen or cut off keeps nobody waiting.
"""

from __future__ import annotations

import re
import select
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, LiteralString, NamedTuple, NoReturn, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from checkrein.errors import CheckreinError, MisuseError, StoreDamaged, StoreForbidden, StoreUnavailable
from checkrein.journal.address import is_postgres, shown
from checkrein.journal.postgres import arrays

SCHEMA: Final = "checkrein"
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,49}")

CONNECT_SECONDS: Final = 2
SILENT_SECONDS: Final = 5.0
"""A server that says nothing for so long is taken for gone, whatever the network says about it. Together with what
connecting takes, this stays below a lease less its margin."""

# fmt: off
DEFAULTS: Final[Mapping[str, str | int]] = {
    "application_name": "checkrein",
    "connect_timeout": CONNECT_SECONDS,
    # The defaults of most systems notice a dead peer after minutes or hours.
    "keepalives": 1, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3,
    "tcp_user_timeout": 5_000,
}
# fmt: on
"""Unless the address says otherwise."""

T = TypeVar("T")
Params = Sequence[Any] | Mapping[str, Any]
Wait = Generator[Any, Any, T]


class Target(NamedTuple):
    """Where a journal is kept. `shown` is its address as people may see it."""

    conninfo: str
    schema: str
    shown: str
    instead: Mapping[str, LiteralString] = MappingProxyType({})
    """The statements that this user may not make, and what says the same through functions (`roles`)."""

    def __repr__(self) -> str:
        return self.shown  # whoever logs it

    @property
    def channel(self) -> str:
        """On which the processes that use this schema tell each other what they have committed."""
        return f"checkrein_{self.schema}"


def target_of(address: str) -> Target:
    """Read an address. Raises `MisuseError` for one that cannot be meant; never repeats a password."""
    place, _, query = address.partition("?")
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    schema = parameters.pop("schema", SCHEMA)
    if not _NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise MisuseError(
            f"{schema!r} cannot be the schema of a journal: use small letters, digits and underscores, at most 50.",
            address=shown(address),
        )
    if place.partition("://")[2].partition("/")[0].count("@") > 1:  # the driver would take a part of it for a host
        raise MisuseError(
            f"{shown(address)} has more than one @ before its host: in a name or a password, write it as %40.",
            address=shown(address),
        )
    try:
        given = conninfo_to_dict(f"{place}?{urlencode(parameters)}" if parameters else place)
    except psycopg.Error:  # which may repeat what it could not read
        given = None
    if given is None:
        raise MisuseError(f"{shown(address)} is not an address of PostgreSQL.", address=shown(address))
    several = "," in str(given.get("host", "")) or "," in str(given.get("hostaddr", ""))
    defaults: dict[str, Any] = {**DEFAULTS, **({"target_session_attrs": "read-write"} if several else {})}
    return Target(make_conninfo("", **{**defaults, **given}), schema, shown(address))


def listen_target_of(address: str, target: Target) -> Target:
    """Where the listener of a journal at `target` connects to, past a pooler. Raises `MisuseError`."""
    name = shown(address)
    if not is_postgres(address):
        raise MisuseError(
            f"{name} is no address of PostgreSQL, so it cannot be listened on for {target.shown}.",
            code="listen_store_refused",
            address=name,
        )
    listen = target_of(address)
    is_said = "schema" in dict(parse_qsl(address.partition("?")[2]))
    if is_said and listen.schema != target.schema:
        raise MisuseError(
            f"{name} is about schema {listen.schema}, and the store {target.shown} about {target.schema}: what is "
            "listened on must be the same.",
            code="listen_store_refused",
            address=name,
        )
    return listen._replace(schema=target.schema)


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    def wait(self, gen: Wait[T], *args: Any, **kwargs: Any) -> T:
        return super().wait(_unless_silent(gen), *args, **kwargs)


def _unless_silent(gen: Wait[T]) -> Wait[T]:
    """What the driver waits for, but not for ever: a server that is frozen answers nothing and closes nothing."""
    heard = time.monotonic()
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            now = time.monotonic()
            if ready:
                heard = now
            elif now > heard + SILENT_SECONDS:
                raise _silent()
            wanted = gen.send(ready)
    except StopIteration as end:
        value: T = end.value
        return value


def _silent() -> psycopg.Error:
    return errors.ConnectionException(f"the server has said nothing for {SILENT_SECONDS:g} s")


class Session:
    """One connection, and the schema that its statements are about: `{s}` in them."""

    def __init__(self, target: Target, *, may_prepare: bool = False) -> None:
        self._schema = sql.Identifier(target.schema)
        self._instead = target.instead
        self._is_to_prepare = may_prepare
        self._statements: dict[str, bytes] = {}
        self._prepared: dict[str, bytes] = {}
        self.connection = _Connection.connect(target.conninfo, autocommit=True, prepare_threshold=None)
        # Behind a pooler anybody may be told what somebody else wants to hear: the driver would keep it for ever.
        self.connection.add_notify_handler(lambda note: None)
        # Whatever its size: a statement is prepared for the types of its parameters.
        self.connection.adapters.register_dumper(int, Int8Dumper)
        self.connection.adapters.register_dumper(int, Int8BinaryDumper)
        arrays.register(self.connection.adapters)

    def say_instead(self, instead: Mapping[str, LiteralString]) -> None:
        """From now on, what is in `instead` in the form that it has there."""
        self._instead = instead

    @property
    def writes_tables(self) -> bool:
        """Its user needs no functions to write."""
        return not self._instead

    def prepare_statements(self) -> None:
        """Called, from any thread, once it is known that no pooler in transaction mode stands in between."""
        self._is_to_prepare = True

    def _prepare_statements(self) -> None:
        self._is_to_prepare = False
        # Every statement here finds its rows by a key. To plan one anew for its values, as the server would whenever
        # there are few, takes longer than to execute it. A pooler would hand this setting on to others.
        self.connection.execute("SET plan_cache_mode = force_generic_plan")
        self.connection.prepare_threshold = 2

    def rows(self, statement: LiteralString, params: Params = ()) -> list[tuple[Any, ...]]:
        return self._execute(statement, params).fetchall()

    def row(self, statement: LiteralString, params: Params = ()) -> tuple[Any, ...] | None:
        return self._execute(statement, params).fetchone()

    def run(self, statement: LiteralString, params: Params = ()) -> int:
        """How many rows it was about."""
        return self._execute(statement, params).rowcount

    def change(self, statement: LiteralString, values: Sequence[bytes]) -> int:
        """How many rows it was about. Its parameters are `$1` and so on, their values in PostgreSQL's binary form.

        What the driver does to find out types and to fetch rows takes longer than a lone append does on the server.
        """
        return self._send(statement, values).command_tuples or 0

    def _execute(self, statement: LiteralString, params: Params) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.connection.execute(self._said(statement), params, binary=True)

    def _said(self, statement: LiteralString) -> bytes:
        if self._is_to_prepare:
            self._prepare_statements()
        known = self._statements.get(statement)
        if known is None:
            said = sql.SQL(self._instead.get(statement, statement))
            known = self._statements[statement] = said.format(s=self._schema).as_bytes()
        return known

    def _send(self, statement: LiteralString, values: Sequence[bytes]) -> PGresult:
        said, connection = self._said(statement), self.connection.pgconn
        formats = [Format.BINARY] * len(values)
        if self.connection.prepare_threshold is None:
            connection.send_query_params(said, values, param_formats=formats)
            return self._receive()
        name = self._prepared.get(statement)
        if name is None:
            name = f"checkrein_{len(self._prepared)}".encode()
            connection.send_prepare(name, said)
            self._receive()
            self._prepared[statement] = name
        connection.send_query_prepared(name, values, formats)
        return self._receive()

    def _receive(self) -> PGresult:
        """The answer to what was sent. Raises what the server has to say against it."""
        connection = self.connection.pgconn
        while connection.flush():  # it is large, and the server may have something to say before it has read it
            self._wait(select.POLLIN | select.POLLOUT)
            connection.consume_input()
        results: list[PGresult] = []
        # To the last one: a statement is answered before its transaction is committed, and a commit may fail.
        while (result := self._next_result()) is not None:
            results.append(result)
        if not results or connection.status != ConnStatus.OK:
            raise psycopg.OperationalError("the connection was lost")
        for result in results:
            if result.status != ExecStatus.COMMAND_OK:
                raise errors.error_from_result(result)
        return results[0]

    def _next_result(self) -> PGresult | None:
        connection = self.connection.pgconn
        while connection.is_busy():
            self._wait(select.POLLIN)
            connection.consume_input()
        return connection.get_result()

    def _wait(self, events: int) -> None:
        poll = select.poll()
        poll.register(self.connection.pgconn.socket, events)
        if not poll.poll(SILENT_SECONDS * 1000):
            raise _silent()

    def close(self) -> None:
        with suppress(psycopg.Error, OSError):
            self.connection.close()


# -- what errors mean

_LOST: Final = ("08", "57P", "53300", "25006")
_FORGOTTEN: Final = "26000"
"""Somebody has told the server to discard the statements of this session."""
"""The connection is gone, the server ends, is full of others, or is no longer the one that writes."""
_AGAIN: Final = frozenset({"23505", "40P01", "40001", "55P03"})
"""A unique violation, a deadlock and the like: looked at more closely, it can be done, or said why not."""
_FULL: Final = "53100"
_LOGIN: Final = frozenset({"28000", "28P01"})
_DAMAGED: Final = frozenset({"XX001", "XX002"})


def code_of(error: BaseException) -> str:
    """The server's own code; empty for what it did not say."""
    return getattr(error, "sqlstate", None) or ""


def is_lost(error: BaseException) -> bool:
    """Whether another connection may well succeed."""
    if code_of(error) == _FORGOTTEN:
        return True
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    code = code_of(error)
    return not code or code.startswith(_LOST)


def is_worth_another_look(error: BaseException) -> bool:
    return code_of(error) in _AGAIN


def is_login_refused(error: BaseException) -> bool:
    # The driver gives no code for what happens while it connects.
    said = str(error)
    return code_of(error) in _LOGIN or "authentication failed" in said or "no password supplied" in said


def explain(error: Exception, name: str) -> CheckreinError:
    """The journal's error for one of the driver's; what is already one of ours stays."""
    if isinstance(error, CheckreinError):
        return error
    if isinstance(error, errors.UniqueViolation):
        return MisuseError("An event of this append has the id of another event of the run; ids must be unique.")
    if isinstance(error, UnicodeEncodeError):
        return MisuseError(f"This cannot be written as text: {error.reason}.")
    if code_of(error) == _FULL:
        from checkrein.journal import refusals  # not for the kill switch, which waits for no import

        return refusals.full_server(name)
    if isinstance(error, errors.InsufficientPrivilege):
        return _forbidden(error, name)
    if code_of(error) in _DAMAGED:
        return StoreDamaged(f"{name} is damaged ({first_line(error)}); restore it from a backup.", path=name)
    return StoreUnavailable(
        f"{name} could not be used ({first_line(error)}); whether that took effect is not known.", path=name
    )


# fmt: off
_WHAT: Final[Mapping[str, tuple[str, str]]] = {
    "put_fence":     ("halt anything", "operator"),
    "latch_halt":    ("halt anything", "operator"),
    "lift_halt":     ("reset a halt", "operator"),
    "create_run":    ("begin a run", "front"),
    "claim_free":    ("drive runs", "worker"),
    "renew_as_role": ("drive runs", "worker"),
    "enlist":        ("drive runs", "worker"),
    "discharge":     ("drive runs", "worker"),
    "bury":          ("say that a worker is dead", "operator"),
    "write_chunks":  ("write text of calls", "worker"),
    "write_file":    ("keep files of calls", "worker"),
    "tokens":        ("use the keys to its runs", "front"),
    "sessions":      ("use the keys to its runs", "front"),
    "codes":         ("use the keys to its runs", "front"),
}
# fmt: on
"""What a function or a table is for that only one role may use, and which that is."""
_REFUSED: Final = "refused by the store"
"""What our own functions say with every refusal."""


def role_name(schema: str, role: str) -> str:
    """Roles belong to a whole server, so their names begin with that of the schema."""
    return f"{schema}_{role}"


def _forbidden(error: errors.InsufficientPrivilege, name: str) -> StoreForbidden:
    """One sentence for a right that the user has not: what was refused, and who may."""
    parts = urlsplit(name)
    schema = dict(parse_qsl(parts.query)).get("schema", SCHEMA)
    said, role = first_line(error), error.diag.message_hint or ""
    denied = re.fullmatch(r"permission denied for (?:function|table) (\w+)", said)
    if denied and denied[1] in _WHAT:
        said, role = _WHAT[denied[1]][0], role_name(schema, _WHAT[denied[1]][1])
    if role:
        sentence = f"{name} does not let this user {said}. Have its owner run GRANT {role} TO {_user(parts)}."
    elif error.diag.message_detail == _REFUSED:
        sentence = f"{name} lets nobody {said}, whatever the role."
    else:
        sentence = (
            f"{name} does not let this user do that ({said}). Have its owner run `checkrein store init --roles`, and "
            "grant this user one of the roles that it names."
        )
    return StoreForbidden(sentence, path=name, role=role)


def _user(parts: SplitResult) -> str:
    user = unquote(parts.username or "")
    return user if _NAME.fullmatch(user) else "this user"


def refuse(error: psycopg.Error, target: Target) -> NoReturn:
    """Raise what an attempt to connect that failed means for whoever opens the journal."""
    if is_login_refused(error):
        raise StoreUnavailable(
            f"{target.shown} does not let this user in: check the name, the password or the password file.",
            code="store_login_refused",
            path=target.shown,
        ) from None
    raise StoreUnavailable(
        f"{target.shown} could not be reached ({first_line(error)}). Check that the server runs and lets this host in.",
        code="store_unreachable",
        path=target.shown,
    ) from None


def first_line(error: BaseException) -> str:
    """What it says, in one line; the driver repeats no password."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
