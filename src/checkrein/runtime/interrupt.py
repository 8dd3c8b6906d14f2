"""Raising `Aborted` in a thread that runs a tool's function, from outside.

The interpreter raises it when that thread next executes a Python instruction: a thread inside a blocking system call or
a long C function hears of it only afterwards.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from checkrein.runtime.call import Aborted

T = TypeVar("T")

_set_exception: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc


class Interruptible:
    """One run of a function that can be interrupted, in whatever thread it happens to run.

    Nothing is ever raised in that thread before the function begins or once `run` has returned: a thread of a pool goes
    on to somebody else's work. `told` is called, in the thread, when the function hears of it.
    """

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._is_closing = False
        self._is_stopped = False
        self.has_begun = False
        # The interpreter makes the exception out of the class at the moment somebody can see it.
        self._error = type(
            "Aborted", (Aborted,), {"__init__": lambda error, *_: told(), "__module__": Aborted.__module__}
        )

    def run(self, function: Callable[[], T]) -> T:
        """Run the function in this thread. Raises `Aborted`, without having begun, if it was stopped before."""
        try:
            self._open()
            return function()
        finally:
            # From here on at most one more interruption can be on its way, so the second try is not interrupted.
            self._is_closing = True
            try:
                self._close()
            except Aborted:
                self._close()

    def stop(self) -> None:
        """Interrupt it now if it runs, and let it not begin otherwise. May be repeated: the function may have caught
        the exception and gone on."""
        with self._lock:
            self._is_stopped = True
            if self._thread is not None and not self._is_closing:
                _set_exception(ctypes.c_ulong(self._thread), ctypes.py_object(self._error))

    def _open(self) -> None:
        with self._lock:
            if self._is_stopped:
                self._told()
                raise Aborted("The call was stopped before this began.")
            self.has_begun = True
            self._thread = threading.get_ident()

    def _close(self) -> None:
        with self._lock:
            self._thread = None
            nothing: Any = None
            _set_exception(ctypes.c_ulong(threading.get_ident()), nothing)
