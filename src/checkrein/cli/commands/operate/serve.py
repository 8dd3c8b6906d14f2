"""`checkrein serve`, and the page of `checkrein demo`: a front, its drivers, and what is said about them here."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
from click.core import ParameterSource

from checkrein.cli import options, output
from checkrein.cli.session import check_writable
from checkrein.core.escape import one_line, printable
from checkrein.errors import WrongInput
from checkrein.logs import LineWriter

if TYPE_CHECKING:
    import socket

    from checkrein.server.processes.backend import FrontBackend
    from checkrein.server.processes.front import ServerAccess

_log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
PORT: Final = 8420
ENDS: Final = "Ctrl-C pauses what is at work and ends; it goes on by itself at the next start."
ENDS_ALONE: Final = "Ctrl-C ends it; what is at work goes on at its workers."
ENDS_FOR_GOOD: Final = "Ctrl-C ends it and removes all its runs; with --folder FOLDER they are kept."


class Wanted(NamedTuple):
    """What the command line asks for."""

    store: str
    command: Sequence[str]
    """What starts a driver."""
    listen_store: str | None = None
    file: str | None = ""
    """Where the agents come from; empty: the demo; None: from workers elsewhere."""
    host: str = HOST
    port: int = PORT
    drivers: int = 1
    opens: bool = False
    allow_hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    frame_ancestors: tuple[str, ...] = ()
    reload: bool = False
    notify: tuple[str, ...] = ()
    """Who is told when a run needs a person."""
    notify_on: str = "waiting"
    token_file: Path | None = None
    """Where the server's own token is, if not in the environment."""
    may_choose_port: bool = False
    """Take another port where this one is taken."""
    is_kept: bool = True
    """False: the store is removed at the end."""


