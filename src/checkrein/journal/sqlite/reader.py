"""One thread that reads, and looks out for what other processes commit while somebody follows.

Questions are answered in the order they were asked. The look-out is a question like the others: once it was asked for,
every later answer is no older than its beginning, so nothing can be committed unseen in between.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

from checkrein.journal import refusals
from checkrein.journal.bells import Tower
from checkrein.journal.sqlite import trouble
from checkrein.journal.sqlite.answers import tell_all
from checkrein.journal.sqlite.jobs import Transaction
from checkrein.journal.sqlite.lookout import Lookout

P = ParamSpec("P")
T = TypeVar("T")
_Question = tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]


class Reader:
    def __init__(self, path: str, db: sqlite3.Connection, tower: Tower) -> None:
        self._path = path
        self._db = db
        self._lookout = Lookout(self._db, tower)
        self._questions: SimpleQueue[_Question | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"checkrein-reader {path}", daemon=True)
        self._thread.start()

    # -- called by tasks

    def ask(
        self, question: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """The answer of `question`, which gets a connection that sees everything committed so far."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._gate:
            self.check_open()
            self._questions.put((lambda db: question(db, *args, **kwargs), future))
        return future

    def check_open(self) -> None:
        if self._is_closed:
            raise refusals.closed()

    def look_out(self) -> None:
        """Tell the tower from now on what other processes commit, as long as somebody listens."""
        self.ask(lambda _: self._lookout.begin())

    def committed(self, tx: Transaction) -> None:
        """Called by the writer: what this process has committed need not be looked for."""
        self._lookout.committed(tx)

    def close(self) -> None:
        """Answer what was asked, and end. Blocks until then."""
        with self._gate:
            if not self._is_closed:
                self._is_closed = True
                self._questions.put(None)
        self._thread.join()

    # -- the thread

    def _run(self) -> None:
        is_open = True
        while is_open:
            with suppress(Empty):
                question = self._questions.get(timeout=self._lookout.wait_seconds())
                is_open = question is not None and self._answer(*question)
            self._lookout.look()
        self._db.close()

    def _answer(self, question: Callable[[sqlite3.Connection], Any], future: asyncio.Future[Any]) -> bool:
        answer: Any
        try:
            answer = question(self._db)
        except sqlite3.Error as error:
            answer = trouble.explain(error, self._path)
        except Exception as error:
            answer = error
        tell_all([(future, answer)])
        return True
