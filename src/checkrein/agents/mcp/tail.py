"""The last of what a server writes to its standard error: kept for when it has to be explained why it failed."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Final, TextIO

_KEPT: Final = 4096
_SHOWN: Final = 300


class Tail:
    """A pipe. Give `file` to the process; everything but the end of it is forgotten. Close it when done."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        self.file: TextIO = os.fdopen(writer, "w")
        self._kept = b""
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reader, self._read)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while piece := os.read(self._reader, 65536):
                self._kept = (self._kept + piece)[-_KEPT:]
            self._loop.remove_reader(self._reader)  # nobody can write any more

    def last_line(self) -> str:
        if not self._is_closed:
            self._read()
        lines = [" ".join(line.split()) for line in self._kept.decode("utf-8", "replace").splitlines()]
        return next((line[-_SHOWN:] for line in reversed(lines) if line), "")

    def close(self) -> None:
        self._is_closed = True
        self._loop.remove_reader(self._reader)
        self.file.close()
        os.close(self._reader)