def _repeatable(name: str, metavar: str, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(name, metavar=metavar, multiple=True, help=f"{help} Repeatable.")


@click.command
@options.agents_file(
    required=False,
    help="A Python file with agents at its top level, or a module; `agent.py:name` means one of them. Without it, and "
    "with --store, all runs are driven by workers.",
)
@click.option("--host", metavar="ADDRESS", default=HOST, show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    metavar="PORT",
    type=options.PORT,
    default=PORT,
    show_default=True,
    help="The port; 0 finds a free one.",
)
@options.drivers
@click.option("--open/--no-open", "opens", default=False, show_default=True, help="Open the page in a browser.")
@click.option("--reload", is_flag=True, help="Take up changes of the agents' files, while you write them.")
@options.token_file
@_repeatable("--allow-host", "NAME", "Another name this server goes by, behind a proxy.")
@_repeatable("--proxy", "ADDRESS", "A proxy whose X-Forwarded headers are believed.")
@_repeatable("--frame-ancestor", "ORIGIN", "Pages that may show this one in a frame.")
@_repeatable("--notify", "URL", "Tell this address when a run needs a person: a signed webhook, or slack:URL.")
@click.option(
    "--notify-on",
    metavar="WHEN",
    default="waiting",
    show_default=True,
    help="When it is told: waiting, ended, or waiting,ended.",
)
@options.store
@options.listen_store
@options.log_level
@options.log_format
def serve(
    file: str | None,
    host: str,
    port: int,
    drivers: int,
    opens: bool,
    reload: bool,
    token_file: Path | None,
    allow_host: tuple[str, ...],
    proxy: tuple[str, ...],
    frame_ancestor: tuple[str, ...],
    notify: tuple[str, ...],
    notify_on: str,
    store: str,
    listen_store: str | None,
) -> int:
    """Serve agents: a page to start and stop their runs, and the API behind it.

    Ctrl-C pauses what is at work, durably, and ends; it goes on by itself at the next start. A second one ends at once.
    """
    from checkrein.server.processes.driver_main import command_for_files

    if file is None and click.get_current_context().get_parameter_source("store") is ParameterSource.DEFAULT:
        raise WrongInput(
            "Name a FILE with agents, or, where workers drive their runs, the store that they share with --store.",
            code="usage",
        )
    return serve_until_ended(
        Wanted(
            store=store,
            command=command_for_files(store, file) if file is not None else (),
            listen_store=listen_store,
            file=file,
            host=host,
            port=port,
            drivers=0 if file is None else drivers,
            opens=opens,
            reload=reload,
            token_file=token_file,
            allow_hosts=allow_host,
            proxies=proxy,
            frame_ancestors=frame_ancestor,
            notify=notify,
            notify_on=notify_on,
        )
    )


def serve_until_ended(wanted: Wanted) -> int:
    """Serve until it is enough; the exit code."""
    from checkrein.agents.loader import target_of
    from checkrein.journal import MEMORY
    from checkrein.server.auth.policy import exposure_warning
    from checkrein.server.processes.front import ServerAccess

    if wanted.store == MEMORY:
        raise WrongInput(
            "memory: is the journal of one process, and a server has several; name a file with --store.", code="usage"
        )
    check_writable(wanted.store)
    entrance = ServerAccess(
        wanted.store,
        wanted.host,
        wanted.allow_hosts,
        proxies=wanted.proxies,
        frame_ancestors=wanted.frame_ancestors,
        token_file=wanted.token_file,
    )
    for warning in (exposure_warning(wanted.host), *entrance.warnings):
        if warning is not None:
            output.note(warning)
    if wanted.file:
        target_of(wanted.file)  # a file that is not there is said before a port is taken and a driver started
    with _listening(wanted) as listening:
        beside = _notifier(wanted, entrance.address(listening.getsockname()[1]))
        asyncio.run(_serve(wanted, entrance, listening, beside))
    return output.DONE


def _listening(wanted: Wanted) -> socket.socket:
    from checkrein.server.processes.front import listen

    if not wanted.may_choose_port:
        return listen(wanted.host, wanted.port)
    try:
        return listen(wanted.host, wanted.port)
    except WrongInput as error:
        _log.info("another port is looked for: %s", error)
        return listen(wanted.host, 0)


Beside = Callable[["FrontBackend"], AbstractAsyncContextManager[object]]


def _notifier(wanted: Wanted, address: str) -> Beside | None:
    """What tells those whom `--notify` names, if any. Raises `WrongInput` for what cannot be meant."""
    if not wanted.notify:
        return None
    from checkrein.server import webhooks

    receivers, on = [webhooks.receiver(one) for one in wanted.notify], webhooks.moments(wanted.notify_on)
    key = webhooks.signing_key(os.environ, receivers)
    return lambda backend: webhooks.Notifier(
        backend.journal, receivers, key, store=wanted.store, on=on, base_url=address
    )


async def _serve(wanted: Wanted, entrance: ServerAccess, listening: socket.socket, beside: Beside | None) -> None:
    from checkrein.cli.reload import Reloader
    from checkrein.server.auth.halt_token import HALT_VARIABLE
    from checkrein.server.processes.front import Front

    # A terminal that nobody reads, or a pipe that is full, must not keep anybody from a verb.
    out, err = LineWriter(lambda: sys.stdout), LineWriter(lambda: sys.stderr)

    def note(sentence: str) -> None:
        err.write(printable(sentence))

    without = frozenset({options.TOKEN_VARIABLE, HALT_VARIABLE})
    reloader = Reloader(wanted.file, note, without=without) if wanted.reload and wanted.file else None
    reloading: list[asyncio.Future[None]] = []

    async def ready(backend: FrontBackend) -> None:
        link = await entrance.link(listening.getsockname()[1])
        out.write(printable(_served(wanted, list(backend.agents()))))
        out.write(f"Open this in a browser (it works once):  {link}")
        out.write(ENDS_ALONE if wanted.file is None else ENDS if wanted.is_kept else ENDS_FOR_GOOD)
        if wanted.file and any(card.warnings for card in backend.agents().values()):
            note(f"Some tools say too little about what they do: checkrein doctor {wanted.file}")
        if wanted.opens:
            open_browser(link)
        if reloader is not None:
            reloading.append(asyncio.ensure_future(reloader.watch(backend.slots)))

    front = Front(
        wanted.store,
        wanted.command,
        listening,
        entrance.application,
        drivers=wanted.drivers,
        tell=note,
        secrets=entrance.secrets,
        beside=beside,
        listen_store=wanted.listen_store,
    )
    front.is_kept = wanted.is_kept
    try:
        await front.serve(ready)
    finally:
        for task in reloading:
            task.cancel()
        await asyncio.gather(*reloading, return_exceptions=True)
        out.flush()
        err.flush()


def _served(wanted: Wanted, agents: Sequence[str]) -> str:
    from checkrein.journal.address import shown

    if wanted.file is None:
        return f"Checkrein serves {shown(wanted.store)}; its runs are driven by workers."
    names = ", ".join(one_line(name) for name in agents) or "its agents are not known yet"
    return f"Checkrein serves {one_line(wanted.file or 'the demo')}: {names}"


# -- a browser, where there is one


def has_browser() -> bool:
    """Whether a browser that opens by itself would be seen by somebody: a person, and a display or a chosen program."""
    if os.environ.get("CI") or not output.is_terminal():
        return False
    if os.environ.get("BROWSER") or sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_browser(link: str, show: Callable[[str], object] = webbrowser.open) -> None:
    """Have `link` shown, without waiting for it. If that does not work, the link stands in the terminal."""
    threading.Thread(target=_shown, args=(link, show), daemon=True, name="browser").start()


def _shown(link: str, show: Callable[[str], object]) -> None:
    try:
        show(link)
    except Exception as error:  # whatever a browser's own program does wrong
        # Without its words: they may hold the link, and that lets somebody in.
        _log.info("no browser was opened: %s", type(error).__name__)
