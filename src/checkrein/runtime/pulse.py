"""A driver that is wedged in user code must not keep a person from stopping it.

A tool that blocks the event loop (`time.sleep` in an `async def`) blocks everything that could stop it. So a thread
beside the loop feels its pulse. Only when the loop does not answer *and* a verb has waited for longer than the grace,
the process ends itself with SIGKILL: the supervisor ends its tools, what it was doing is in doubt, and whoever waits
for the verb claims the run. A loop that is merely slow, with nobody asking anything of it, is left alone.

The thread needs the interpreter now and then: code in C that never gives it back is beyond it. Then the leases of this
process run out, and the run is taken over as from one that does not answer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from checkrein.core.state import State
from checkrein.core.words import Status, Verb
from checkrein.errors import JournalError
from checkrein.journal.contract import Journal

GRACE_SECONDS: Final = 4.0
"""How long a verb may wait for an event loop that does not answer. Longer than a tool's own grace."""
_BEAT_SECONDS: Final = 0.5
_STOPS: Final = (Verb.PAUSE, Verb.REDIRECT, Verb.CANCEL, Verb.ABORT)


class Pulse:
    """Feels the pulse of the running event loop, until it is stopped. `runs` names the runs that are driven here."""

    def __init__(
        self,
        journal: Journal,
        runs: Callable[[], Collection[str]],
        *,
        grace_seconds: float = GRACE_SECONDS,
        clock: Callable[[], float] = time.time,
        kill: Callable[[], None] | None = None,
    ) -> None:
        self._journal = journal
        self._runs = runs
        self._grace_seconds = grace_seconds
        self._clock = clock
        self._kill = kill or _kill_this_process
        self._loop = asyncio.get_running_loop()
        self._felt_at = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkrein-pulse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; returns when it has ended."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            while not self._stop_after_a_beat():
                try:
                    self._loop.call_soon_threadsafe(self._beat)
                except RuntimeError:
                    return  # the loop is closed
                if time.monotonic() - self._felt_at >= self._grace_seconds and runner.run(self._is_somebody_waiting()):
                    self._kill()

    def _stop_after_a_beat(self) -> bool:
        began = time.monotonic()
        is_stopping = self._stop.wait(_BEAT_SECONDS)
        if time.monotonic() - began > 4 * _BEAT_SECONDS:
            self._felt_at = time.monotonic()  # the whole process stood still, and not only its event loop
        return is_stopping

    def _beat(self) -> None:
        self._felt_at = time.monotonic()

    async def _is_somebody_waiting(self) -> bool:
        """Whether a stop of a run that is driven here has waited for longer than the grace.

        A halt waits for nobody: its run is over, and should have been let go by now.
        """
        since = self._clock() - self._grace_seconds
        try:
            states = [await self._journal.load(run) for run in tuple(self._runs())]
        except JournalError:
            return False
        return any(_waits(state, since) for state in states)


def _waits(state: State, since: float) -> bool:
    verb = state.pending(*_STOPS)
    is_halted = state.status is Status.KILLED and state.at <= since
    return is_halted or (verb is not None and verb.accepted_at <= since)


def _kill_this_process() -> None:
    print(
        "checkrein: a tool blocks the event loop and a stop waits for it; this process ends itself. "
        "What it was doing is in doubt.",
        file=sys.stderr,
        flush=True,
    )
    os.kill(os.getpid(), signal.SIGKILL)
