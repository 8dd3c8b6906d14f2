"""A run on the whole screen of a terminal: what it does, live, and the controls that stop it.

Nothing outside this package imports Textual, so that no other command pays for it.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from checkrein.cli.options import who
from checkrein.cli.screen.app import Left, RunScreen
from checkrein.cli.screen.watch import RunWatch
from checkrein.control.control import Control
from checkrein.journal.base import Journal
from checkrein.runtime import Runtime

__all__ = ["Left", "attach"]


async def attach(
    runtime: Runtime | None,
    journal: Journal,
    control: Control,
    run: str,
    *,
    owns: bool,
    by: str = "",
    is_kept: bool = True,
) -> Left:
    """Show the run until the person leaves, and say how they did. The run itself does not mind.

    `owns` says that this process drives the run: then Ctrl-C pauses, cancels and at last asks for the end of the
    process (`Left.KILL`); otherwise it only leaves. Verbs are asked for in the name of `by`. Of a run that is not kept
    (`is_kept`) nobody is told how to go on. Raises `RunNotFound`.
    """
    await journal.load(run)
    watch = RunWatch(journal, run, runtime if owns else None)
    screen = RunScreen(watch, control, run, owns=owns, by=who(by), is_kept=is_kept)
    left: Left | None = None
    with _signals(screen):
        try:
            # Without the mouse, so that the terminal's own way to select and copy works.
            left = await screen.run_async(mouse=False)
        finally:
            await screen.settle(at_once=left is Left.KILL)
    return left or Left.DETACHED


@contextmanager
def _signals(screen: RunScreen) -> Iterator[None]:
    """SIGINT does what the key does. A terminal that hangs up, and a request to end, leave the screen in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    handlers = {
        signal.SIGINT: screen.action_interrupt,
        signal.SIGTERM: lambda: screen.exit(Left.DETACHED),
        signal.SIGHUP: lambda: screen.exit(Left.DETACHED),
    }
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number, earlier in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, earlier)
