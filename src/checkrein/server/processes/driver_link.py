"""The driver's side: a runtime with its agents, and a line to the front.

When the front says so, or is gone, or on SIGTERM, everything at work is paused durably and the process ends; it goes on
by itself at the next start. Should user code keep the event loop from coming to that, the runtime's supervisor ends the
process from outside, and what it was doing is in doubt.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from checkrein import logs
from checkrein.control.feed import Ticker
from checkrein.control.worker_roster import card_of
from checkrein.driver.program_api import Program
from checkrein.engines.base import MakeEngine
from checkrein.engines.leases import LeaseEngine
from checkrein.engines.temporal import TemporalEngine
from checkrein.errors import CheckreinError, NameTaken, StoreTooNew
from checkrein.journal.base import Chunk
from checkrein.journal.chunks import joined
from checkrein.models.http.selector import SECONDS_AT_MOST, SECONDS_PER_STREAM, coalesce_reads
from checkrein.processes import table
from checkrein.runtime import Runtime
from checkrein.secrets import Secrets
from checkrein.server.processes.protocol import (
    Broken,
    End,
    Hello,
    Know,
    Live,
    Message,
    MessageConnection,
    Opened,
    Ping,
    Pong,
    WorkerOptions,
    packed,
)
from checkrein.timings import DRIVER_END_SECONDS, SHUT_DOWN_SECONDS

_log = logging.getLogger(__name__)

TELL_SECONDS: Final = 0.02
"""Text that streams within so long goes to the front as one message."""
TELL_SECONDS_PER_RUN: Final = SECONDS_PER_STREAM
"""Where many runs stream at once, what each of them says goes together for longer: so much for every run.

As long as their sockets wait to be read: what is read together is then told together, and waits once.
"""
TELL_SECONDS_AT_MOST: Final = SECONDS_AT_MOST
"""Nobody who reads along notices this."""
_SET_DEATH_SIGNAL: Final = 1

_log = logging.getLogger(__name__)


class Teller:
    """Passes text on to the front as it streams: all runs together, ten to fifty times a second.

    A front that does not read fast enough misses some of it, and finds it in the journal a moment later.
    """

    def __init__(self, line: MessageConnection) -> None:
        self._line = line
        self._untold: dict[str, list[Chunk]] = {}
        self._ticker = Ticker(TELL_SECONDS)

    def hear(self, run: str, chunk: Chunk) -> None:
        untold = self._untold.get(run)
        if untold is not None:
            untold.append(chunk)
            return
        if not self._untold:
            self._ticker.soon(self._tell)
        self._untold[run] = [chunk]

    def _tell(self) -> None:
        untold, self._untold = self._untold, {}
        pieces = [(run, chunk) for run, chunks in untold.items() for chunk in joined(chunks)]
        self._ticker.seconds = min(TELL_SECONDS_AT_MOST, max(TELL_SECONDS, TELL_SECONDS_PER_RUN * len(untold)))
        if self._line.is_full:
            _log.info("The front does not read fast enough: it finds %d pieces of text in the journal", len(pieces))
            return
        try:
            self._line.say(Live(pieces))
        except UnicodeError:  # half of a character: its other half follows, and the journal has the whole
            _log.info("Text with half of a character: the front finds %d pieces in the journal", len(pieces))


class Retired(NamedTuple):
    """This driver may not drive any more: it is too old for the store and has handed its runs over, another process has
    its name, or it was buried."""

    error: StoreTooNew | NameTaken


class FrontLink:
    """The line to the front, from the first moment of a driver process. `descriptor` was inherited from the front.

    Until the runtime is open there is nothing to pause: so long, this process dies at once with its front.
    """

    def __init__(self, descriptor: int) -> None:
        _die_with_parent(signal.SIGKILL)
        self._parent = table.row(os.getppid())
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)  # not for workers, nor for the programs that a tool starts

    async def _retired(self, runtime: Runtime, asked: asyncio.Queue[Message | Retired]) -> None:
        asked.put_nowait(Retired(await runtime.until_too_old()))

    async def _replaced(self, runtime: Runtime, asked: asyncio.Queue[Message | Retired]) -> None:
        asked.put_nowait(Retired(await runtime.until_replaced()))

    def tell_broken(self, error: CheckreinError) -> None:
        """Say why there will be no driver."""
        self._socket.sendall(packed(Broken(error.code, error.message)))

    async def drive(self, agents: Mapping[str, Program]) -> None:
        """Drive the runs of `agents` until the front says that it is enough, or is gone."""
        asked: asyncio.Queue[Message | Retired] = asyncio.Queue()

        def enough() -> None:
            asked.put_nowait(End())

        loop = asyncio.get_running_loop()
        coalesce_reads(loop)
        line = MessageConnection(asked.put_nowait, enough)
        loop.add_signal_handler(signal.SIGTERM, enough)
        await loop.create_connection(lambda: line, sock=self._socket)
        try:
            first = await asked.get()
            if not isinstance(first, Know):
                return
            secrets = Secrets.from_environment(also=first.secrets)
            worker = first.worker or WorkerOptions(name="")
            opening = Runtime(
                first.store,
                agents=tuple(agents.values()),
                secrets=secrets,
                listen_store=first.listen_store,
                worker=worker.name,
                version=worker.version,
                slots=worker.slots,
                lease_seconds=worker.lease_seconds,
                shutdown_seconds=worker.shutdown_seconds,
                engine=_engine_of(worker),
            )
            # Before anything is taken up: whatever that brings, the front knows the agents, and serves.
            line.say(Hello(tuple(card_of(program) for program in agents.values())))
            async with opening as runtime:
                logs.redact_with(runtime.secrets)
                runtime.texts.listen_to_all(Teller(line).hear)
                if self._parent is not None:
                    grace = worker.shutdown_seconds + DRIVER_END_SECONDS - SHUT_DOWN_SECONDS
                    runtime.end_with(self._parent, grace_seconds=grace)
                _die_with_parent(0)
                line.say(Opened())
                # Answered here and not where it is heard: if this task has ended, this driver drives nothing any more.
                watching = [asyncio.ensure_future(self._retired(runtime, asked))]
                if worker.name:
                    watching.append(asyncio.ensure_future(self._replaced(runtime, asked)))
                while isinstance(message := await asked.get(), Ping):
                    line.say(Pong(runtime.is_store_well))
                for task in watching:
                    task.cancel()
                if isinstance(message, Retired):
                    raise message.error
        except CheckreinError as error:
            _log.info("This driver cannot go on: %s", error)
            line.say(Broken(error.code, error.message))
        finally:
            line.close()
            await asyncio.sleep(0)


def _engine_of(worker: WorkerOptions) -> MakeEngine:
    # Whether Temporal is there was asked before the first driver; one that is started again has runs to go on with.
    return LeaseEngine if worker.temporal is None else partial(TemporalEngine, options=worker.temporal, patient=True)


def _die_with_parent(number: int) -> None:
    """Have the kernel send this signal when the thread that started this process ends; 0: none. Linux only."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, number)
