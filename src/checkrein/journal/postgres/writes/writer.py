"""The thread that writes: it turns the writes of all tasks of this process into as few transactions as possible.

Whatever waits goes together: all appends into one statement, and all are answered after its commit: group commit
without waiting for company. What cannot be done together is looked at one by one.

A connection that is lost is opened anew, and whatever was not answered is done again: an append looks its ids up first,
everything else does no harm when it is done twice. That goes on for as long as each job has patience.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import psycopg

from checkrein.errors import CheckreinError, MisuseError, StoreUnavailable
from checkrein.journal import refusals
from checkrein.journal.base import Recorded
from checkrein.journal.postgres.connection import Session, Target, explain, is_lost, is_worth_another_look
from checkrein.journal.postgres.leases import Release
from checkrein.journal.postgres.tables import JoinChunks, SaveSnapshot, WriteChunks
from checkrein.journal.postgres.writes.append import Append
from checkrein.journal.postgres.writes.batch import append_all
from checkrein.journal.postgres.writes.job import Context, Heads, Job
from checkrein.journal.queue import WriteQueue, tell_all

_log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_SECONDS: Final = 0.1
"""How long a server that cannot be reached is left alone."""
TRIES: Final = 20
"""How often one job is tried that meets a deadlock, or somebody who was faster."""
LATER: Final = (Release, WriteChunks, JoinChunks, SaveSnapshot)
"""What is done after the appends it came with; all else goes before them."""

News = dict[str, list[Recorded]]
Waiting = dict[int, Job[Any]]
"""The jobs that were not answered yet, in their order."""


class Writer:
    """`on_commit` is told the new events of each run, after those who appended them."""

    def __init__(
        self,
        target: Target,
        session: Session,
        connect: Callable[[], Session],
        sender: str,
        on_commit: Callable[[News], None],
    ) -> None:
        self._target = target
        self._connect = connect
        self._sender = sender
        self._on_commit = on_commit
        self._heads = Heads()
        self._at: Context | None = self._context(session)
        self._lanes: WriteQueue[Job[Any]] = WriteQueue()
        self._gate = threading.Lock()
        self._is_closed = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"checkrein-writer {target.shown}", daemon=True)
        self._thread.start()

    # -- called by tasks

    def submit(self, job: Job[T], patience: float) -> asyncio.Future[T]:
        """Have `job` done. It will be, also when nobody waits for the answer any more."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        job.future = future
        self._put(job, patience)
        return future

    def submit_quietly(self, job: Job[Any], patience: float) -> None:
        """Have `job` done some time; nobody wants to know."""
        try:
            self._put(job, patience)
        except StoreUnavailable as error:
            _log.debug("left undone: %s", error)

    def _put(self, job: Job[Any], patience: float) -> None:
        job.deadline = time.monotonic() + patience
        with self._gate:
            if self._is_closed:
                raise refusals.closed()
            if os.getpid() != self._pid:
                raise MisuseError("This journal was opened before the process was forked; open it again afterwards.")
            self._lanes.put(job)

    def close(self) -> None:
        """Do what was submitted, and end. Blocks until then."""
        with self._gate:
            if not self._is_closed:
                self._is_closed = True
                self._lanes.close()
        self._thread.join()

    # -- the thread

    def _run(self) -> None:
        while self._lanes.wait():
            self._do(self._lanes.take())
        self._drop_connection()

    def _do(self, batch: list[Job[Any]]) -> None:
        """Answer every job of the batch, and of what comes while the server is away, within its patience."""
        waiting: Waiting = {id(job): job for job in batch}
        while waiting:
            try:
                self._perform(self._connection(), waiting)
            except Exception as error:
                self._heads.forget()
                if isinstance(error, psycopg.Error) and is_lost(error):
                    self._wait_for_server(error, waiting)
                else:
                    self._refuse(list(waiting.values()), error, waiting)

    def _perform(self, at: Context, waiting: Waiting) -> None:
        jobs = list(waiting.values())
        appends = [job for job in jobs if type(job) is Append]
        others = [job for job in jobs if type(job) is not Append]
        for job in others:
            if not isinstance(job, LATER):
                self._one(at, job, waiting)
        if appends:
            self._all(at, appends, waiting)
        for job in others:
            if isinstance(job, LATER):
                self._one(at, job, waiting)

    def _all(self, at: Context, appends: Sequence[Append], waiting: Waiting) -> None:
        """Appends together; where something is in the way of one of them, one by one."""
        try:
            for answers in append_all(at, appends):
                self._tell(at, answers, waiting)
        except psycopg.Error as error:
            if is_lost(error):
                raise
            at.heads.forget()
            for job in appends:
                if id(job) in waiting:
                    job.must_look = True
                    self._one(at, job, waiting)

    def _one(self, at: Context, job: Job[Any], waiting: Waiting) -> None:
        for attempt in range(1, TRIES + 1):
            try:
                if isinstance(job, Append):
                    for answers in append_all(at, [job]):
                        self._tell(at, answers, waiting)
                else:
                    self._tell(at, [(job, job.perform(at))], waiting)
                return
            except CheckreinError as refusal:
                return self._tell(at, [(job, refusal)], waiting)
            except psycopg.Error as error:
                at.heads.forget()
                if is_lost(error):
                    raise
                if not is_worth_another_look(error) or attempt == TRIES:
                    return self._refuse([job], error, waiting)

    def _tell(self, at: Context, answers: Sequence[tuple[Job[Any], Any]], waiting: Waiting) -> None:
        news, at.news = at.news, {}
        for job, _ in answers:
            waiting.pop(id(job), None)
        tell_all([(job.future, answer) for job, answer in answers])
        if news:
            self._on_commit(news)

    def _refuse(self, jobs: Sequence[Job[Any]], error: Exception, waiting: Waiting) -> None:
        reason = explain(error, self._target.shown)
        if not isinstance(error, psycopg.Error | CheckreinError):
            _log.error("a write has failed in an unforeseen way", exc_info=error)
        for job in jobs:
            waiting.pop(id(job), None)
        tell_all([(job.future, reason) for job in jobs])

    # -- a server that is away

    def _wait_for_server(self, error: Exception, waiting: Waiting) -> None:
        """Tell those whose patience is over, and leave the server alone for a moment."""
        self._drop_connection()
        if not self._lanes.is_empty():  # they wait, too
            self._lanes.has_verb()
            waiting |= {id(job): job for job in self._lanes.take()}
        now = time.monotonic()
        self._refuse([job for job in waiting.values() if job.deadline < now], error, waiting)
        for job in waiting.values():
            if isinstance(job, Append):
                job.must_look = True  # it may have been taken
        if waiting:
            time.sleep(PAUSE_SECONDS)

    def _connection(self) -> Context:
        if self._at is None:
            self._at = self._context(self._connect())
        return self._at

    def _context(self, session: Session) -> Context:
        return Context(session, self._heads, self._target, self._sender)

    def prepare_statements(self) -> None:
        """From the next connection on, and on this one."""
        if self._at is not None:
            self._at.session.prepare_statements()

    def _drop_connection(self) -> None:
        at, self._at = self._at, None
        self._heads.forget()
        if at is not None:
            at.session.close()
