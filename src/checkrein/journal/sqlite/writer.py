"""One thread that turns the writes of all runs of this process into as few transactions as possible.

Whatever waits when the write lock is got goes into one transaction, and all are answered after its commit: group
commit without waiting for company. A job that is refused does not disturb the others; one that fails in an unforeseen
way makes the batch start again, each job by itself.

After an error of the store nothing is guessed. The connection is opened anew and each job looked up: one that is found
is made durable by a checkpoint before it is acknowledged, one that is not is tried once more where that makes sense.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, TypeVar

from checkrein.errors import CheckreinError, JournalError, MisuseError, StoreUnavailable
from checkrein.journal import refusals
from checkrein.journal.queue import WriteQueue, settle, tell_all
from checkrein.journal.sqlite import database
from checkrein.journal.sqlite.disk_reserve import Reserve
from checkrein.journal.sqlite.job import Heads, Job, Transaction
from checkrein.journal.sqlite.write_lock import WriteLock

_log = logging.getLogger(__name__)

T = TypeVar("T")
Tell = Callable[[Any], None]

LOG_PAGES: Final = 1000
SHORT_LOG_PAGES: Final = 32
"""How long the log gets before it is moved into the journal's file: usually, and while room is scarce."""
FIT_SECONDS: Final = 1.0
AT_ONCE_SECONDS: Final = 0.001
"""An event loop may stand still for so long. Where commits take longer, all of them are made in the thread."""


