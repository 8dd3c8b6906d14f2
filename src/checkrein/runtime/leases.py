"""Keeping leases alive from a thread of its own, so that a program that blocks its event loop does not lose its run.

Whether a lease still holds is not asked of the store, which may be away, but told by this process's own clock: a lease
holds for so long after the moment at which its claim, or its last renewal, was *sent*. A driver gives its run up a
margin before that, so that its calls have stopped by the time somebody else can claim it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final, NamedTuple

from checkrein.errors import CheckreinError
from checkrein.journal.contract import Journal, Owner

LEASE_SECONDS: Final = 15.0
MARGIN_SECONDS: Final = 3.0
"""Before its end a lease is given up: the grace of a tool, and some time to kill it. Of a short lease, a third."""
_RENEWALS: Final = 5
"""How often a lease is renewed while it lasts."""


def now() -> float:
    """A clock that nobody sets, and that goes on while the process is frozen or the host asleep."""
    return time.clock_gettime(_CLOCK)


_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class _Held(NamedTuple):
    since: float
    """When the claim was answered: a renewal that was sent before cannot know of it."""
    until: float


class LeaseKeeper:
    """Renews every lease of `owner` until it is stopped. May be asked from any thread."""

    def __init__(self, journal: Journal, owner: Owner, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self.lease_seconds = lease_seconds
        self._margin = min(MARGIN_SECONDS, lease_seconds / 3)
        self._journal = journal
        self._owner = owner
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkrein-leases", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; returns when it has ended."""
        self._stop.set()
        self._thread.join()

    def keep(self, run: str, sent: float) -> None:
        """A claim of `run` that was sent at `sent` has been answered."""
        with self._lock:
            self._held[run] = _Held(now(), sent + self.lease_seconds)

    def forget(self, run: str) -> None:
        with self._lock:
            self._held.pop(run, None)

    def holds(self, run: str) -> bool:
        """Whether nobody else can have claimed the run yet, nor can for as long as it takes to stop its calls."""
        with self._lock:
            held = self._held.get(run)
        return held is not None and now() < held.until - self._margin

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            while not self._stop.wait(self.lease_seconds / _RENEWALS):
                sent = now()
                try:
                    renewed = runner.run(self._journal.renew(self._owner, seconds=self.lease_seconds))
                except CheckreinError:
                    continue  # the store is away; a lease that is not renewed in time is given up by its driver
                self._note(renewed, sent)

    def _note(self, renewed: frozenset[str], sent: float) -> None:
        with self._lock:
            for run, held in list(self._held.items()):
                if run in renewed:
                    self._held[run] = _Held(held.since, sent + self.lease_seconds)
                elif held.since <= sent:
                    self._held[run] = _Held(held.since, 0.0)  # somebody else has it, or it has run out
