"""Processes that may die: a few warm interpreters, and children forked from them.

Starting Python and importing the journal takes a third of a second; forking from an interpreter that has already done
so takes a few milliseconds. So each crash happens in a fork of a warm worker, and the workers run side by side.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CHILD_SECONDS: Final = 120.0
"""No child needs this long; one that does hangs, and that is a failure of what it ran."""

HUNG: Final = -1000
"""In place of an exit code: the child was still there after `CHILD_SECONDS`, and was killed."""


@contextmanager
def crew(preload: Path | None = None, workers: int | None = None) -> Iterator[ProcessPoolExecutor]:
    """A pool of warm interpreters, one per core, with a library preloaded if given. They end with the block."""
    before = os.environ.get("LD_PRELOAD")
    count = workers or os.cpu_count() or 1
    pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"), initializer=_warm_up)
    try:
        if preload is not None:
            os.environ["LD_PRELOAD"] = str(preload)
        # A pool starts its processes as work comes in: have it start all of them now, while the variable is set.
        for ready in [pool.submit(_idle, 0.3) for _ in range(count)]:
            ready.result(timeout=60)
        _restore("LD_PRELOAD", before)
        yield pool
    finally:
        _restore("LD_PRELOAD", before)
        pool.shutdown(wait=True, cancel_futures=True)


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _warm_up() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from tests.torture.crash import check, workload  # noqa: F401

    gc.freeze()


def _idle(seconds: float) -> None:
    """Keeps one worker busy, so that its neighbours are started as well."""
    select.select([], [], [], seconds)


def in_child(work: Callable[[], int | None], errors: Path) -> int:
    """Run `work` in a fork and wait for its end. Returns its exit code, minus the signal that ended it, or `HUNG`.

    What it prints to stderr, or raises, is in the file `errors`.
    """
    pid = start(work, errors)
    ended = _wait(pid, CHILD_SECONDS)
    code = end(pid)
    return code if ended else HUNG


def start(work: Callable[[], int | None], errors: Path) -> int:
    """Run `work` in a fork. Returns its pid at once; `end` must be called for it."""
    if pid := os.fork():
        return pid
    _be_the_child(work, errors)
    raise AssertionError("a child came back")


def end(pid: int, after_seconds: float = 0.0) -> int:
    """Kill the child after a while, if it is still there. Returns its exit code, or minus the signal that ended it."""
    if not _wait(pid, after_seconds):
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _wait(pid: int, seconds: float) -> bool:
    """Whether the child ended within so many seconds."""
    watch = os.pidfd_open(pid)
    try:
        return bool(select.select([watch], [], [], seconds)[0])
    finally:
        os.close(watch)


def _be_the_child(work: Callable[[], int | None], errors: Path) -> None:
    """Never returns. Ends by itself even if the parent does not live to end it."""
    code = 1
    try:
        signal.alarm(int(CHILD_SECONDS) + 5)
        fd = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(fd, 2)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        code = work() or 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
