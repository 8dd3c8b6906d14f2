"""Noticing what other processes commit.

SQLite says cheaply whether anybody else has committed (`data_version`); only then are the new events looked at. Commits
of this process were announced already and are stepped over.

While one commit follows the other that is asked many times a second. As soon as it is quiet the system is to tell that
the log is written to (`inotify`). A commit is seen only after its write, and after the disk has it: what was written
before the system was asked may be seen any time later, so for a moment it is asked on, at growing intervals, and then
seldom, as a safety net. A write that is told begins another such moment, and slower asking until its commit is seen.
Where the system tells nothing, an idle reader asks slower than a busy one and no more.
"""

from __future__ import annotations

import logging
import os
import select
import sqlite3
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from typing import Any, Final

from checkrein.journal.base import Recorded
from checkrein.journal.queue import Question, ReadThread, tell_all
from checkrein.journal.sqlite import database, reads
from checkrein.journal.sqlite.job import Transaction
from checkrein.journal.subscriptions import PAGE, Subscriptions

_MODIFY: Final = 0x0000_0002
_ONESHOT: Final = 0x8000_0000
_EVENT: Final = struct.Struct("iIII")
_ROOM: Final = 4096


class FileWatch:
    """Calls `on_write`, in a thread of its own, once `path` was written to after a call of `arm` (inotify, on Linux).

    Only that it was, and once for each time it was asked for: a file that is written to all the time costs nothing more
    than one that is left alone. The file is not opened, so no lock on it is touched.

    Raises `OSError` where the system has nothing of the kind, or no more of it to give.
    """

    def __init__(self, path: str, on_write: Callable[[], None]) -> None:
        self._path = os.fsencode(path)
        self._on_write = on_write
        self._libc = _libc()
        self._told = self._checked(self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        self._end, self._ends = os.pipe()
        self._thread = threading.Thread(target=self._run, name=f"checkrein-watch {path}", daemon=True)
        self._thread.start()

    def arm(self) -> None:
        """From now on the next write is told. Raises `OSError` where that cannot be had."""
        self._checked(self._libc.inotify_add_watch(self._told, self._path, _MODIFY | _ONESHOT))

    def close(self) -> None:
        """Nothing is told any more. Blocks until the thread has ended; not to be called in it."""
        os.close(self._ends)
        self._thread.join()
        os.close(self._end)
        os.close(self._told)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._told, select.POLLIN)
        poll.register(self._end, select.POLLHUP)
        while self._end not in (ready := dict(poll.poll())):
            if self._told in ready and self._was_written():
                self._on_write()

    def _was_written(self) -> bool:
        """Whether a write is among what was told: that a watch has ended, as it does after one, is told too."""
        told = os.read(self._told, _ROOM)
        at, found = 0, False
        while at < len(told):
            _, mask, _, length = _EVENT.unpack_from(told, at)
            found |= bool(mask & _MODIFY)
            at += _EVENT.size + length
        return found

    @staticmethod
    def _checked(answer: int) -> int:
        if answer < 0:
            import ctypes

            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return answer


def _libc() -> Any:
    """The system's library, with inotify in it."""
    if sys.platform != "linux":
        raise OSError(f"there is no inotify on {sys.platform}")
    import ctypes  # not for those who never look out for others

    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.inotify_init1.argtypes = (ctypes.c_int,)
        libc.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
    except AttributeError as error:
        raise OSError(str(error)) from error
    return libc


_log = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.005
"""How often it is asked while things happen."""
EXPECTED_POLL_SECONDS: Final = 0.002
"""How often while a write that was told is about to become a commit."""
BUSY_SECONDS: Final = 0.5
"""For how long after a commit, or a write that may become one, that goes on."""
BACK_OFF: Final = 4
"""When the system will tell of the next write, or has told of one, it is asked again after a fourth of the time that
has passed since: a commit is seen late by that share, at most, of what the disk took for it."""
IDLE_POLL_SECONDS: Final = 0.02
"""How often it is asked after that, where the system does not tell of writes."""
SAFETY_SECONDS: Final = 0.5
"""How often it is asked after that, where the system does."""
COMMIT_SECONDS: Final = 30.0
"""For how long a write that was told is expected to become a commit: a disk may be slow."""
MISSES: Final = 3
"""After so many commits in a row that were not told of it is not relied on any more: not every file system tells what
is written on another side of it."""

