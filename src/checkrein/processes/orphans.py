"""Reaping orphans: a process that is the first of its pid namespace, as in a container, inherits those of all others.

Nobody else can wait for them, and each would stay in the process table as a zombie until the container ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from checkrein.processes import table

LOOK_SECONDS: Final = 2.0


def is_first() -> bool:
    """Whether orphans come to this process."""
    return os.getpid() == 1


def reap(except_for: Collection[int]) -> list[int]:
    """Take zombies that are children of this process from the process table, but for those that somebody here waits
    for. Returns which."""
    dead = [row.pid for row in table.children(os.getpid()) if not row.lives and row.pid not in except_for]
    for pid in dead:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return dead


async def reap_for_ever(own: Collection[int]) -> None:
    """`own` are the children of whoever calls, as they are at each moment."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        reap(own)
