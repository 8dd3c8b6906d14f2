"""A thread in the middle of a system call that nothing wakes it from, and that lasts until it is let go."""

from __future__ import annotations

import os
import select
from types import TracebackType
from typing import Final, Self

from tests.support.witness import until

_MUCH: Final = 4_000_000
"""More bytes than any pipe holds."""


class Blocked:
    """Writes more to a pipe than it holds. Once something is in the pipe, the writer is inside the one call that has
    to write all of it; nobody has to guess how long a thread takes to get there."""

    def __enter__(self) -> Self:
        self._ours, self._theirs = os.pipe()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self._ours)  # whoever is still in there gets an error
        os.close(self._theirs)

    def enter(self) -> None:
        os.write(self._theirs, bytes(_MUCH))

    async def entered(self) -> None:
        await until(lambda: select.select([self._ours], [], [], 0)[0])

    def let_go(self) -> None:
        """Only once it is `entered`."""
        left = _MUCH
        while left:
            left -= len(os.read(self._ours, left))
