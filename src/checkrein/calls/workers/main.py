"""A worker process: imports tools by name and performs one call at a time for the runtime that started it.

It answers every call with exactly one `end` message. A stop is announced on its channel, and then SIGTERM raises
`Aborted` in the tool, at the next moment when the interpreter gets to it; the runtime does not rely on that and kills.
A SIGTERM that its runtime has not announced is none of its business: whoever ends a whole service sends one to every
process of it, and the runtime may want to let the call finish. It becomes the adoptive parent of all its
descendants (Linux), so that a daemon which left by a double fork is still found below it, also without any mark.

Whatever a tool prints goes to the runtime's standard error. Imports little: workers start often.
"""

from __future__ import annotations

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

from checkrein.calls import arguments as values
from checkrein.calls import current as calls
from checkrein.calls.current import Aborted, Call
from checkrein.calls.imports import Target, enter_worker, load
from checkrein.errors import MisuseError, said_by
from checkrein.processes import env_marks, limit_marks, orphans
from checkrein.processes.ipc import Channel, Head, check_length
from checkrein.timings import ORPHAN_SECONDS

_PARENT_LOOK_SECONDS: Final = 1.0
_THREAD_END_SECONDS: Final = 0.1
_MESSAGE_CHARS: Final = 50_000
"""The most of what an error says, and of its traceback: the runtime takes heads of a limited length only."""


class Stop:
    """Turns SIGTERM into `Aborted` once the stop is announced, unless the tool is shielded or a message is just being
    sent. `is_announced` looks whether it is, without waiting."""

    def __init__(self, is_announced: Callable[[], bool]) -> None:
        self._is_announced = is_announced
        self._is_signalled = False
        self._looking = threading.Lock()
        self.is_performing = False
        self.asked = False
        self.raised = False
        """Whether the tool has been told: a result after that does not count as finished."""
        self.shields = 0
        self.quiet = 0

    def install(self) -> None:
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._is_signalled = True
        # Between calls the channel is being read, and what it says is heard there.
        if self.is_performing:
            self.check()

    def check(self) -> None:
        """Raise `Aborted` if the call is to stop and nothing stands in the way."""
        if self.is_performing and not self.shields and not self.quiet and self.look():
            self.raised = True
            raise Aborted("The call is being stopped.")

    def look(self) -> bool:
        """Whether the call is to stop. Only while one is performed."""
        # The quiet keeps a signal from reading the same channel in the middle of this; one that comes then is not lost.
        self.quiet += 1
        try:
            with self._looking:
                self._is_signalled = True
                while self._is_signalled and not self.asked:
                    self._is_signalled = False
                    self.asked = self._is_announced()
        finally:
            self.quiet -= 1
        return self.asked


class _Nothing:
    """What `checkpoint` returns: awaiting it is allowed and does nothing."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


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
        self._stop = Stop(self._is_stop_announced)
        self._sending = threading.RLock()
        self._loaded: dict[Target, Callable[..., Any]] = {}
        self._runtime = ""
        self._is_fork = False

    def serve(self) -> None:
        """Perform calls until the runtime goes away."""
        enter_worker()
        env_marks.install()
        os.register_at_fork(after_in_child=self._become_fork)
        self._stop.install()
        while (message := self._channel.receive()) is not None:
            head, body = message
            if "hello" in head:
                self._prepare(head["hello"])
            elif "call" in head:
                self._perform(head["call"], body)
            elif "nonce" in head:
                self._send(
                    {"nonce": head["nonce"]}
                )  # here, so that it says: the call is over, and nothing else goes on
            else:
                self._vanish()  # a stop that came too late for its call

    def _is_stop_announced(self) -> bool:
        return not self._is_fork and any("stop" in head for head, _ in self._channel.arrived())

    def _become_fork(self) -> None:
        """A tool has forked without exec: the child is no worker, and must never answer as one."""
        self._is_fork = True
        self._channel.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _prepare(self, hello: Head) -> None:
        sys.path[:] = hello["path"]
        sys.argv[:] = hello["argv"]
        self._runtime = hello["runtime"]
        limit_marks.wear(limit_marks.number(self._runtime))
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
        mark = env_marks.Mark(self._runtime, head["mark"])
        os.environ.update(mark.variables())
        env_marks.mark_process(mark)
        limit_marks.wear(limit_marks.number(self._runtime, head["mark"]))
        threads: set[threading.Thread] = set()
        try:
            answer, body = self._run(head, arguments, threads)
        except Aborted:  # between the tool's end and ours
            answer, body = {"end": "aborted"}, b""
        if self._is_fork:
            os._exit(0)
        env_marks.mark_process(None)
        limit_marks.wear(limit_marks.number(self._runtime))
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
            encoded = values.encode_result(function, result, most=head["most"])
            check_length(len(encoded))
            return {"end": "completed"}, encoded
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
    return {
        "end": "failed",
        "type": type(error).__name__[:_MESSAGE_CHARS],
        "message": said_by(error)[:_MESSAGE_CHARS],
        "traceback": "".join(lines)[-_MESSAGE_CHARS:],
    }


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


def _watch_parent(parent: int) -> None:
    """If the runtime dies and nobody else cleans up, end this process and its group."""
    while os.getppid() == parent:
        time.sleep(_PARENT_LOOK_SECONDS)
    time.sleep(ORPHAN_SECONDS)
    os.killpg(0, signal.SIGKILL)


def main(descriptor: int, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    orphans.adopt()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    threading.Thread(target=_watch_parent, args=(parent,), name="checkrein-parent", daemon=True).start()
    try:
        Worker(Channel(descriptor)).serve()
        status = 0
    except BaseException:  # ours, not the tool's: say so and be gone, before anybody takes the silence for a stop
        traceback.print_exc()
        status = 1
    _flush()
    os._exit(status)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
