"""The supervisor's child: watchdog of one runtime from outside; when that is gone, it ends the orphans it has left.

Run by path, with the standard library alone (`python -I -S supervisor_main.py PID STARTED MARK`); its input is a socket
to the runtime. It lives in a session of its own, ignores the signals of a terminal, and ends when its runtime says
goodbye or is dead and nothing of it is left.

It is also the one watchdog. While a stop waits it asks the runtime's event loop for a heartbeat, again and again; if
none comes within the grace the runtime is killed. It needs nothing of the runtime for that, so code in C that keeps
the interpreter, or a process that stands still, is ended like any other. On a machine that has more to do than it can,
a runtime may only be waiting for a processor: that time does not count, up to a limit. That a stop waits it is told by
whoever accepted it, with a signal, or by the runtime; a runtime that is busy while nobody asks anything of it is left
alone.

An operator's halt it finds by itself, whoever has put it up: the flags of this host, and the operations in a store that
is a file, are looked at every second. From then on the runtime has less time to answer.

When another process, the runtime's *parent*, is gone, the runtime has so many seconds left to end by itself.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress
from types import ModuleType
from urllib.parse import quote

if __name__ == "__main__":
    # The package's own `__init__` would import far more than this process needs.
    _here = os.path.dirname(os.path.abspath(__file__))
    for _name, _path in (("checkrein", os.path.dirname(_here)), ("checkrein.processes", _here)):
        _package = ModuleType(_name)
        _package.__path__ = [_path]
        sys.modules[_name] = _package

from checkrein.processes import halt_flags, table
from checkrein.processes.families import Family, ending, walk
from checkrein.processes.table import ProcessInfo
from checkrein.timings import (
    HALT_GRACE_SECONDS,
    HALT_LOOK_SECONDS,
    HEARTBEAT_SECONDS,
    SUPERVISOR_AGAIN_SECONDS,
    SUPERVISOR_LOOK_SECONDS,
    WATCHDOG_GRACE_SECONDS,
    WATCHDOG_LIMIT_SECONDS,
)

RUNTIME = "CHECKREIN_RUNTIME"
STOP_WAITS = signal.SIGURG
"""Sent by whoever has accepted a stop. By default it is ignored: one that comes too early does no harm."""
HALT_WAITS = signal.SIGWINCH
"""The same of a halt."""
_ARMED_SECONDS = 5.0
"""So long heartbeats are asked for at least: by then the runtime has read of the stop, and says that it waits."""
_LINE = 0
_STDERR = 2
_GIVE_UP_SECONDS = 60.0


class ProcessorWait:
    """How long a process has waited for a processor since this was made: that of its threads that waited the longest.

    Which thread could not go on because of which other is not known, so whichever waits is believed.
    """

    def __init__(self, pid: int, now: float) -> None:
        self._pid = pid
        self._looked_at = now
        self._first = table.thread_times(pid)
        self._last = self._first
        self._since_it_ran: dict[int, float] = {}
        """Of threads that wait now, as far as it was seen: the system counts that when they run again."""

    def seconds(self, now: float) -> float:
        """To be asked often: what a thread waits that has not run again is known only from one look to the next."""
        threads, last = table.thread_times(self._pid), self._last
        passed, self._looked_at, self._last = now - self._looked_at, now, threads
        self._since_it_ran = {
            one: self._since_it_ran.get(one, 0.0) + passed
            for one, times in threads.items()
            if one in last and times.is_ready and last[one].is_ready and times.ran_ns == last[one].ran_ns
        }
        waits = [
            (times.waited_ns - self._first[one].waited_ns) / 1e9 + self._since_it_ran.get(one, 0.0)
            for one, times in threads.items()
            if one in self._first
        ]
        return max(waits, default=0.0)


class HaltLook:
    """Whether something was halted since the last look: a flag of this host, or an operation in a file."""

    def __init__(self, store: str) -> None:
        self._flags = halt_flags.Flags(store)
        self._path = "" if store.startswith(("postgres", "memory")) else store.removeprefix("sqlite:///")
        self._up = self._flags.names()
        self._seq = self._last_operation()
        self.next_look = 0.0

    def is_news(self, now: float) -> bool:
        if now < self.next_look:
            return False
        self.next_look = now + HALT_LOOK_SECONDS
        up, seq = self._flags.names(), self._last_operation()
        is_news = bool(up - self._up) or seq > self._seq
        self._up, self._seq = up, seq
        return is_news

    def _last_operation(self) -> int:
        if not self._path:
            return 0
        import sqlite3  # only here: a supervisor is small

        try:
            db = sqlite3.connect(f"file:{quote(self._path)}?mode=ro", uri=True, timeout=0.1)
            try:
                return int(db.execute("SELECT ifnull(max(seq), 0) FROM operations").fetchone()[0])
            finally:
                db.close()
        except sqlite3.Error:  # away, or locked for a moment: looked at again in a second
            return self._seq if hasattr(self, "_seq") else 0


class Watch:
    def __init__(self, pid: int, started: float, mark: str) -> None:
        self._runtime = table.row(pid)
        if self._runtime is not None and self._runtime.started != started:
            self._runtime = None
        self._family = Family(marks=((RUNTIME, mark),), since=started)
        self._armed_until: float | None = None
        self._halt_look: HaltLook | None = None
        self._grace = WATCHDOG_GRACE_SECONDS
        self._waits_for_heartbeat = False
        self._silent_seconds = 0.0
        self._unseen_seconds = 0.0
        self._processor_wait: ProcessorWait | None = None
        self._looked_at = 0.0
        self._parent: ProcessInfo | None = None
        self._parent_handle = -1
        self._grace_seconds = 0.0
        self._end_at: float | None = None
        self._buffer = b""
        self._poll = select.poll()
        self._poll.register(_LINE, select.POLLIN)
        self._signals = _wake_by_signal(STOP_WAITS, HALT_WAITS)
        self._poll.register(self._signals, select.POLLIN)
        self._wait_by_handle(pid)
        self.why_killed = ""
        """Why the runtime was killed from here; empty when it ended otherwise."""

    def _wait_by_handle(self, pid: int) -> None:
        """Be told of the runtime's death also while a fork of it holds the other end of the socket."""
        try:
            self._handle = os.pidfd_open(pid)
            self._poll.register(self._handle, select.POLLIN)
            self._look_seconds: float | None = None
        except (AttributeError, OSError):
            self._handle = -1
            self._look_seconds = SUPERVISOR_LOOK_SECONDS

    def watch(self) -> bool:
        """Return when there is nothing left to watch: True if the runtime said goodbye."""
        while self._runtime is not None:
            events = dict(self._poll.poll(self._milliseconds()))
            if _LINE in events and not self._hear():
                return self._buffer == b"bye"
            if self._handle in events or not self._runtime_lives():
                return False
            if self._parent_handle in events or not self._parent_lives():
                self._parent_is_gone()
            if self._signals in events:
                self._stop_waits(is_halt=HALT_WAITS in os.read(self._signals, 4096))
            if self._halt_look is not None and self._halt_look.is_news(time.monotonic()):
                self._stop_waits(is_halt=True)
            if self._is_silent():
                return self._kill("gave no heartbeat while a stop waited for it")
            if self._end_at is not None and time.monotonic() > self._end_at:
                return self._kill("did not end after the process it belongs to was gone")
        return False

    def _milliseconds(self) -> int | None:
        waits = [] if self._look_seconds is None else [self._look_seconds]
        if self._halt_look is not None:
            waits.append(max(0.0, self._halt_look.next_look - time.monotonic()))
        if self._armed_until is not None:
            waits.append(HEARTBEAT_SECONDS)
        if self._end_at is not None:
            waits.append(self._end_at - time.monotonic())
        return max(0, int(min(waits) * 1000) + 1) if waits else None

    # -- the watchdog

    def _stop_waits(self, *, is_halt: bool = False) -> None:
        now = time.monotonic()
        if is_halt:
            self._grace = HALT_GRACE_SECONDS
        if self._armed_until is None:
            self._looked_at = now
        self._armed_until = now + _ARMED_SECONDS
        self._ask_for_heartbeat()

    def _ask_for_heartbeat(self) -> None:
        if not self._waits_for_heartbeat:
            self._waits_for_heartbeat, self._silent_seconds, self._unseen_seconds = True, 0.0, 0.0
            if self._runtime is not None:
                self._processor_wait = ProcessorWait(self._runtime.pid, time.monotonic())
            with suppress(OSError):  # it is gone, and that is noticed elsewhere
                os.write(_LINE, b"heartbeat\n")

    def _hear_heartbeat(self, has_waiting_stop: bool) -> None:
        self._waits_for_heartbeat = False
        if self._armed_until is not None and not has_waiting_stop and time.monotonic() > self._armed_until:
            self._armed_until = None
            self._grace = WATCHDOG_GRACE_SECONDS

    def _is_silent(self) -> bool:
        """Whether the runtime owes a heartbeat for longer than the grace. Asks for the next one if it owes none."""
        if self._armed_until is None:
            return False
        now = time.monotonic()
        # If this process itself stood still, so may have the runtime: that time does not count.
        passed, self._looked_at = now - self._looked_at, now
        seen = min(passed, 2 * HEARTBEAT_SECONDS)
        self._silent_seconds += seen
        self._unseen_seconds += passed - seen
        if self._waits_for_heartbeat:
            return self._has_not_answered(now)
        if self._silent_seconds >= HEARTBEAT_SECONDS:
            self._ask_for_heartbeat()
        return False

    def _has_not_answered(self, now: float) -> bool:
        """Whether it could have answered for longer than the grace, or has not for longer than the limit."""
        waited = 0.0 if self._processor_wait is None else self._processor_wait.seconds(now)
        could_answer = self._silent_seconds - max(0.0, waited - self._unseen_seconds)
        return could_answer >= self._grace or self._silent_seconds >= WATCHDOG_LIMIT_SECONDS

    # -- what the runtime says

    def _hear(self) -> bool:
        """Take what the runtime says. False when it said goodbye, or says nothing any more."""
        try:
            piece = os.read(_LINE, 4096)
        except OSError:
            piece = b""
        if not piece:
            self._buffer = b""
            return False
        *lines, self._buffer = (self._buffer + piece).split(b"\n")
        for line in lines:
            if line == b"bye":
                self._buffer = line
                return False
            self._obey(line)
        return True

    def _obey(self, line: bytes) -> None:
        word, _, value = line.partition(b" ")
        if word == b"heartbeat":
            self._hear_heartbeat(value == b"stop waits")
        elif word == b"stop":
            self._stop_waits()
        elif word == b"store":
            self._halt_look = HaltLook(value.decode("utf-8", "surrogateescape"))
        elif word == b"parent":
            self._watch_parent(*value.split())

    def _watch_parent(self, pid: bytes, started: bytes, seconds: bytes) -> None:
        self._grace_seconds = float(seconds)
        self._parent = table.row(int(pid))
        if self._parent is None or self._parent.started != float(started):
            return self._parent_is_gone()
        try:
            self._parent_handle = os.pidfd_open(self._parent.pid)
            self._poll.register(self._parent_handle, select.POLLIN)
        except (AttributeError, OSError):
            self._look_seconds = SUPERVISOR_LOOK_SECONDS

    def _parent_lives(self) -> bool:
        if self._parent is None or self._look_seconds is None:
            return True
        now = table.row(self._parent.pid)
        return now is not None and now.lives and now.key == self._parent.key

    def _parent_is_gone(self) -> None:
        self._parent = None
        self._end_at = time.monotonic() + self._grace_seconds
        if self._parent_handle >= 0:
            self._poll.unregister(self._parent_handle)
            os.close(self._parent_handle)
            self._parent_handle = -1

    def _runtime_lives(self) -> bool:
        if self._look_seconds is None or self._runtime is None:
            return True
        now: ProcessInfo | None = table.row(self._runtime.pid)
        return now is not None and now.lives and now.key == self._runtime.key

    def _kill(self, why: str) -> bool:
        if self._runtime is not None and table.send(self._runtime, signal.SIGKILL):
            self.why_killed = f"process {self._runtime.pid} {why}, and was killed; what it was doing is in doubt"
        return False

    def clean_up(self) -> None:
        """End every process that carries the runtime's mark or comes from one that does, until none is left."""
        give_up = time.monotonic() + _GIVE_UP_SECONDS
        for pause in (*SUPERVISOR_AGAIN_SECONDS, 0.0):
            while walk(ending(self._family, until=lambda: 0.0)) and time.monotonic() < give_up:
                pass
            time.sleep(pause)


def _wake_by_signal(*numbers: int) -> int:
    """A descriptor from which the number of each signal that has come can be read."""
    read, write = os.pipe()
    for end in (read, write):
        os.set_blocking(end, False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _say(sentence: str) -> None:
    """For whoever reads the runtime's standard error, if anybody does: nobody is waited for."""
    poll = select.poll()
    poll.register(_STDERR, select.POLLOUT)
    with suppress(OSError):  # the terminal is gone
        if poll.poll(0):
            os.write(_STDERR, f"checkrein: {sentence}.\n".encode())


def main(pid: int, started: float, mark: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    watch = Watch(pid, started, mark)
    with suppress(OSError):  # the runtime may be dead already: then there is only to clean up after it
        os.write(_LINE, b"ready\n")
    if not watch.watch():
        watch.clean_up()
        if watch.why_killed:
            _say(watch.why_killed)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
