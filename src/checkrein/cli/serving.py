"""`checkrein serve`, and the page of `checkrein demo`: a front, its drivers, and what is said about them here."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from checkrein.cli import exits, saying
from checkrein.cli.clean import one_line
from checkrein.errors import WrongInput

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from checkrein.server.front.backend import FrontBackend
    from checkrein.server.front.guarding import Entrance

HOST: Final = "127.0.0.1"
PORT: Final = 8420


class Wanted(NamedTuple):
    """What the command line asks for."""

    store: str
    command: Sequence[str]
    """What starts a driver."""
    file: Path | None = None
    """Where the agents come from; None: the demo."""
    host: str = HOST
    port: int = PORT
    drivers: int = 1
    opens: bool = False
    allow_hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    frame_ancestors: tuple[str, ...] = ()
    may_choose_port: bool = False
    """Take another port where this one is taken."""


def serve(wanted: Wanted) -> int:
    """Serve until it is enough; the exit code."""
    from checkrein.journal.address import MEMORY
    from checkrein.server.auth.exposure import exposure_warning
    from checkrein.server.front.guarding import Entrance

    if wanted.store == MEMORY:
        raise WrongInput(
            "memory: is the journal of one process, and a server has several; name a file with --store.", code="usage"
        )
    entrance = Entrance(
        wanted.store, wanted.host, wanted.allow_hosts, proxies=wanted.proxies, frame_ancestors=wanted.frame_ancestors
    )
    if (warning := exposure_warning(wanted.host)) is not None:
        saying.note(warning)
    with _listening(wanted) as listening:
        asyncio.run(_serve(wanted, entrance, listening))
    return exits.DONE


def _listening(wanted: Wanted) -> socket.socket:
    from checkrein.server.front.listening import listen

    if not wanted.may_choose_port:
        return listen(wanted.host, wanted.port)
    with suppress(WrongInput):
        return listen(wanted.host, wanted.port)
    return listen(wanted.host, 0)


async def _serve(wanted: Wanted, entrance: Entrance, listening: socket.socket) -> None:
    from checkrein.server.front.front import Front

    def ready(backend: FrontBackend) -> None:
        link = entrance.link(listening.getsockname()[1])
        names = ", ".join(one_line(name) for name in backend.agents())
        saying.out(f"Checkrein serves {one_line(str(wanted.file or 'the demo'))}: {names}")
        saying.out(f"Open this in a browser (it works once):  {link}")
        saying.out("Ctrl-C pauses what is at work and ends; it goes on by itself at the next start.")
        if wanted.file is not None and any(card.warnings for card in backend.agents().values()):
            saying.note(f"Some tools say too little about what they do: checkrein doctor {wanted.file}")
        if wanted.opens:
            open_browser(link)

    front = Front(
        wanted.store, wanted.command, listening, entrance.application, drivers=wanted.drivers, tell=saying.note
    )
    await front.serve(ready)


# -- a browser, where there is one


def has_browser() -> bool:
    """Whether a browser that opens by itself would be seen by somebody: a person, and a display or a chosen program."""
    if os.environ.get("CI") or not saying.is_terminal():
        return False
    if os.environ.get("BROWSER") or sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_browser(link: str, show: Callable[[str], object] = webbrowser.open) -> None:
    """Have `link` shown, without waiting for it. If that does not work, the link stands in the terminal."""
    threading.Thread(target=_shown, args=(link, show), daemon=True, name="browser").start()


def _shown(link: str, show: Callable[[str], object]) -> None:
    with suppress(Exception):
        show(link)
