"""Signals that end a front or a worker: the first one in order, the second one now."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndSignals:
    """`enough`: end in order. `now`: end at once."""

    def __init__(self) -> None:
        self.enough = asyncio.Event()
        self.now = asyncio.Event()

    @contextmanager
    def heeded(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        # One that is ignored stays so: `nohup` means it.
        heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        for number in heeded:
            loop.add_signal_handler(number, self._heed)
        try:
            yield
        finally:
            for number in heeded:
                loop.remove_signal_handler(number)

    def _heed(self) -> None:
        if self.enough.is_set():
            self.now.set()
        self.enough.set()
