"""A process that does nothing but sleep, and knows by how much it was woken late: how busy the machine is with others.

python -m bench.sleeper, which ends, and says what it knows, when its standard input is closed
"""

from __future__ import annotations

import select
import sys
import time
from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec

from bench.aside import aside

SLEEP_SECONDS: Final = 0.005


def sleeper() -> AbstractAsyncContextManager[list[float]]:
    """By how many seconds another process was woken late meanwhile; filled in at the end."""
    return aside("bench.sleeper")


def main() -> None:
    late: list[float] = []
    is_over = False
    while not is_over:
        awake = time.monotonic() + SLEEP_SECONDS
        is_over = bool(select.select([sys.stdin], [], [], SLEEP_SECONDS)[0])
        late.append(time.monotonic() - awake)
    sys.stdout.buffer.write(msgspec.json.encode(late[:-1]))


if __name__ == "__main__":
    main()
