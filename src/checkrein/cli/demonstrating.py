"""`checkrein demo`: the agent of `checkrein.demo` on a page or attached to this terminal; or its tour, which plays by
itself."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from checkrein.cli import hints, saying
from checkrein.cli.attached import Manner
from checkrein.cli.options import who


def play_tour(*, fast: bool) -> int:
    from checkrein.demo.tour import play

    return asyncio.run(play(saying.out, fast=fast))


def play(folder: Path | None, store: str | None, *, fast: bool, json: bool, plain: bool, by: str) -> int:
    """Run the agent in `folder`. A temporary one is gone afterwards, unless the run is to be taken up again."""
    from checkrein import demo
    from checkrein.cli.running import run_agent

    manner = Manner(json=json, plain=plain, is_terminal=saying.is_terminal(), by=who(by), can_be_taken_up=False)
    with _place(folder, store) as (folder, store):
        if not json:
            saying.note(f"From another terminal: {hints.command('ps')}  (or pause, redirect, cancel, ask, watch)")
        return run_agent(demo.agent(folder, pace=_pace(fast)), demo.GOAL, store, manner)


def show(folder: Path | None, store: str | None, *, fast: bool, port: int | None, opens: bool | None) -> int:
    """Serve the agent on a page, for a person to start and to stop it."""
    from checkrein.cli.driving import command_for_demo
    from checkrein.cli.serving import PORT, Wanted, has_browser, serve

    with _place(folder, store) as (folder, store):
        wanted = Wanted(
            store=store,
            command=command_for_demo(store, folder, _pace(fast)),
            port=PORT if port is None else port,
            may_choose_port=port is None,
            opens=has_browser() if opens is None else opens,
        )
        return serve(wanted)


def _pace(fast: bool) -> float:
    return 0.1 if fast else 1.0


@contextmanager
def _place(folder: Path | None, store: str | None) -> Iterator[tuple[Path, str]]:
    """Where the demo's data and its journal are. A temporary folder is gone afterwards."""
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="checkrein-demo-")))
        folder.mkdir(parents=True, exist_ok=True)
        if store is None:
            store = f"sqlite:///{folder.absolute()}/runs.db"
            hints.remember_store(store)
        yield folder, store
