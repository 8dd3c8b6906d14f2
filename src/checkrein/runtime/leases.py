"""Keeping leases alive from a thread of its own, so that a program that blocks its event loop does not lose its run."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from checkrein.errors import JournalError
from checkrein.journal.contract import Journal, Owner

LEASE_SECONDS: Final = 15.0
RENEW_SECONDS: Final = 3.0


class LeaseKeeper:
    """Renews every lease of `owner` until it is stopped."""

    def __init__(
        self,
        journal: Journal,
        owner: Owner,
        *,
        lease_seconds: float = LEASE_SECONDS,
        renew_seconds: float = RENEW_SECONDS,
    ) -> None:
        self._journal = journal
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkrein-leases", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; returns when it has ended."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            while not self._stop.wait(self._renew_seconds):
                try:
                    runner.run(self._journal.renew(self._owner, seconds=self._lease_seconds))
                except JournalError:
                    continue  # the store is away; a lease that runs out will be noticed by its driver
