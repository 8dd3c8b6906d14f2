"""The driver's side: a runtime with its agents, and a line to the front.

When the front says so, or is gone, or on SIGTERM, everything at work is paused durably and the process ends; it goes on
by itself at the next start. Should user code keep the event loop from coming to that, the runtime's supervisor ends the
process from outside, and what it was doing is in doubt.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from checkrein.control.runs import Runtime
from checkrein.errors import CheckreinError
from checkrein.journal.contract import Chunk
from checkrein.runtime import table
from checkrein.runtime.spec import Program
from checkrein.server.backend import card_of
from checkrein.server.front.wire import (
    END_SECONDS,
    Broken,
    End,
    Hello,
    Line,
    Live,
    Message,
    Ping,
    Pong,
    packed,
)

_SET_DEATH_SIGNAL: Final = 1


class Teller:
    """Passes text on to the front as it streams, once in every turn of the event loop.

    A front that does not read fast enough misses some of it, and finds it in the journal a moment later.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._untold: list[tuple[str, Chunk]] = []

    def hear(self, run: str, chunk: Chunk) -> None:
        if not self._untold:
            asyncio.get_running_loop().call_soon(self._tell)
        self._untold.append((run, chunk))

    def _tell(self) -> None:
        untold, self._untold = self._untold, []
        if not self._line.is_full:
            with suppress(UnicodeError):  # half of a character: its other half follows, and the journal has the whole
                self._line.say(Live(untold))


class ToFront:
    """The line to the front, from the first moment of a driver process. `descriptor` was inherited from the front.

    Until the runtime is open there is nothing to pause: so long, this process dies at once with its front.
    """

    def __init__(self, descriptor: int) -> None:
        _die_with_parent(signal.SIGKILL)
        self._parent = table.row(os.getppid())
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)  # not for workers, nor for the programs that a tool starts

    def tell_broken(self, error: CheckreinError) -> None:
        """Say why there will be no driver."""
        self._socket.sendall(packed(Broken(error.code, error.message)))

    async def drive(self, agents: Mapping[str, Program], store: str) -> None:
        """Drive the runs of `agents` until the front says that it is enough, or is gone."""
        enough = asyncio.Event()

        def hear(message: Message) -> None:
            if isinstance(message, Ping):
                line.say(Pong(message.number))
            elif isinstance(message, End):
                enough.set()

        loop = asyncio.get_running_loop()
        line = Line(hear, enough.set)
        loop.add_signal_handler(signal.SIGTERM, enough.set)
        await loop.create_connection(lambda: line, sock=self._socket)
        try:
            async with Runtime(store, agents=tuple(agents.values())) as runtime:
                runtime.texts.listen_to_all(Teller(line).hear)
                if self._parent is not None:
                    runtime.end_with(self._parent, grace_seconds=END_SECONDS)
                _die_with_parent(0)
                line.say(Hello(tuple(card_of(program) for program in runtime.agents.values())))
                await enough.wait()
        except CheckreinError as error:
            line.say(Broken(error.code, error.message))
        finally:
            line.close()
            await asyncio.sleep(0)


def _die_with_parent(number: int) -> None:
    """Have the kernel send this signal when the thread that started this process ends; 0: none. Linux only."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, number)
