"""A worker process: imports tools by name and performs one call at a time for the runtime that started it.

It answers every call with exactly one `end` message. SIGTERM raises `Aborted` in the tool, at the next moment when the
interpreter gets to it; the runtime does not rely on that and kills. It becomes the adoptive parent of all its
descendants (Linux), so that a daemon which left by a double fork is still found below it, also without any mark.

Whatever a tool prints goes to the runtime's standard error. Imports little: workers start often.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final

from checkrein.errors import MisuseError
from checkrein.runtime import call as calls
from checkrein.runtime import marking, values
from checkrein.runtime.call import Aborted, Call
from checkrein.runtime.channel import Channel, Head
from checkrein.runtime.loading import Target, enter_worker, load

_PR_SET_CHILD_SUBREAPER: Final = 36
_PARENT_LOOK_SECONDS: Final = 1.0
_PARENT_DEAD_SECONDS: Final = 3.0
"""The supervisor goes first: it finds everything only as long as this process still holds its children together."""
_THREAD_END_SECONDS: Final = 0.1


class Stop:
    """Turns SIGTERM into `Aborted`, unless the tool is shielded or a message is just being sent."""

    def __init__(self) -> None:
        self.is_performing = False
        self.asked = False
        self.raised = False
        """Whether the tool has been told: a result after that does not count as finished."""
        self.shields = 0
        self.quiet = 0

    def install(self) -> None:
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if self.is_performing:
            self.check()
        elif not self.quiet:
            os._exit(0)  # idle: nobody waits for anything

    def check(self) -> None:
        """Raise `Aborted` if the call is to stop and nothing stands in the way."""
        if self.asked and self.is_performing and not self.shields and not self.quiet:
            self.raised = True
            raise Aborted("The call is being stopped.")


class _Nothing:
    """What `checkpoint` returns: awaiting it is allowed and does nothing."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


class WorkerControl:
    """The tool's way to the runtime. Holding needs nothing here: the whole process is frozen from outside."""

    def __init__(self, stop: Stop, send: Callable[[Head], None]) -> None:
        self._stop = stop
        self._send = send

    def checkpoint(self) -> Awaitable[None]:
        self._stop.check()
        return _Nothing()

    def settle(self) -> None:
        self._send({"settled": True})

    def enter_shield(self, seconds: float) -> None:
        self._stop.check()
        self._stop.shields += 1
        self._send({"shield": seconds})

    def leave_shield(self) -> None:
        self._stop.shields -= 1
        self._send({"shield": None})
        self._stop.check()


