"""The supervisor's child: watches one runtime, and ends what it has started when it is gone.

Run by path, with the standard library alone (`python -I -S watch.py PID STARTED MARK`); its input is a socket to the
runtime. It lives in a session of its own, ignores the signals of a terminal, and ends when its runtime says goodbye or
is dead and nothing of it is left.

The runtime may also ask to be killed: while *armed*, it must be heard from every so many seconds; and when another
process, its *parent*, is gone, it has so many seconds left to end by itself.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from types import ModuleType

if __name__ == "__main__":
    # The package's own `__init__` would import far more than this process needs.
    _here = os.path.dirname(os.path.abspath(__file__))
    for _name, _path in (("checkrein", os.path.dirname(_here)), ("checkrein.runtime", _here)):
        _package = ModuleType(_name)
        _package.__path__ = [_path]
        sys.modules[_name] = _package

from checkrein.runtime import table
from checkrein.runtime.lineage import Family, ending, walk
from checkrein.runtime.table import Row

RUNTIME = "CHECKREIN_RUNTIME"
_LINE = 0
_LOOK_SECONDS = 0.5
_AGAIN_SECONDS = (0.05, 0.2, 0.5)
"""After nobody was found it looks again: a child that was just being started carries its mark a moment later."""
_GIVE_UP_SECONDS = 60.0


class Watch:
    def __init__(self, pid: int, started: float, mark: str) -> None:
        self._runtime = table.row(pid)
        if self._runtime is not None and self._runtime.started != started:
            self._runtime = None
        self._family = Family(marks=((RUNTIME, mark),), since=started)
        self._armed_seconds: float | None = None
        self._heard_at = 0.0
        self._parent: Row | None = None
        self._parent_handle = -1
        self._grace_seconds = 0.0
        self._end_at: float | None = None
        self._buffer = b""
        self._poll = select.poll()
        self._poll.register(_LINE, select.POLLIN)
        self._wait_by_handle(pid)

    def _wait_by_handle(self, pid: int) -> None:
        """Be told of the runtime's death also while a fork of it holds the other end of the socket."""
        try:
            self._handle = os.pidfd_open(pid)
            self._poll.register(self._handle, select.POLLIN)
            self._look_seconds: float | None = None
        except (AttributeError, OSError):
            self._handle = -1
            self._look_seconds = _LOOK_SECONDS

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
            if self._is_late():
                table.send(self._runtime, signal.SIGKILL)
                return False
        return False

    def _milliseconds(self) -> int | None:
        waits = [] if self._look_seconds is None else [self._look_seconds]
        if self._armed_seconds is not None:
            waits.append(self._heard_at + self._armed_seconds - time.monotonic())
        if self._end_at is not None:
            waits.append(self._end_at - time.monotonic())
        return max(0, int(min(waits) * 1000) + 1) if waits else None

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
        self._heard_at = time.monotonic()
        if word == b"arm":
            self._armed_seconds = float(value)
        elif word == b"disarm":
            self._armed_seconds = None
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
            self._look_seconds = _LOOK_SECONDS

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
        now: Row | None = table.row(self._runtime.pid)
        return now is not None and now.lives and now.key == self._runtime.key

    def _is_late(self) -> bool:
        now = time.monotonic()
        if self._end_at is not None and now > self._end_at:
            return True
        return self._armed_seconds is not None and now > self._heard_at + self._armed_seconds

    def clean_up(self) -> None:
        """End every process that carries the runtime's mark or comes from one that does, until none is left."""
        give_up = time.monotonic() + _GIVE_UP_SECONDS
        for pause in (*_AGAIN_SECONDS, 0.0):
            while walk(ending(self._family, until=lambda: 0.0)) and time.monotonic() < give_up:
                pass
            time.sleep(pause)


def main(pid: int, started: float, mark: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    watch = Watch(pid, started, mark)
    os.write(_LINE, b"ready\n")
    if not watch.watch():
        watch.clean_up()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
