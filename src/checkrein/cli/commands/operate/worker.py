"""`checkrein worker`: drive the runs of agents for everybody who shares the store, without a page."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from checkrein.cli import options, output
from checkrein.cli.completion import complete_files
from checkrein.cli.session import check_writable
from checkrein.core.escape import one_line, printable
from checkrein.errors import EngineUnavailable, WrongInput
from checkrein.logs import LineWriter
from checkrein.timings import LEASE_SECONDS, SHUT_DOWN_SECONDS

if TYPE_CHECKING:
    from checkrein.engines.temporal import TemporalOptions
    from checkrein.journal import Journal
    from checkrein.server.processes.protocol import WorkerOptions
    from checkrein.server.processes.worker import Health

MOST_SLOTS: Final = 100_000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def _name(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value and not _NAME.fullmatch(value):
        raise click.BadParameter("use letters, digits, dots, dashes and underlines, up to 100 of them.", ctx, param)
    return value


@click.command
@click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    shell_complete=complete_files,
    help="Python files with agents at their top level, or modules; `agent.py:name` means one of them.",
)
@click.option(
    "--slots",
    metavar="N",
    type=options.WholeNumber(1, MOST_SLOTS),
    default=50,
    show_default=True,
    help="How many runs each of its processes drives at once.",
)
@options.drivers
@click.option(
    "--name",
    metavar="NAME",
    callback=_name,
    help="Its name, of which no two may live at once. One that is never the same again if left out.",
)
@click.option("--version", metavar="VERSION", default="", callback=_name, help="The version of its agents.")
@click.option(
    "--lease-seconds",
    metavar="SECONDS",
    type=options.Number(1.0, 3600.0),
    default=LEASE_SECONDS,
    show_default=True,
    help="For how long it keeps its runs from others when it gives no sign of life.",
)
@click.option(
    "--shutdown-seconds",
    metavar="SECONDS",
    type=options.Number(0.1, 3600.0),
    default=SHUT_DOWN_SECONDS,
    show_default=True,
    help="How long tools may take to finish when it ends.",
)
@click.option("--health-file", metavar="FILE", type=options.FILE, help="A file that is touched while all is well.")
@click.option("--health-port", metavar="PORT", type=options.PORT, help="A port that answers /healthz and /readyz.")
@click.option(
    "--health-host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="The address of that port."
)
@options.temporal
@options.store
@options.listen_store
@options.log_level
@options.log_format
def worker(
    files: tuple[str, ...],
    slots: int,
    drivers: int,
    name: str | None,
    version: str,
    lease_seconds: float,
    shutdown_seconds: float,
    health_file: Path | None,
    health_port: int | None,
    health_host: str,
    temporal: TemporalOptions | None,
    store: str,
    listen_store: str | None,
) -> int:
    """Drive the runs of agents, for all who share the store.

    SIGTERM or Ctrl-C hands what is at work over to other workers, and ends. A second one ends at once.
    """
    from checkrein.agents.loader import target_of
    from checkrein.server.processes.health import check_health_file
    from checkrein.server.processes.protocol import WorkerOptions
    from checkrein.server.processes.worker import Health

    if health_file is not None and health_port is not None:
        raise WrongInput("Say either --health-file or --health-port.", code="usage")
    _check_store(store)
    for file in files:
        target_of(file)  # a file that is not there is said before a driver is started
    if health_file is not None:
        check_health_file(health_file)
    wanted = WorkerOptions(
        name=name or f"{socket.gethostname()}-{uuid.uuid4().hex[:6]}",
        version=version,
        slots=slots,
        lease_seconds=lease_seconds,
        shutdown_seconds=shutdown_seconds,
        temporal=temporal,
    )
    asyncio.run(_work(store, listen_store, files, wanted, drivers, Health(health_file, health_host, health_port)))
    return output.DONE


def _check_store(store: str) -> None:
    from checkrein.journal import MEMORY, file_of, shown

    if store == MEMORY:
        raise WrongInput(
            "memory: is the journal of one process, and a worker shares its store; name it with --store.", code="usage"
        )
    check_writable(store)
    if file_of(store) is not None:
        output.note(f"{shown(store)} is a file: all workers and servers that share it must be on this host.")


async def _check_one_host(journal: Journal, store: str) -> None:
    """A file that two machines reach lies on a network disk, where SQLite's locks and its shared memory do not hold."""
    from checkrein.journal import file_of, shown
    from checkrein.processes.identity import this_process

    if file_of(store) is None:
        return
    here, at = this_process(), journal.now()
    for other in await journal.workers():
        owner = other.owner
        if other.is_seen(at) and owner.boot_id and owner.boot_id != here.boot_id and owner.host != here.host:
            raise WrongInput(
                f"{shown(store)} is a file, and worker {other.name} on {owner.host} shares it: two machines on one "
                "file would ruin it. Keep runs in PostgreSQL (`--store postgresql://…`), or all workers on one host.",
                code="store_on_several_hosts",
            )


async def _check_temporal(wanted: TemporalOptions) -> None:
    """Later it is waited for; at the first start it is more likely that its address is wrong."""
    from checkrein.engines.temporal import check

    try:
        await check(wanted)
    except EngineUnavailable as error:
        raise EngineUnavailable(f"{error.message} {error.remedy}", remedy=error.remedy) from None


async def _work(
    store: str,
    listen_store: str | None,
    files: tuple[str, ...],
    wanted: WorkerOptions,
    drivers: int,
    health: Health,
) -> None:
    from checkrein.journal import open_journal
    from checkrein.server.processes.driver_main import command_for_files
    from checkrein.server.processes.worker import DriverHost

    # What the store has to say about itself is said here, once, and not by every driver again and again.
    async with await open_journal(store, listen=listen_store) as journal:
        journal.check_may_drive()
        await _check_one_host(journal, store)
    if wanted.temporal is not None:
        await _check_temporal(wanted.temporal)
    # A terminal that nobody reads, or a pipe that is full, must not keep anybody waiting.
    out, err = LineWriter(lambda: sys.stdout), LineWriter(lambda: sys.stderr)

    def ready(agents: Mapping[str, object]) -> None:
        names = ", ".join(one_line(name) for name in agents)
        version = f" (version {wanted.version})" if wanted.version else ""
        out.write(printable(f"Worker {wanted.name}{version} drives: {names}"))

    host = DriverHost(
        store,
        command_for_files(store, *files),
        wanted,
        drivers=drivers,
        tell=lambda sentence: err.write(printable(sentence)),
        listen_store=listen_store,
        health=health,
    )
    try:
        await host.run(ready)
    finally:
        out.flush()
        err.flush()