LAST: Final = "SELECT ifnull(max(position), 0) FROM events"
LAST_OPERATION: Final = "SELECT ifnull(max(seq), 0) FROM operations"
NEWS: Final = """
SELECT r.id, min(e.seq), max(e.position)
FROM events e NOT INDEXED  -- or SQLite would group by walking an index over all events there ever were
JOIN runs r ON r.key = e.run WHERE e.position > ?1 GROUP BY e.run
"""


class ChangePoller:
    """Lives in the reader's thread; only `committed` is called from another, and `on_write`, which calls `written`."""

    def __init__(self, db: sqlite3.Connection, tower: Subscriptions, log: str, on_write: Callable[[], None]) -> None:
        self._db = db
        self._tower = tower
        self._log_path = log
        self._on_write = on_write
        self._watch: FileWatch | None = None
        self._may_watch = True
        self._is_armed = False
        self._missed = 0
        self._is_away = False
        self._is_active = False
        self._next = 0.0
        self._woken_at = 0.0
        self._busy_until = 0.0
        self._is_quiet = False
        """Whether nothing was new at the last look."""
        self._expects_until = 0.0
        """Until when a commit is expected that a write was told of. No second write tells of it."""
        self._is_idle = False
        self._version = 0
        self._seen = 0
        self._operation = 0
        """The last operation that was told of."""
        self._own: deque[tuple[int, int]] = deque()

    def begin(self) -> None:
        """Announce everything that is committed from now on, until nobody listens any more."""
        if not self._is_active:
            self._own.clear()
            self._version = self._data_version()
            (self._seen,) = self._db.execute(LAST).fetchone()
            (self._operation,) = self._db.execute(LAST_OPERATION).fetchone()
            self._is_active = True
            self._wake()

    def close(self) -> None:
        self._is_active = False
        self._watch_no_more()

    def committed(self, tx: Transaction) -> None:
        """This process has committed the positions of `tx`."""
        if self._is_active:
            self._own.append((tx.first, tx.last))

    def written(self) -> None:
        """Somebody has written to the log, and may be about to commit."""
        self._is_armed = False
        self._missed = 0
        self._wake()
        self._expects_until = time.monotonic() + COMMIT_SECONDS

    @property
    def is_idle(self) -> bool:
        """Whether its last look was one of those that are made seldom."""
        return self._is_idle

    def _wake(self) -> None:
        self._is_idle = self._is_quiet = False
        self._next = 0.0
        self._woken_at = time.monotonic()
        self._busy_until = self._woken_at + BUSY_SECONDS

    def wait_seconds(self) -> float | None:
        """How long there is nothing to do; None: for ever."""
        return max(0.0, self._next - time.monotonic()) if self._is_active else None

    def look(self) -> None:
        """Announce what is new, unless that was done a moment ago."""
        now = time.monotonic()
        if not self._is_active or now < self._next:
            return
        is_idle = now >= self._busy_until
        is_expected = now < self._expects_until
        if not self._is_armed and (is_idle or (self._is_quiet and not is_expected)):
            self._arm()  # before the look: what is written after it is told
        self._next = now + (self._idle_seconds(is_expected) if is_idle else self._busy_seconds(now, is_expected))
        self._is_active = self._tower.is_listened_to
        if not self._is_active:
            self._unwatch()
        try:
            version = self._data_version()
            if version != self._version:
                self._note_change(now, is_untold=is_idle and self._is_armed and not is_expected)
                self._announce()
                self._version = version
            else:
                self._is_idle, self._is_quiet = is_idle, True
            self._is_away = False
        except Exception as error:  # whoever reads will be told; here it is only tried again, and must never end
            if not self._is_away:  # once: it is tried again many times a second
                _log.warning("what other processes have written cannot be read: %s", error)
            self._is_away = True

    def _note_change(self, now: float, *, is_untold: bool) -> None:
        self._wake()
        self._expects_until = 0.0
        self._next = now + POLL_SECONDS
        if is_untold:  # or its write is being told this very moment: then `written` takes that back
            self._missed += 1
        if self._missed >= MISSES:
            _log.info("commits are looked for by polling: the system does not tell of writes to %s", self._log_path)
            self._watch_no_more()

    def _busy_seconds(self, now: float, is_expected: bool) -> float:
        if is_expected:
            return min(IDLE_POLL_SECONDS, max(EXPECTED_POLL_SECONDS, (now - self._woken_at) / BACK_OFF))
        return max(POLL_SECONDS, (now - self._woken_at) / BACK_OFF) if self._is_armed else POLL_SECONDS

    # -- the system's word

    def _idle_seconds(self, is_expected: bool) -> float:
        return SAFETY_SECONDS if self._is_armed and not is_expected else IDLE_POLL_SECONDS

    def _arm(self) -> None:
        if not self._may_watch:
            return
        try:
            if self._watch is None:
                self._watch = FileWatch(self._log_path, self._on_write)
            self._watch.arm()
            self._is_armed = True
        except OSError as error:
            _log.debug("commits are looked for by polling: %s", error)
            self._watch_no_more()

    def _watch_no_more(self) -> None:
        self._may_watch = False
        self._unwatch()

    def _unwatch(self) -> None:
        self._is_armed = False
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _announce(self) -> None:
        (operation,) = self._db.execute(LAST_OPERATION).fetchone()
        if operation != self._operation:  # first: nothing is as urgent as a halt
            self._operation = operation
            self._tower.announce_operations()
        while self._own and self._own[0][0] <= self._seen + 1:
            self._seen = max(self._seen, self._own.popleft()[1])
        rows = self._db.execute(NEWS, (self._seen,)).fetchall()
        if rows:
            followed = self._tower.followed()
            news = {run: self._read(run, first) if run in followed else () for run, first, _ in rows}
            self._tower.announce(news)
            self._seen = max(position for _, _, position in rows)

    def _read(self, run: str, first: int) -> tuple[Recorded, ...]:
        """The new events of a run, or nothing when there are many."""
        records = reads.read(self._db, run, first - 1, PAGE)
        return records if len(records) < PAGE else ()

    def _data_version(self) -> int:
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])


