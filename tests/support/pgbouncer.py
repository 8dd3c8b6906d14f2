"""A real PgBouncer in transaction mode in front of a test's PostgreSQL, where there is one.

That of the system, else the one that `make test` unpacks beside the environment. Each test that needs it is skipped,
and says why, where it cannot be had.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.patience import PATIENCE_SECONDS
from tests.support.postgres import NOBODY, Cluster

UNPACKED = Path(sys.prefix) / "pgbouncer"
INI = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
logfile = {folder}/log
"""


class Pooler(NamedTuple):
    port: int
    cluster: Cluster

    def address(self, schema: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?schema={schema}"


def _program() -> tuple[str, dict[str, str]]:
    """The program and its environment. Skips the test where there is none that works."""
    libraries = [str(path) for path in (UNPACKED / "usr" / "lib").glob("*-linux-gnu")]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}
    installed = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    program = installed or str(UNPACKED / "usr" / "sbin" / "pgbouncer")
    with suppress(OSError):
        tried = subprocess.run([program, "--version"], env=environment, capture_output=True, text=True)
        if tried.returncode == 0:
            return program, environment
        pytest.skip(f"{program} does not work here: {tried.stderr.strip()}")
    pytest.skip("there is no PgBouncer here; `make test` unpacks one where Debian's package can be had")


@contextmanager
def pooled(cluster: Cluster) -> Iterator[Pooler]:
    """In front of this server; it is gone afterwards."""
    program, environment = _program()
    folder = Path(tempfile.mkdtemp(prefix="checkrein-pgbouncer-"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "ini").write_text(INI.format(server=cluster.port, port=port, folder=folder))
    lowered: list[str] = []
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        lowered = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    command = [*lowered, program, "-q", str(folder / "ini")]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
    try:
        _until_open(port, process)
        yield Pooler(port, cluster)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert process.poll() is None, f"PgBouncer has ended with code {process.returncode}"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < give_up, "PgBouncer does not open its port"
            time.sleep(0.02)
