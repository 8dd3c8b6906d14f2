"""One worker process, from the runtime's side: its start, its messages, its end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio

from checkrein.asyncutil import run_to_completion
from checkrein.calls.arguments import RESULT_BYTES
from checkrein.processes import env_marks, table, termination
from checkrein.processes.families import Family
from checkrein.processes.ipc import BadMessage, Head, Unpacker, pack, socket_pair
from checkrein.processes.termination import Exit

_ROOT: Final = str(Path(__file__).parents[3])
_BOOT: Final = (
    "import sys; sys.path.append(sys.argv.pop()); "
    "from checkrein.calls.workers.main import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)
LEAVE_SECONDS: Final = 1.0
_BACK_SECONDS: Final = 5.0
"""How long the main loop of a worker may take to answer after a call, also on a machine that has much to do."""
_PIECES: Final = 64
"""How much is read at a time, in pieces of 256 KiB: one worker that never stops speaking does not keep the loop."""
HEAD_BYTES: Final = 1 << 20
"""The longest head that is taken from a worker."""

_log = logging.getLogger(__name__)


class WorkerProcess:
    """A child in a session of its own. Its prints go to this process's standard error, its input is empty."""

    def __init__(
        self, process: subprocess.Popen[bytes], channel: socket.socket, name: str, *, result_bytes: int
    ) -> None:
        self.pid = process.pid
        self.name = name
        """The value of its mark `CHECKREIN_WORKER`."""
        self.on_message: Callable[[Head, bytes], None] | None = None
        """May raise `BadMessage`. While it is None the worker has nothing to say."""
        self.on_exit: Callable[[], None] | None = None
        self.is_ready = False
        """It has started, and heeds no signal that was not announced."""
        self.runs: set[str] = set()
        """The runs that it has performed calls for."""
        self.is_spent = False
        """It is not to be used again after its call."""
        self.fault: str | None = None
        """Why it has to be ended: what it said that no worker of ours says. It is not listened to any more."""
        row = table.row(process.pid)
        assert row is not None, "a child that was not reaped is in the process table"
        self.row = row
        self._process = process
        self._channel = channel
        self._unpacker = Unpacker(result_bytes + HEAD_BYTES, longest_head=HEAD_BYTES)
        self._nonce: str | None = None
        self._back = asyncio.Event()
        self._is_buried = False
        self._is_lost = False
        self._is_sending = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel, self._read)
        self._exit = Exit(process.pid, self._exited)

    @classmethod
    async def start(cls, runtime: str, hello: Head, *, result_bytes: int = RESULT_BYTES) -> WorkerProcess:
        """Start one and return; it gets ready by itself. Cancelling this waits for the start and ends it again."""
        return await run_to_completion(cls._start(runtime, hello, result_bytes), take_back=cls.leave)

    @classmethod
    async def _start(cls, runtime: str, hello: Head, result_bytes: int) -> WorkerProcess:
        name = uuid.uuid4().hex
        process, channel = await anyio.to_thread.run_sync(_popen, runtime, name)
        worker = cls(process, channel, name, result_bytes=result_bytes)
        await worker.send({"hello": {**hello, "runtime": runtime}})
        return worker

    @property
    def is_over(self) -> bool:
        return self._is_lost

    def family(self, *marks: tuple[str, str]) -> Family:
        """This worker and all that ever came from it, or carries one of `marks`."""
        return Family(marks=((env_marks.WORKER, self.name), *marks), roots=(self.row,), since=self.row.started)

    async def send(self, head: Head, body: bytes = b"") -> None:
        """Send a message. A worker that is gone is no error here: `on_exit` tells."""
        self._is_sending = True
        try:
            with suppress(OSError):
                await self._loop.sock_sendall(self._channel, pack(head, body))
        finally:
            self._is_sending = False

    def announce_stop(self) -> None:
        """Let it know that a SIGTERM which comes now is meant for its call. It heeds no other."""
        # One whose call is still on its way has not begun: it is killed without being told.
        if not self._is_sending:
            with suppress(OSError):
                self._channel.send(pack({"stop": True}))

    async def is_back(self) -> bool:
        """Whether its main loop waits for the next call: it answers to what it is told only now. A tool that has said
        in its name that the call is over, and goes on, does not."""
        self._nonce = uuid.uuid4().hex
        self._back.clear()
        await self.send({"nonce": self._nonce})
        if not self._is_lost:
            with suppress(TimeoutError):
                async with asyncio.timeout(_BACK_SECONDS):
                    await self._back.wait()
        return self._back.is_set() and not self._is_lost

    async def exited(self, seconds: float) -> bool:
        """Whether it has ended, or does within so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._exit.wait()
        return bool(self._exit)

    def _read(self) -> None:
        """Take what has arrived."""
        for _ in range(_PIECES):
            if self.fault is not None:
                return
            try:
                piece = self._channel.recv(1 << 18)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                piece = b""
            if not piece:
                self._loop.remove_reader(self._channel)
                self._lose()
                return
            try:
                for head, body in self._unpacker.feed(piece):
                    self._take(head, body)
            except BadMessage as error:
                _log.warning("worker process %d is ended: %s", self.pid, error)
                self.fault = f"it said what no worker says ({str(error).rstrip('.')})"
                self._loop.remove_reader(self._channel)
                self._lose()
                return

    def _take(self, head: Head, body: bytes) -> None:
        if "nonce" in head:
            if head["nonce"] != self._nonce:
                raise BadMessage("That is not what its main loop was asked.")
            self._nonce = None
            self._back.set()
        elif "ready" in head:
            self.is_ready = True  # perhaps after its first call was sent
        elif self.on_message is not None:
            self.on_message(head, body)
        else:
            raise BadMessage("It performs no call, and speaks.")

    def _exited(self) -> None:
        self._read()  # what it said last
        self._lose()

    def _lose(self) -> None:
        """It has ended, or has become another program (`exec`): either way it will say no more."""
        if not self._is_lost:
            self._is_lost = True
            self._back.set()
            if self.on_exit is not None:
                self.on_exit()

    async def leave(self, seconds: float = LEAVE_SECONDS) -> None:
        """End an idle worker: it goes by itself when nobody is there any more, or is killed after so many seconds.
        Cancelling this does not keep it."""
        await run_to_completion(self._leave(seconds))

    async def _leave(self, seconds: float) -> None:
        if self._is_buried:
            return
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        if not await self.exited(seconds):
            await termination.end(self.family(), grace_seconds=0)
        self.reap()

    def reap(self) -> int | None:
        """Reap it and release what belongs to it, after it has ended; return its exit status, None if it could not be
        ended. What it had said by then has been heard."""
        if self._is_buried:
            return self._process.returncode
        self._is_buried = True
        self._read()
        self._loop.remove_reader(self._channel)
        self._channel.close()
        self._exit.close()
        # Popen would complain about one that is stuck in the kernel; there is nothing more to be done about it.
        status = self._process.poll()
        if status is None:
            self._process.returncode = 0
        return status


def _popen(runtime: str, name: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    with socket_pair() as (ours, theirs):
        environment = {
            **env_marks.without_own_secrets(os.environ),
            env_marks.RUNTIME: env_marks.chain(os.environ.get(env_marks.RUNTIME), runtime),
            env_marks.WORKER: name,
        }
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        output = _standard_error()
        process = subprocess.Popen(
            [sys.executable, *flags, "-P", "-c", _BOOT, str(theirs.fileno()), str(os.getpid()), _ROOT],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            env=environment,
        )
    return process, ours


def _standard_error() -> Any:
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2
