"""The roles of a store: who may only drive runs, only ask for verbs, only halt; and what a user may do.

A role reads every table and writes none: it calls functions, which belong to the owner of the schema and believe
nothing that they can find out themselves (`schema/postgres_roles.sql`). A journal finds out at open whether its user
may write the tables. If not, it makes the same statements in the form that is here, with the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Final, LiteralString, NamedTuple

from psycopg import errors

from checkrein.errors import StoreForbidden, StoreUnavailable
from checkrein.journal.postgres.connection import Session, Target, role_name
from checkrein.journal.postgres.leases import RENEW
from checkrein.journal.postgres.tables import PUT_SNAPSHOT
from checkrein.journal.postgres.writes.batch import APPEND_AND_FENCE, APPEND_EVENTS, APPEND_EVENTS_AND_EFFECTS

VERSION: Final = 1
"""Of the functions that are called here."""

# fmt: off
ROLES: Final[Mapping[str, str]] = {
    "worker":   "drive runs and begin sub-runs",
    "front":    "begin runs and take the verbs of people, but for halts",
    "operator": "halt and reset, and say that a worker is dead",
}
# fmt: on
"""What each may do; all may read."""

_APPEND: Final = """{s}.append_as_role(
    %(runs)b::bigint[], %(seqs)b::bigint[], %(epochs)b::bigint[], %(event_runs)b::bigint[], %(event_bodies)b::bytea[],
    %(effect_runs)b::bigint[], %(effect_ids)b::bytea[], %(effect_states)b::text[], %(effect_opened)b::bigint[],
    %(effect_wanted)b::boolean[], %(effect_bodies)b::bytea[], %(channel)b::text, %(note)b::text
)"""
THROUGH_FUNCTIONS: Final[Mapping[str, LiteralString]] = MappingProxyType({
    APPEND_EVENTS: f"SELECT {_APPEND}",
    APPEND_EVENTS_AND_EFFECTS: f"SELECT {_APPEND}",
    APPEND_AND_FENCE: f"SELECT cardinality({_APPEND}) > 0",
    RENEW: """
        SELECT * FROM {s}.renew_as_role(
            %(process)s::text, %(runs)s::text[], %(seconds)s::double precision, %(now)s::double precision,
            %(steady)s::double precision
        )
    """,
    PUT_SNAPSHOT: """
        SELECT {s}.save_snapshot_as_role(%(run)s::text, %(seq)s::bigint, %(version)s::text, %(state)s::bytea)
    """,
})  # fmt: skip
"""What a user who may not write the tables says instead of each statement."""

_WRITTEN: Final = (
    "runs", "heads", "events", "leases", "fences", "effects", "chunks", "files", "snapshots", "workers",
    "operations", "withheld", "signed",
)  # fmt: skip
RIGHTS: Final = """
SELECT current_user::text,
    (SELECT bool_and(has_table_privilege(t.oid, 'INSERT') AND has_table_privilege(t.oid, 'UPDATE')
        AND has_table_privilege(t.oid, 'DELETE'))
     FROM pg_class t WHERE t.relnamespace = to_regnamespace(%(schema)s) AND t.relname = ANY (%(tables)s)),
    pg_has_role((SELECT nspowner FROM pg_namespace WHERE nspname = %(schema)s), 'USAGE'),
    ARRAY(SELECT r.rolname::text FROM pg_roles r WHERE r.rolname = ANY (%(roles)s) AND pg_has_role(r.oid, 'USAGE'))
