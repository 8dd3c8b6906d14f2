"""Room kept for the day the disk is full, so that a stop can still be recorded.

The reserve is a file of real bytes beside the journal. When the disk is full it is deleted, and what must be recorded
(verbs, their settlement, outcomes) has its space. As long as there is no reserve the disk counts as full for everything
that can be refused, words of people among it: reasons and notes are cut, long instructions are not taken
(`admission.without_words`). The reserve comes back when there is room for it several times over.

What is in SQLite's log must find room in the journal's file some day. So the log is kept short while room is scarce;
otherwise the reserve might be too small to take what is in it.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from contextlib import suppress
from typing import Final

_log = logging.getLogger(__name__)

SIZE: Final = 256 * 1024
ROOM: Final = 4 * SIZE
"""How much must be free before the reserve is made: it should not be what fills the disk."""

SCARCE: Final = 16 * 1024 * 1024
"""With less than this free, room is scarce."""

BETWEEN_TRIES_SECONDS: Final = 1.0


class Reserve:
    """The reserve of one journal. Used by one thread of a process; several processes share the file."""

    def __init__(self, journal: str) -> None:
        self._path = f"{journal}-reserve"
        self._next_try = 0.0

    def is_at_hand(self) -> bool:
        """Whether the reserve is there; made now if there is room again."""
        return self._exists() or self._make()

    def spend(self) -> None:
        """Give its room to what must be recorded."""
        self._next_try = time.monotonic() + BETWEEN_TRIES_SECONDS
        with suppress(OSError):
            os.unlink(self._path)

    def is_needed(self) -> bool:
        """Whether there is hardly any other room."""
        return self._free() < SIZE

    def is_room_scarce(self) -> bool:
        """Whether the disk may be full before long."""
        try:
            return self._free() < SCARCE
        except OSError:
            return False

    def _free(self) -> int:
        disk = os.statvfs(os.path.dirname(self._path))
        return disk.f_bavail * disk.f_frsize

    def _exists(self) -> bool:
        try:
            found = os.lstat(self._path)
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size >= SIZE

    def _make(self) -> bool:
        if time.monotonic() < self._next_try:
            return False
        self._next_try = time.monotonic() + BETWEEN_TRIES_SECONDS
        try:
            if self._free() < ROOM:
                return False
            self._write()
        except OSError as error:
            _log.warning("there is no reserve for a full disk: %s could not be written: %s", self._path, error)
            self.spend()
            return False
        return True

    def _write(self) -> None:
        # Not through a link: in a folder that others may write too, it could lead to any file of ours.
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            # Random bytes, so that no file system can keep them in less space.
            written = os.write(handle, os.urandom(SIZE))
            os.fsync(handle)
        finally:
            os.close(handle)
        if written < SIZE:
            raise OSError("the reserve did not fit")