class Writer:
    """`connect` opens a connection; `on_commit` is told of every transaction that held events."""

    def __init__(
        self,
        path: str,
        connect: Callable[[], sqlite3.Connection],
        reserve: Reserve,
        turns: WriteLock,
        on_commit: Callable[[Transaction], None],
    ) -> None:
        self._path = path
        self._connect = connect
        self._reserve = reserve
        self._turns = turns
        self._on_commit = on_commit
        self._db: sqlite3.Connection | None = connect()
        self._reserve.is_at_hand()
        self._heads = Heads()
        self._next_fit = 0.0
        self._place = _place(path)
        self._log_path = f"{path}-wal"
        self._log_place = _place(self._log_path)
        """Where the log is. It stays there as long as anybody has the journal open."""
        self._is_saved = False
        self._gone: StoreUnavailable | None = None
        """Set while the journal's file or its log is not where it was: nothing is taken until it is back."""
        self._lanes: WriteQueue[Job[Any]] = WriteQueue()
        self._gate = threading.Lock()
        self._is_closed = False
        self._desk = threading.Lock()
        """Held by whoever works with the connection: the thread, or a task that is alone."""
        self._pace = 0.0
        """How long a commit takes these days."""
        self._fresh: list[Job[Any]] = []
        self._hurt: deque[tuple[Job[Any], Exception]] = deque()
        """Lone jobs that failed."""
        self._home: asyncio.AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"checkrein-writer {path}", daemon=True)
        self._thread.start()

    # -- called by tasks

    def submit(self, job: Job[T]) -> asyncio.Future[T]:
        """Have `job` done. It will be, also when nobody waits for the answer any more."""
        loop = asyncio.get_running_loop()
        job.future = loop.create_future()
        with self._gate:
            if self._is_closed:
                raise refusals.closed()
            if os.getpid() != self._pid:
                raise MisuseError("This journal was opened before the process was forked; open it again afterwards.")
            if self._home is None or self._home.is_closed():
                for stranded in self._fresh:
                    self._lanes.put(stranded)
                self._home, self._fresh = loop, []
            if loop is not self._home:
                self._lanes.put(job)
            else:
                self._fresh.append(job)
                if len(self._fresh) == 1:
                    loop.call_soon(self._begin_fresh)
        return job.future

    def _begin_fresh(self) -> None:
        """Begin what tasks have submitted in one round of the event loop: a lone job here, several in the thread."""
        with self._gate:  # all the while, so that nothing is put after the lanes are closed
            fresh, self._fresh = self._fresh, []
            if len(fresh) == 1 and self._do_at_once(fresh[0]):
                return
            for job in fresh:
                self._lanes.put(job)

    def submit_quietly(self, job: Job[Any]) -> None:
        """Have `job` done some time; nobody wants to know."""
        job.future = None
        try:
            self._put(job)
        except StoreUnavailable as error:
            _log.debug("left undone: %s", error)

    def _put(self, job: Job[Any]) -> None:
        with self._gate:
            if self._is_closed:
                raise refusals.closed()
            self._lanes.put(job)

    def close(self) -> None:
        """Do what was submitted, and end. Blocks until then."""
        with self._gate:
            if not self._is_closed:
                self._is_closed = True
                for job in self._fresh:
                    self._lanes.put(job)
                self._fresh = []
                self._lanes.close()
        self._thread.join()

    def _do_at_once(self, job: Job[Any]) -> bool:
        """Do a job that is all alone in the event loop's own thread; False when it must go the usual way.

        To wake a thread and be woken by it costs as much as a commit on a fast disk. So where commits are fast, nothing
        else waits, and no other process is in the way, a lone job is not worth a thread.
        """
        is_worth_it = self._pace <= AT_ONCE_SECONDS and self._gone is None and self._lanes.is_empty()
        if not is_worth_it or not self._desk.acquire(blocking=False):
            return False
        try:
            if self._db is None or not self._turns.begin_at_once(self._db):
                return False
            self._commit([job], tell=settle)
        except BaseException as error:
            self._rollback()
            if not isinstance(error, Exception):  # a signal's handler has raised, in the middle of anything
                self._hurt.append((job, StoreUnavailable(f"{self._path}: interrupted; look it up by its id.")))
                self._lanes.call()
                raise
            # What to do about it may take long, and only the thread may take jobs from the lanes.
            self._hurt.append((job, error))
            self._lanes.call()
        finally:
            self._desk.release()
        return True

    # -- the thread

    def _run(self) -> None:
        while self._lanes.wait():
            with self._desk:
                while self._hurt:
                    job, error = self._hurt.popleft()
                    self._mend([job], error)
                if not self._lanes.is_empty():
                    self._do_what_waits()
        with self._desk:
            self._drop_connection()
            self._turns.close()

    def _do_what_waits(self) -> None:
        try:
            if self._gone is not None:
                self._check_place()
            self._turns.begin(self._connection(), self._lanes.has_verb)
        except (sqlite3.Error, OSError, JournalError) as error:
            self._drop_connection()
            return self._refuse(self._lanes.take(), error)
        batch = self._lanes.take()
        try:
            self._commit(batch)
        except Exception as error:
            self._rollback()
            self._mend(batch, error)

    def _commit(self, batch: list[Job[Any]], *, is_careful: bool = False, tell: Tell = tell_all) -> None:
        """Perform all in the transaction that was begun, commit it, and answer. If this raises, nobody was answered."""
        db = self._connection()
        self._heads.begin(db)
        is_full = any(job.is_dispensable for job in batch) and not self._reserve.is_at_hand()
        tx = Transaction(db.cursor(), self._heads, is_full=is_full, is_careful=is_careful)
        answers = [(job.future, _perform(job, tx)) for job in batch]
        began = time.perf_counter()
        db.execute("COMMIT")
        self._pace += (time.perf_counter() - began - self._pace) / 8
        self._check_place()  # after the commit: what was written to a file without a name must not be acknowledged
        tell(answers)
        if tx.last or tx.has_operation:
            self._on_commit(tx)
        self._fit_log(db)

    def _check_place(self) -> None:
        """Raises `StoreUnavailable` if the file or its log is no longer the one that this connection writes to."""
        if _place(self._path) != self._place:
            what = self._path
        elif _place(self._log_path) != self._log_place:
            what = f"{self._log_path}, the log of {self._path},"
        else:
            self._gone = None
            return
        is_news = self._gone is None
        self._gone = StoreUnavailable(
            f"{what} was moved, replaced or deleted while in use: nothing more is taken. Put it back, or end every "
            "process that uses the journal and start them again.",
            path=self._path,
        )
        if is_news:
            _log.error("%s", self._gone)
        raise self._gone

    def _fit_log(self, db: sqlite3.Connection) -> None:
        """Now and then: keep the log short while room on the disk is scarce."""
        now = time.monotonic()
        if now > self._next_fit:
            self._next_fit = now + FIT_SECONDS
            pages = SHORT_LOG_PAGES if self._reserve.is_room_scarce() else LOG_PAGES
            with suppress(sqlite3.Error):
                db.execute(f"PRAGMA wal_autocheckpoint={pages}")

    # -- after an error

    def _mend(self, batch: list[Job[Any]], error: Exception) -> None:
        """Find an answer for every job of a batch that was not committed, as far as anybody knows."""
        if self._gone is not None:
            self._save_log()
            return self._refuse(batch, self._gone)
        if database.is_full(error):
            return self._mend_full(batch)
        is_doubtful = isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.IntegrityError)
        if is_doubtful:
            self._drop_connection()
            if not database.is_transient(error):
                return self._refuse(batch, error)
        for job in batch:
            self._again(job, is_doubtful)

    def _save_log(self) -> None:
        """Move what is in a log without a name into the journal's file, while this connection still has it open.

        Whatever was acknowledged is then safe; without that it would be gone with the last process that has it open.
        """
        if not self._is_saved and _place(self._path) == self._place:
            self._is_saved = self._checkpoint("FULL")
            _log.error("what was acknowledged is %s in %s", "safe" if self._is_saved else "NOT safe", self._path)

    def _mend_full(self, batch: list[Job[Any]]) -> None:
        """First write over the log from its beginning; then live on the reserve, and refuse what can be refused."""
        self._next_fit = 0.0
        self._checkpoint("RESTART")
        try:
            self._turns.begin(self._connection(), self._lanes.has_verb)
            return self._commit(batch)
        except Exception as error:
            self._rollback()
            if not database.is_full(error):
                return self._mend(batch, error)
        self._reserve.spend()
        self._checkpoint("RESTART")
        for job in batch:
            self._again(job, is_doubtful=False)

    def _again(self, job: Job[Any], is_doubtful: bool) -> None:
        """Answer one job: with what it did the first time, where that is in doubt, or with what it does now."""
        try:
            with _patient(self._connection()) as db:
                found = job.recall(Transaction(db.cursor(), self._heads)) if is_doubtful else None
            if found is None:
                self._turns.begin(db, self._lanes.has_verb)
                self._commit([job], is_careful=True)
            elif self._checkpoint("TRUNCATE"):
                tell_all([(job.future, found)])
            else:
                raise StoreUnavailable(f"{self._path} has this, but could not be made safe. Ask again later.")
        except Exception as error:
            self._rollback()
            self._refuse([job], error)

    def _refuse(self, batch: list[Job[Any]], error: Exception) -> None:
        reason = database.explain(error, self._path) if isinstance(error, sqlite3.Error) else error
        tell_all([(job.future, reason) for job in batch])

    def _checkpoint(self, how: Literal["FULL", "RESTART", "TRUNCATE"]) -> bool:
        """Move everything that was committed from the log into the journal's file, durably.

        After a restart the log keeps its space for what comes next; truncated, it gives it back.
        """
        try:
            with _patient(self._connection()) as db:
                is_busy, _, _ = db.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
        except (sqlite3.Error, JournalError):
            return False
        return not is_busy

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            self._check_place()  # a log that is made anew would not fit to what others still have open
            self._db = self._connect()
        return self._db

    def _rollback(self) -> None:
        self._heads.forget()
        if self._db is not None and self._db.in_transaction:
            try:
                self._db.execute("ROLLBACK")
            except sqlite3.Error:
                self._drop_connection()

    def _drop_connection(self) -> None:
        db, self._db = self._db, None
        self._next_fit = 0.0
        self._heads = Heads()
        if db is not None:
            with suppress(sqlite3.Error):
                db.close()


@contextmanager
def _patient(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """For what needs other processes to be quiet for a moment, but is not the turn to write."""
    db.execute("PRAGMA busy_timeout=1000")
    try:
        yield db
    finally:
        db.execute("PRAGMA busy_timeout=0")


def _perform(job: Job[T], tx: Transaction) -> T | CheckreinError:
    try:
        return job.perform(tx)
    except CheckreinError as refusal:
        return refusal


def _place(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return (status.st_dev, status.st_ino)
