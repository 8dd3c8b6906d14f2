"""Whose turn it is to write, among processes.

SQLite gives its write lock to whoever happens to ask while it is free; beside a process that commits back to back
another one can wait for seconds. So a process in a hurry, because it has a verb or has waited for long, raises a flag:
a shared lock on a file kept for that. Everybody else looks for a flag before they begin, and where there is one leave
the write lock free for a moment. A lone writer pays two system calls for that.

Nobody waits for long: a process that is frozen with its flag up delays the others once a second, by a fiftieth of it.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable
from typing import Final

from checkrein.errors import StoreUnavailable
from checkrein.journal.sqlite import database

RETRY_SECONDS: Final = 0.0002
"""How often a process in a hurry asks for the write lock."""
PATIENT_RETRY_SECONDS: Final = 0.001
STEP_SECONDS: Final = 0.0003
GIVE_WAY_SECONDS: Final = 0.02
"""For how long, at most, a flag is given way to."""
IGNORE_SECONDS: Final = 1.0
"""For how long flags are ignored after one that was given way to in vain."""
HURRY_AFTER_SECONDS: Final = 0.01
"""After this long everybody is in a hurry."""


class WriteLock:
    """Takes the write lock for one connection, or gives up after `patience` seconds."""

    def __init__(self, journal: str, patience: float) -> None:
        self._journal = journal
        self._patience = patience
        # Not through a link, which would make a file wherever it leads.
        self._flags = os.open(f"{journal}-verbs", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._ignore_until = 0.0

    def close(self) -> None:
        os.close(self._flags)

    def begin(self, db: sqlite3.Connection, has_verb: Callable[[], bool]) -> None:
        """Begin a transaction that may write. Raises `StoreUnavailable` when others keep the lock for too long."""
        if not has_verb():
            self._give_way(has_verb)
        if not self._try(db):
            self._wait(db, has_verb)

    def begin_at_once(self, db: sqlite3.Connection) -> bool:
        """Begin a transaction if that needs no waiting: nobody else is in a hurry, or has the lock."""
        return self._is_nobody_in_hurry() and self._try(db)

    def _wait(self, db: sqlite3.Connection, has_verb: Callable[[], bool]) -> None:
        began = time.monotonic()
        has_flag = False
        try:
            while True:
                waited = time.monotonic() - began
                if waited > self._patience:
                    raise self._too_late()
                is_in_hurry = has_verb() or waited > HURRY_AFTER_SECONDS
                if is_in_hurry and not has_flag:
                    has_flag = self._raise_flag()
                elif not is_in_hurry:
                    self._give_way(has_verb)
                time.sleep(RETRY_SECONDS if is_in_hurry else PATIENT_RETRY_SECONDS)
                if self._try(db):
                    return
        finally:
            if has_flag:
                fcntl.flock(self._flags, fcntl.LOCK_UN)

    def _give_way(self, has_verb: Callable[[], bool]) -> None:
        """Wait until no other process is in a hurry, or this one is."""
        if self._is_nobody_in_hurry():
            return
        now = time.monotonic()
        if now < self._ignore_until:
            return
        until = now + GIVE_WAY_SECONDS
        while not has_verb():
            time.sleep(STEP_SECONDS)
            if self._is_nobody_in_hurry():
                return
            if time.monotonic() > until:
                self._ignore_until = time.monotonic() + IGNORE_SECONDS
                return

    def _is_nobody_in_hurry(self) -> bool:
        try:
            fcntl.flock(self._flags, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._flags, fcntl.LOCK_UN)
        return True

    def _raise_flag(self) -> bool:
        """False when somebody is looking for flags this very moment: try again."""
        try:
            fcntl.flock(self._flags, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @staticmethod
    def _try(db: sqlite3.Connection) -> bool:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if database.is_busy(error):
                return False
            raise
        return True

    def _too_late(self) -> StoreUnavailable:
        pid = writer_of(self._journal)
        who = f"process {pid}" if pid else "another process"
        return StoreUnavailable(
            f"{self._journal} is kept locked by {who} for more than {self._patience:g} s; nothing was taken.",
            path=self._journal,
            pid=pid,
        )


def writer_of(journal: str) -> int | None:
    """The process that holds the write lock, where the system tells."""
    try:
        inode = os.stat(f"{journal}-shm").st_ino
        with open("/proc/locks") as locks:
            lines = [line.split() for line in locks if "->" not in line]
    except OSError:
        return None
    # Byte 120 of the shared memory file is SQLite's write lock. The file itself must not be opened: closing it again
    # would drop the locks that this process has on it.
    for line in lines:
        if line[5].rpartition(":")[2] == str(inode) and line[3] == "WRITE" and int(line[6]) <= 120 <= _end(line[7]):
            return int(line[4])
    return None


def _end(field: str) -> int:
    return 1 << 62 if field == "EOF" else int(field)