"""
MADE: Final = "SELECT to_regprocedure(%s) IS NOT NULL"
MADE_VERSION: Final = "SELECT {s}.roles_version()"
EXISTING: Final = "SELECT rolname::text FROM pg_roles WHERE rolname = ANY (%s)"


class Rights(NamedTuple):
    """What a user may do at a store. Whoever writes the tables needs no role."""

    user: str
    writes_tables: bool
    owns_schema: bool
    roles: tuple[str, ...]
    """Those of `ROLES` that it has, in their order."""

    def sentences(self, target: Target) -> list[str]:
        """The same in plain words."""
        if self.writes_tables:
            whose = ", which it owns" if self.owns_schema else ""
            return [f"User {self.user} writes the tables{whose}: it may do everything that can be done to runs."]
        if not self.roles:
            return [f"User {self.user} may read, and nothing else. {_remedy(target)}"]
        may = [f"{ROLES[role]} ({role_name(target.schema, role)})" for role in self.roles]
        lacks = [f"{what} ({role_name(target.schema, role)})" for role, what in ROLES.items() if role not in self.roles]
        sentences = [f"User {self.user} may read, and through functions {'; '.join(may)}."]
        return [*sentences, *([f"It may not {'; '.join(lacks)}; nor write the tables."] if lacks else [])]


def rights(session: Session, target: Target) -> Rights:
    """What the user of this connection may do."""
    names = {role_name(target.schema, role): role for role in ROLES}
    row = session.row(RIGHTS, {"schema": target.schema, "tables": list(_WRITTEN), "roles": list(names)})
    assert row is not None
    user, writes, owns, found = row
    held = {names[name] for name in found}
    return Rights(user, bool(writes), bool(owns), tuple(role for role in ROLES if role in held))


def check_may_drive(target: Target, found: Rights) -> None:
    """Raises `StoreForbidden`."""
    role = role_name(target.schema, "worker")
    if not found.writes_tables and "worker" not in found.roles:
        raise StoreForbidden(
            f"{target.shown} does not let this user drive runs. Have its owner run GRANT {role} TO {found.user}.",
            path=target.shown,
            role=role,
        )


def fitted(session: Session, target: Target, found: Rights) -> Target:
    """The target as its user may write there.

    Raises `StoreUnavailable` where the functions of its roles are older than what this code calls.
    """
    if found.writes_tables or not found.roles or not is_made(session, target):
        return target  # or every write is refused by the server itself
    if (session.row(MADE_VERSION) or (0,))[0] < VERSION:
        raise StoreUnavailable(
            f"{target.shown} has functions for its roles that are older than this version. Run `checkrein store "
            "migrate --roles` with this address, as the owner of the schema.",
            code="store_too_old",
            path=target.shown,
        )
    return target._replace(instead=THROUGH_FUNCTIONS)


def is_made(session: Session, target: Target) -> bool:
    """Whether this store has roles."""
    return session.row(MADE, (f'"{target.schema}".roles_version()',)) == (True,)


def make(session: Session, target: Target) -> dict[str, bool]:
    """Make the roles that are missing and grant them all that they may do, and nothing else, in the transaction of
    whoever calls. Returns their names, and whether each is new. Raises `StoreForbidden`.
    """
    names = {role: role_name(target.schema, role) for role in ROLES}
    there = {name for (name,) in session.rows(EXISTING, (list(names.values()),))}
    missing = [name for name in names.values() if name not in there]
    try:
        for name in missing:
            session.connection.execute(f'CREATE ROLE "{name}" NOLOGIN'.encode())
    except errors.InsufficientPrivilege:
        statements = " ".join(f"CREATE ROLE {name} NOLOGIN;" for name in missing)
        raise StoreForbidden(
            f"{target.shown} does not let this user make roles. Have somebody who may run {statements} and try again.",
            path=target.shown,
        ) from None
    script = (files("checkrein.journal") / "schema" / "postgres_roles.sql").read_text()
    quoted = {role: f'"{name}"' for role, name in names.items()}
    values = {"schema": f'"{target.schema}"', "name": target.schema, "roles": ", ".join(quoted.values()), **quoted}
    for name, value in values.items():
        script = script.replace(f"{{{name}}}", value)
    session.connection.execute(script.encode())
    return {name: name in missing for name in names.values()}


def _remedy(target: Target) -> str:
    names = ", ".join(role_name(target.schema, role) for role in ROLES)
    return f"Have the owner of the schema run `checkrein store init --roles`, and grant it one of {names}."
