"""A program without a network, but for the gateway: what it does not send there goes nowhere.

The sealing itself happens in the process that becomes the program (`processes/launch_main.py`). Here is whether this
machine allows it, and what carries the program's connections to the gateway.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from checkrein.errors import WrongInput, describe
from checkrein.processes import launch_main

_log = logging.getLogger(__name__)

_PIECE: Final = 65536


def check_allowed() -> None:
    """Raises `WrongInput`, with the reason, where a program cannot be sealed."""
    why = "only Linux has namespaces"
    if sys.platform == "linux":
        program = [sys.executable, "-I", "-S", str(Path(launch_main.__file__)), "--sealed", "-1", "0", "--"]
        tried = subprocess.run(program, capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return
        why = tried.stderr.strip() or f"exit status {tried.returncode}"
    raise WrongInput(
        f"--sealed is not possible here: a network namespace is refused ({why}). Without it a program that does "
        "not heed its variables may go round the gateway.",
        code="not_sealed",
    )


class Seal:
    """Carries connections from inside to the gateway at `port` of this host. `line` is for the program's process."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._ours, self.line = socket.socketpair()
        self._server: asyncio.Server | None = None
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        received = await asyncio.to_thread(socket.recv_fds, self._ours, 1, 1)
        if received[1]:
            inside = socket.socket(fileno=received[1][0])
            self._server = await asyncio.start_server(self._carry, sock=inside)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError as error:
            _log.info("the gateway does not answer a sealed program: %s", describe(error))
            writer.close()
            return
        await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))

    async def close(self) -> None:
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        self._ours.close()
        self.line.close()
        self._task.cancel()
        if self._server is not None:
            self._server.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until one end is closed; then the other is."""
    try:
        while data := await reader.read(_PIECE):
            writer.write(data)
            await writer.drain()
    except OSError as error:
        _log.debug("a connection of a sealed program broke: %s", describe(error))
    finally:
        writer.close()
