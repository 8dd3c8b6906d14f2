"""Counting wrong tokens, to keep a flood of them cheap.

A token has 256 bits: counting protects nobody's token, only the log and the processor. So it may never be in the way: a
valid token is looked up first and is not counted, and a stop is answered the plain way however often it was refused.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

ALLOWED: Final = 30
"""Wrong tokens from one address ..."""
WINDOW_SECONDS: Final = 60.0
"""... in this time."""
_ADDRESSES: Final = 1024
_STOPS: Final = re.compile(r"/api/(runs/[^/]+/cancel|halt)")


def is_stop(path: str) -> bool:
    """What no limit ever touches."""
    return _STOPS.fullmatch(path) is not None


class Attempts:
    """How often each address was wrong lately. Keeps a bounded number of addresses, the latest."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def was_wrong(self, address: str) -> float:
        """Count a wrong token. Returns how many seconds this address should keep still: 0 for most."""
        now = self._now()
        began, count = self._wrong.pop(address, (now, 0))
        if now - began >= WINDOW_SECONDS:
            began, count = now, 0
        self._wrong[address] = began, count + 1
        if len(self._wrong) > _ADDRESSES:
            self._wrong.popitem(last=False)
        return began + WINDOW_SECONDS - now if count >= ALLOWED else 0.0
