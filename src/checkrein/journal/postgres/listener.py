"""The thread that hears what other processes commit, and renews leases so that a long batch does not delay them.

The server tells it which runs have news (NOTIFY); whoever follows one of them then reads it. A pooler in transaction
mode swallows that. So it first has something said to itself: what does not come within two seconds is not heard at
all, and it looks four times a second instead, unless it is given an address of its own that leads past the pooler. The
writer says it, and it counts only if it comes while nothing was asked here: where a pooler happens to give both the
same connection to the server, it would come back with an answer, and nothing of others ever would.

After a connection was lost, whoever follows looks for itself, and the runs that have changed meanwhile are told.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import psycopg
from psycopg import sql

from checkrein.journal import refusals
from checkrein.journal.postgres import reads
from checkrein.journal.postgres.connection import Session, Target, explain, is_lost
from checkrein.journal.postgres.halts import HALT_MARK
from checkrein.journal.postgres.leases import ServerClock
from checkrein.journal.postgres.writes.job import KEYS_MARK, TEXT_MARK
from checkrein.journal.queue import tell_all
from checkrein.journal.subscriptions import Subscriptions

_log = logging.getLogger(__name__)

T = TypeVar("T")

ECHO_SECONDS: Final = 2.0
REST_SECONDS: Final = 0.004
"""After it has heard something it lets others speak for so long, and then hears all of it: each time wakes a thread
here, which the event loop has to make room for. What comes after a silence is heard at once."""
POLL_SECONDS: Final = 0.25
CLOCK_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.1
OVERLAP_SECONDS: Final = 10.0
"""How much longer than it was not heard changes are looked for: a statement may have begun before, and end after."""

ASK_AGAIN_SECONDS: Final = 10.0
"""After so long without any verdict, as when the writer could not reach the server, it is tried once more."""

LISTEN: Final = "LISTEN {}"
UNLISTEN: Final = "UNLISTEN {}"

Echo = Callable[[str, Callable[[], None]], None]
"""Has something told to all who listen, by another connection; calls back once that is committed."""


class _Request(NamedTuple):
    perform: Callable[[Session], Any]
    future: asyncio.Future[Any]
    deadline: float


class Listener:
    """`on_heard` is called once it is known that the server's notifications arrive, by an `echo`.

    `on_keys` is called when some key may be good no longer. Both are called in this thread.
    """

    def __init__(
        self,
        target: Target,
        sender: str,
        tower: Subscriptions,
        clock: ServerClock,
        echo: Echo,
        on_heard: Callable[[], None],
        on_keys: Callable[[], None],
    ) -> None:
        self._target = target
        self._sender = sender
        self._tower = tower
        self._clock = clock
        self._echo = echo
        self._on_heard = on_heard
        self._on_keys = on_keys
        self._requests: deque[_Request] = deque()
        self._gate = threading.Lock()
        self._is_closed = False
        self._woken, self._waker = os.pipe()
        self._last = time.monotonic()
        """When it was last known that nothing was missed."""
        self._ask_echo_at: float | None = None
        """When an echo is asked for next; None: it was heard, or is known not to be."""
        self._asked = 0
        self._echo_until: float | None = None
        self._is_deaf = False
        self._notes: list[str] = []
        """What came with the answers of statements."""
        self._seen: dict[str, int] = {}
        self._next_look = self._next_clock = self._next_hear = 0.0
        self._session: Session | None = self._connect()
        self._thread = threading.Thread(target=self._run, name=f"checkrein-listener {target.shown}", daemon=True)
        self._thread.start()

    # -- called by tasks

    def ask(self, perform: Callable[[Session], T], patience: float) -> asyncio.Future[T]:
        """Have something short done on this connection, which nothing keeps waiting."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._gate:
            if self._is_closed:
                raise refusals.closed()
            self._requests.append(_Request(perform, future, time.monotonic() + patience))
            self._wake()
        return future

    def is_sure_to_hear(self) -> bool:
        """Whether it is known that what others say arrives."""
        return self._session is not None and not self._is_deaf and not self._awaits_echo()

    def close(self) -> None:
        """Answer what was asked, and end. Blocks until then."""
        with self._gate:
            if not self._is_closed:
                self._is_closed = True
                self._wake()
        self._thread.join()

    def _wake(self) -> None:
        with suppress(OSError):
            os.write(self._waker, b"\0")

    # -- the thread

    def _run(self) -> None:
        while not self._is_closed or self._requests:
            try:
                if self._session is None:
                    self._session = self._connect()
                    self._catch_up(self._session)
                self._turn(self._session)
            except psycopg.Error as error:
                self._lose_connection(error)
            except Exception:
                _log.exception("the listener has failed in an unforeseen way and goes on")
                time.sleep(PAUSE_SECONDS)
        self._drop_connection()
        os.close(self._woken)
        os.close(self._waker)

    def _connect(self) -> Session:
        session = Session(self._target)
        # What arrives with the answer to a statement is given to this, what arrives by itself is fetched in `_hear`.
        session.connection.add_notify_handler(lambda note: self._notes.append(note.payload))
        try:
            session.connection.execute(sql.SQL(LISTEN).format(sql.Identifier(self._target.channel)))
        except BaseException:
            session.close()
            raise
        self._ask_echo_at, self._echo_until = time.monotonic(), None
        self._asked += 1  # what was asked for on an earlier connection says nothing about this one
        return session

    def _echo_sent(self, asked: int) -> None:
        """Called in the writer's thread, perhaps after the echo was heard."""
        if asked == self._asked:
            self._echo_until = time.monotonic() + ECHO_SECONDS
            self._wake()

    def _awaits_echo(self) -> bool:
        return self._ask_echo_at is not None

    def _turn(self, session: Session) -> None:
        """Wait for something to happen, and see to it."""
        while self._requests:
            self._answer(session, self._requests[0])
            self._requests.popleft()
        self._hear(session)
        now = time.monotonic()
        if now >= self._next_clock:
            self._next_clock = now + CLOCK_SECONDS
            self._clock.measure(session)
        if self._ask_echo_at is not None and now >= self._ask_echo_at:
            self._ask_echo_at = now + ASK_AGAIN_SECONDS
            self._asked += 1
            self._echo(f"={self._sender}", partial(self._echo_sent, self._asked))
        if self._awaits_echo() and now > (self._echo_until or now):
            self._go_deaf(session)
        if self._is_deaf and now >= self._next_look:
            self._look(session, now)
        self._wait(session)

    def _wait(self, session: Session) -> None:
        if self._notes:
            return
        times = [self._next_clock]
        times += [at for at in (self._ask_echo_at, self._echo_until) if at is not None] if self._awaits_echo() else []
        times += [self._next_look] if self._is_deaf else []
        now = time.monotonic()
        if now < self._next_hear:
            if self._is_woken([], self._next_hear - now):
                return
            now = time.monotonic()
        self._is_woken([session.connection.pgconn.socket], max(0.0, min(times) - now))

    def _is_woken(self, sockets: list[int], seconds: float) -> bool:
        """Wait for one of `sockets`, or for somebody who asks for something."""
        ready, _, _ = select.select([*sockets, self._woken], [], [], seconds)
        if self._woken in ready:
            os.read(self._woken, 4096)
        return self._woken in ready

    def _answer(self, session: Session, request: _Request) -> None:
        try:
            answer = request.perform(session)
        except psycopg.Error as error:
            if is_lost(error):
                raise
            answer = explain(error, self._target.shown)
        except Exception as error:
            answer = error
        tell_all([(request.future, answer)])

    def _hear(self, session: Session) -> None:
        connection = session.connection.pgconn
        connection.consume_input()
        with_answers, self._notes = self._notes, []
        alone: list[str] = []
        while (note := connection.notifies()) is not None:
            alone.append(note.extra.decode())
        echo = f"={self._sender}"
        if echo in alone:
            self._ask_echo_at = None
            self._is_deaf = False
            self._on_heard()
        elif echo in with_answers and self._awaits_echo():
            self._ask_echo_at, self._echo_until = time.monotonic(), None
        if with_answers or alone:
            self._next_hear = time.monotonic() + REST_SECONDS
        runs: set[str] = set()
        texts: set[str] | None = None
        is_unnamed = False
        for text in with_answers + alone:
            sender, _, named = text.partition(" ")
            if sender.startswith(TEXT_MARK):
                texts = (texts or set()).union(named.split(" ") if named else ("",))
            elif sender.startswith(KEYS_MARK):
                self._on_keys()
            elif sender.startswith(HALT_MARK):
                self._tower.announce_operations()
            elif sender != self._sender and not sender.startswith("="):
                runs.update(named.split(" ") if named else ())
                is_unnamed |= not named
        if not self._is_deaf:
            self._last = time.monotonic()
        if is_unnamed:
            runs.update(reads.changed(session, OVERLAP_SECONDS))
        if runs:
            self._tower.announce(dict.fromkeys(runs, ()))
        if texts:
            self._tower.announce_texts(None if "" in texts else texts)

    # -- what was not told

    def _go_deaf(self, session: Session) -> None:
        self._ask_echo_at = None
        # As well as it goes: a pooler tells whoever comes next what was asked for here.
        session.connection.execute(sql.SQL(UNLISTEN).format(sql.Identifier(self._target.channel)))
        if not self._is_deaf:
            self._is_deaf = True
            _log.warning(
                "%s does not pass notifications on, as it is with a pooler in transaction mode: what other processes "
                "write is looked for every %d ms. Give an address that leads past it with --listen-store.",
                self._target.shown,
                POLL_SECONDS * 1000,
            )

    def _look(self, session: Session, now: float) -> None:
        self._next_look = now + POLL_SECONDS
        if self._tower.is_listened_to:
            self._announce_changes(session, now)

    def _catch_up(self, session: Session) -> None:
        """The connection was lost: nobody knows what was said meanwhile."""
        self._on_keys()
        self._tower.announce_operations()
        self._announce_changes(session, time.monotonic())
        self._tower.ring_all()

    def _announce_changes(self, session: Session, now: float) -> None:
        changed = reads.changed(session, now - self._last + OVERLAP_SECONDS)
        news = {run: () for run, seq in changed.items() if self._seen.get(run) != seq}
        self._seen, self._last = changed, now
        if news:
            self._tower.announce(news)

    # -- a server that is away

    def _lose_connection(self, error: psycopg.Error) -> None:
        self._drop_connection()
        now = time.monotonic()
        while self._requests and (self._is_closed or self._requests[0].deadline < now):
            tell_all([(self._requests.popleft().future, explain(error, self._target.shown))])
        if not self._is_closed:
            time.sleep(PAUSE_SECONDS)

    def _drop_connection(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
