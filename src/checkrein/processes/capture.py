"""What tools and agents print while a terminal belongs to a run.

Worker processes inherit our standard error, and an async tool may print to our standard output. Neither may write to
the terminal itself: an escape in it would act there, and would tear a full screen apart. So both go into a pipe, are
read line by line, and are printed clean. We ourselves write to the terminal as it was.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO


class Taps:
    """Where lines go that were printed; may be changed while it lives. Told from a thread of its own."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self.out: TextIO = sys.stdout
        self.err: TextIO = sys.stderr


@contextmanager
def caught(tell: Callable[[str], None]) -> Iterator[Taps]:
    """While inside, whatever is written to file descriptors 1 and 2 is told line by line.

    `sys.__stdout__` and `sys.__stderr__`, and `out` and `err` of what is given, lead to where these used to lead.
    """
    taps = Taps(tell)
    if not (_is_open(1) and _is_open(2)):
        yield taps
        return
    sys.stdout.flush()
    sys.stderr.flush()
    before = sys.__stdout__, sys.__stderr__
    kept = os.dup(1), os.dup(2)
    read, write = os.pipe()
    taps.out, taps.err = _writer(kept[0]), _writer(kept[1])
    sys.__stdout__, sys.__stderr__ = taps.out, taps.err  # type: ignore[misc,assignment]
    os.dup2(write, 1)
    os.dup2(write, 2)
    os.close(write)
    reader = threading.Thread(target=_read, args=(read, taps), daemon=True, name="prints")
    reader.start()
    try:
        yield taps
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        _flush(taps.out)
        _flush(taps.err)
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        sys.__stdout__, sys.__stderr__ = before  # type: ignore[misc]
        # A process that outlives us may hold the other end; what it prints then is nobody's business here.
        reader.join(timeout=0.5)
        for fd in kept:
            os.close(fd)


def _read(fd: int, taps: Taps) -> None:
    with open(fd, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            taps.tell(line.rstrip("\n"))


def _writer(fd: int) -> TextIO:
    return open(fd, "w", encoding="utf-8", errors="replace", closefd=False)


def _flush(stream: TextIO) -> None:
    with suppress(OSError):
        stream.flush()


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