class Worker:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._stop = Stop()
        self._sending = threading.RLock()
        self._loaded: dict[Target, Callable[..., Any]] = {}
        self._runtime = ""
        self._is_fork = False

    def serve(self) -> None:
        """Perform calls until the runtime goes away."""
        enter_worker()
        marking.install()
        os.register_at_fork(after_in_child=self._become_fork)
        self._stop.install()
        while (message := self._channel.receive()) is not None:
            head, body = message
            if "hello" in head:
                self._prepare(head["hello"])
            else:
                self._perform(head["call"], body)

    def _become_fork(self) -> None:
        """A tool has forked without exec: the child is no worker, and must never answer as one."""
        self._is_fork = True
        self._channel.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _prepare(self, hello: Head) -> None:
        sys.path[:] = hello["path"]
        sys.argv[:] = hello["argv"]
        self._runtime = hello["runtime"]
        for parts in hello["preload"]:
            with suppress(BaseException):  # the call that needs it will say what is wrong
                self._load(Target(*parts))
        self._send({"ready": True})

    def _load(self, target: Target) -> Callable[..., Any]:
        if target not in self._loaded:
            self._loaded[target] = load(target)
        return self._loaded[target]

    # -- one call

    def _perform(self, head: Head, arguments: bytes) -> None:
        surroundings = _Surroundings()
        mark = marking.Mark(self._runtime, head["mark"])
        os.environ.update(mark.variables())
        marking.mark_process(mark)
        threads: set[threading.Thread] = set()
        try:
            answer, body = self._run(head, arguments, threads)
        except Aborted:  # between the tool's end and ours
            answer, body = {"end": "aborted"}, b""
        if self._is_fork:
            os._exit(0)
        marking.mark_process(None)
        calls.enter_process_call(None)
        _flush()
        self._stop.quiet += 1
        answer["left"] = _left_threads(threads) or _has_children() or not surroundings.restore()
        answer["told"] = self._stop.raised
        self._send(answer, body)
        if self._stop.asked:
            self._vanish()
        self._stop.quiet -= 1
        self._stop.install()  # the tool may have put its own in place

    def _run(self, head: Head, arguments: bytes, threads: set[threading.Thread]) -> tuple[Head, bytes]:
        try:
            function = self._load(Target(*head["target"]))
            given = values.decode_arguments(function, arguments)
            control = WorkerControl(self._stop, self._send)
            call = Call(
                id=head["id"],
                key=head["key"],
                attempt=head["attempt"],
                arguments=values.shown_arguments(arguments),
                folder=Path(head["folder"]),
                control=control,
                deps=None if head["deps"] is None else lambda: self._deps(head["deps"]),
            )
            calls.enter_process_call(call)
            threads.update(threading.enumerate())
            self._stop.is_performing = True
            try:
                self._stop.check()
                result = function(**given)
            finally:
                self._stop.is_performing = False
            return {"end": "completed"}, values.encode_result(function, result)
        except Aborted as error:
            if self._stop.raised:
                return {"end": "aborted"}, b""
            return _failure(error), b""
        except BaseException as error:
            return _failure(error), b""

    def _deps(self, where: list[str] | str) -> Any:
        if isinstance(where, str):
            raise MisuseError(where)
        return calls.made_by(self._load(Target(*where)))

    def _send(self, head: Head, body: bytes = b"") -> None:
        # A signal in the middle of a message must not tear it.
        self._stop.quiet += 1
        try:
            with self._sending:
                self._channel.send(head, body)
        except OSError:
            os._exit(0)  # the runtime is gone, or this is a fork that thinks it is a worker
        finally:
            self._stop.quiet -= 1
        if threading.current_thread() is threading.main_thread():
            self._stop.check()

    def _vanish(self) -> None:
        """After a stop this worker is not used again. It stays until its children are gone, so that they can be found
        below it; the runtime puts an end to that."""
        while _has_children():
            time.sleep(0.005)
        os._exit(0)


class _Surroundings:
    """What a tool may change about its process, put back after the call."""

    def __init__(self) -> None:
        self._folder = os.getcwd()
        self._variables = dict(os.environ)
        self._mask = os.umask(0o077)
        os.umask(self._mask)

    def restore(self) -> bool:
        """False where that is not possible: the worker is then not used again."""
        try:
            os.chdir(self._folder)
        except OSError:
            return False
        os.umask(self._mask)
        if os.environ != self._variables:
            for name in os.environ.keys() - self._variables.keys():
                del os.environ[name]
            os.environ.update(self._variables)
        return True


def _failure(error: BaseException) -> Head:
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return {"end": "failed", "type": type(error).__name__, "message": str(error), "traceback": "".join(lines)}


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _left_threads(before: set[threading.Thread]) -> bool:
    """Whether the tool has left threads running; those that are just ending are waited for."""
    give_up = time.monotonic() + _THREAD_END_SECONDS
    for thread in threading.enumerate():
        if thread not in before and thread is not threading.current_thread():
            thread.join(max(0.0, give_up - time.monotonic()))
            if thread.is_alive():
                return True
    return False


def _has_children() -> bool:
    """Whether any child lives; the dead ones are reaped. With adopted descendants among them, none means none."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _adopt_orphans() -> None:
    """Let descendants whose parent dies become children of this process. Linux only; elsewhere nothing happens."""
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _watch_parent(parent: int) -> None:
    """If the runtime dies and nobody else cleans up, end this process and its group."""
    while os.getppid() == parent:
        time.sleep(_PARENT_LOOK_SECONDS)
    time.sleep(_PARENT_DEAD_SECONDS)
    os.killpg(0, signal.SIGKILL)


def main(descriptor: int, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _adopt_orphans()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    threading.Thread(target=_watch_parent, args=(parent,), name="checkrein-parent", daemon=True).start()
    Worker(Channel(descriptor)).serve()
    _flush()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