class Reader(ReadThread[sqlite3.Connection]):
    """The thread that reads, and looks out for what other processes commit while somebody follows.

    The look-out is a question like the others: once it was asked for, every later answer is no older than its
    beginning, so nothing can be committed unseen in between.
    """

    def __init__(self, path: str, db: sqlite3.Connection, tower: Subscriptions) -> None:
        super().__init__(path)
        self._path = path
        self._db = db
        self._lookout = ChangePoller(self._db, tower, f"{path}-wal", self._on_write)
        self._thread.start()

    def look_out(self) -> None:
        """Tell the tower from now on what other processes commit, as long as somebody listens."""
        self.ask(lambda _: self._lookout.begin())

    def committed(self, tx: Transaction) -> None:
        """Called by the writer: what this process has committed need not be looked for."""
        self._lookout.committed(tx)

    def _on_write(self) -> None:
        """Called by the watch's thread."""
        self._put(lambda _: self._lookout.written(), None)

    # -- the thread

    def _run(self) -> None:
        is_open = True
        while is_open:
            with suppress(Empty):
                question = self._questions.get(timeout=self._lookout.wait_seconds())
                is_open = question is not None and self._answer(question)
            self._lookout.look()
        self._lookout.close()
        self._db.close()

    def _answer(self, question: Question) -> bool:
        answer: Any
        try:
            answer = question.ask(self._db)
        except sqlite3.Error as error:
            answer = database.explain(error, self._path)
        except Exception as error:
            answer = error
        tell_all([(question.future, answer)])
        return True
