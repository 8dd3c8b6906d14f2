"""One worker process, from the runtime's side: its start, its messages, its end."""

from __future__ import annotations

import asyncio
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

from checkrein.journal.surely import surely
from checkrein.runtime import marking, processes, table
from checkrein.runtime.channel import Head, Unpacker, pack
from checkrein.runtime.lineage import Family
from checkrein.runtime.processes import Exit

_ROOT: Final = str(Path(__file__).parents[2])
_BOOT: Final = (
    "import sys; sys.path.append(sys.argv.pop()); "
    "from checkrein.runtime.worker import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)
_LEAVE_SECONDS: Final = 1.0


class WorkerProcess:
    """A child in a session of its own. Its prints go to this process's standard error, its input is empty."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket, name: str) -> None:
        self.pid = process.pid
        self.name = name
        """The value of its mark `CHECKREIN_WORKER`."""
        self.on_message: Callable[[Head, bytes], None] | None = None
        self.on_exit: Callable[[], None] | None = None
        row = table.row(process.pid)
        assert row is not None, "a child that was not reaped is in the process table"
        self.row = row
        self._process = process
        self._channel = channel
        self._unpacker = Unpacker()
        self._is_buried = False
        self._is_lost = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(channel, self._read)
        self._exit = Exit(process.pid, self._exited)

    @classmethod
    async def start(cls, runtime: str, hello: Head) -> WorkerProcess:
        """Start one and return; it gets ready by itself. Cancelling this waits for the start and ends it again."""
        return await surely(cls._start(runtime, hello), take_back=cls.leave)

    @classmethod
    async def _start(cls, runtime: str, hello: Head) -> WorkerProcess:
        name = uuid.uuid4().hex
        process, channel = await anyio.to_thread.run_sync(_popen, runtime, name)
        worker = cls(process, channel, name)
        await worker.send({"hello": {**hello, "runtime": runtime}})
        return worker

    @property
    def is_over(self) -> bool:
        return self._is_lost

    def family(self, *marks: tuple[str, str]) -> Family:
        """This worker and all that ever came from it, or carries one of `marks`."""
        return Family(marks=((marking.WORKER, self.name), *marks), roots=(self.row,), since=self.row.started)

    async def send(self, head: Head, body: bytes = b"") -> None:
        """Send a message. A worker that is gone is no error here: `on_exit` tells."""
        with suppress(OSError):
            await self._loop.sock_sendall(self._channel, pack(head, body))

    def _read(self) -> None:
        """Take everything that has arrived."""
        while True:
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
            for head, body in self._unpacker.feed(piece):
                if self.on_message is not None:
                    self.on_message(head, body)

    def _exited(self) -> None:
        self._read()  # what it said last
        self._lose()

    def _lose(self) -> None:
        """It has ended, or has become another program (`exec`): either way it will say no more."""
        if not self._is_lost:
            self._is_lost = True
            if self.on_exit is not None:
                self.on_exit()

    async def leave(self) -> None:
        """End an idle worker: it goes by itself when nobody is there any more. Cancelling this does not keep it."""
        await surely(self._leave())

    async def _leave(self) -> None:
        if self._is_buried:
            return
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._exit.wait()
        if not self._exit:
            await processes.end(self.family(), grace_seconds=0)
        self.bury()

    def bury(self) -> int | None:
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
    ours, theirs = socket.socketpair()
    try:
        ours.setblocking(False)
        environment = {
            **os.environ,
            marking.RUNTIME: marking.chain(os.environ.get(marking.RUNTIME), runtime),
            marking.WORKER: name,
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
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours


def _standard_error() -> Any:
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2
