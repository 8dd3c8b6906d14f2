"""`checkrein demo`: the agent of `checkrein.demo`, attached to this terminal; or its tour, which plays by itself."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
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
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="checkrein-demo-")))
        folder.mkdir(parents=True, exist_ok=True)
        if store is None:
            store = f"sqlite:///{folder.absolute()}/runs.db"
            hints.remember_store(store)
        if not json:
            saying.note(f"From another terminal: {hints.command('ps')}  (or pause, redirect, cancel, ask, watch)")
        return run_agent(demo.agent(folder, pace=0.1 if fast else 1.0), demo.GOAL, store, manner)
