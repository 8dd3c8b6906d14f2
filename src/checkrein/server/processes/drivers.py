"""Keeping driver processes alive.

Each driver has a slot. When it dies it is started again: at once if it had lived for a while, otherwise after a pause
that doubles. What it was doing is taken up by whoever comes next, itself or another one. A driver that cannot even
begin, because its agents cannot be loaded, says why and is tried again at the same leisure.

A driver is also asked, again and again, whether it answers. One that does not is *silent*: it counts as not ready. A
tool may keep its event loop busy for some seconds, and that is the agent's business; but all its other runs stand still
meanwhile. So one that stays silent is killed and started again, though nobody waits for a stop; what it was doing is in
doubt. While a stop waits for it, its supervisor is far less patient.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal

import msgspec

from checkrein.control.worker_roster import AgentCard
from checkrein.errors import NameTaken, StoreTooNew
from checkrein.journal.base import Chunk
from checkrein.processes import env_marks, table
from checkrein.processes.termination import Exit
from checkrein.server.auth.token_store import VARIABLE
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
from checkrein.server.webhooks import SECRET_VARIABLE
from checkrein.timings import DRIVER_SILENT_SECONDS, DRIVERS_END_SECONDS, SHUT_DOWN_SECONDS, SILENT_SECONDS

_log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0
LIVED_SECONDS: Final = 20.0
"""A driver that was ready for so long has earned to be started again at once."""
LOADED_TIMES: Final = 3
"""So often a driver may be killed while it loads its agents before it is their fault."""
PING_SECONDS: Final = 1.0
"""How often a driver is asked whether it answers."""
WITHHELD: Final = frozenset({VARIABLE, SECRET_VARIABLE})
"""Variables that are not for an agent's eyes: whoever has the server's own token may stop everything."""

REFUSED: Final = frozenset({StoreTooNew.code, NameTaken.code, "worker_buried"})
"""Codes of what a driver says that another one in its place would say too."""

Tell = Callable[[str], None]
"""Told a sentence for whoever sits at the terminal."""
Phase = Literal["starting", "ready", "silent", "ending", "resting"]


class Told(msgspec.Struct, frozen=True):
    """What /healthz says about a driver."""

    number: int
    phase: Phase
    restarts: int


class DriverSlot:
    """One driver process after the other. Use it in one event loop, and start it from the main thread."""

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        tell: Tell,
        heard: Callable[[Message | None], None],
        *,
        store: str,
        listen_store: str | None = None,
        secrets: Mapping[str, str] | None = None,
        silent_seconds: float = DRIVER_SILENT_SECONDS,
        worker: WorkerOptions | None = None,
    ) -> None:
        """`heard` is told what the driver says, and None when it has ended. `store` is the address of its journal,
        `listen_store` that of the same past a pooler; `secrets` by name: what it looks for. With `worker` it is on the
        roster of the store."""
        self.number = number
        self.phase: Phase = "starting"
        self.restarts = 0
        self.trouble = ""
        """What was said last about why there is no driver; empty when all is well."""
        self.is_quiet = True
        """Until some driver has loaded its agents, its trouble is for whoever started the server to say."""
        self.broken: Broken | None = None
        """What the last driver said instead of hello, if none has said hello since."""
        self.cards: tuple[AgentCard, ...] = ()
        self._command = tuple(command)
        self._store = store
        self._listen_store = listen_store
        self._worker = worker
        self.is_store_well = True
        """Whether the driver that lives here reaches the store, as far as it has said."""
        # What is kept out of its environment a driver is told, so that it looks for it.
        self._secrets = {name: os.environ[name] for name in WITHHELD if len(os.environ.get(name, "")) >= 8} | dict(
            secrets or {}
        )
        self._tell = tell
        self._heard = heard
        self._row: table.ProcessInfo | None = None
        self._pid: int | None = None
        self._line: MessageConnection | None = None
        self._has_loaded = False
        self._died_loading = 0
        self._code = 0
        self._ready_at: float | None = None
        self._silent_limit = silent_seconds
        self._has_answered = True
        self._is_wanted = True
        self._is_renewed = False
        """It was asked to end so that another one with new code takes its place."""
        self._wake = asyncio.Event()

    @property
    def told(self) -> Told:
        return Told(self.number, self.phase, self.restarts)

    @property
    def pid(self) -> int | None:
        """Of the driver that was started last, until it was waited for."""
        return self._pid

    # -- one life after the other

    async def keep(self) -> None:
        """Have a driver here until `end`; on return there is none."""
        pause = 0.0
        while self._is_wanted:
            how = await self._live()
            if not self._is_wanted:
                break
            if self._is_renewed:
                self._is_renewed, pause, self.phase = False, 0.0, "resting"
                self.restarts += 1
                self._heard(None)
                continue
            if not self._has_loaded and self.broken is None:
                self._died_loading += 1
                # A signal may have come from anywhere: that it was the agents' fault is known when it comes again.
                if self._code >= 0 or self._died_loading >= LOADED_TIMES:
                    self.broken = Broken("driver_ended", f"The driver process {how} while it loaded the agents.")
            has_lived = self._ready_at is not None and time.monotonic() - self._ready_at >= LIVED_SECONDS
            pause = 0.0 if has_lived else min(max(2 * pause, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
            self._say_trouble(how, pause)
            self.phase = "resting"
            self.restarts += 1
            self._heard(None)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)
            self._wake.clear()
        self.phase = "ending"

    async def _live(self) -> str:
        """Start a driver, and return how it ended when it has."""
        self.phase, self._ready_at, self._has_loaded = "starting", None, False
        try:
            process, ours = self._started()
        except OSError as error:
            return f"could not be started ({error})"
        gone = asyncio.Event()
        self._row, self._pid = table.row(process.pid), process.pid
        ended = Exit(process.pid)
        line = self._line = MessageConnection(self._hear, gone.set)
        try:
            await asyncio.get_running_loop().create_connection(lambda: line, sock=ours)
            await self._watch(line, ended)
            with suppress(TimeoutError):  # what it said last is heard before it is judged
                await asyncio.wait_for(gone.wait(), 1.0)
        finally:
            if not ended:
                self.kill()
                await asyncio.shield(ended.wait())
            ended.close()
            line.close()
            self._code = process.wait()
            self._row = self._line = self._pid = None
        return _how(self._code)

    async def _watch(self, line: MessageConnection, ended: Exit) -> None:
        """Return when the driver has ended: by itself, or killed because it stayed silent."""
        silent, looked_at = 0.0, time.monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(PING_SECONDS):
                    return await ended.wait()
            now = time.monotonic()
            # If this process itself stood still, so may have the driver: that time does not count.
            waited, looked_at = min(now - looked_at, 2 * PING_SECONDS), now
            if self._ready_at is None or not self._is_wanted:
                continue
            silent = 0.0 if self._has_answered else silent + waited
            if self._has_answered:
                self._has_answered = False
                line.say(Ping())
            elif silent >= self._silent_limit:
                self._tell(
                    f"Driver {self.number} has not answered for {silent:.0f} s, and is ended: something in it keeps "
                    "its event loop busy, or has ended it. What it was doing is in doubt."
                )
                self.kill()
                return await ended.wait()
            elif silent >= SILENT_SECONDS and self.phase == "ready":
                self.phase = "silent"
                _log.warning("Driver %d has not answered for %.0f s.", self.number, silent)

    def _started(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        try:
            ours.sendall(packed(Know(self._store, self._secrets, self._listen_store, self._worker)))
            ours.setblocking(False)
            process = subprocess.Popen(
                [*self._command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=env_marks.without_own_secrets(os.environ),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C at the terminal is the front's to hear
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return process, ours

    def _say_trouble(self, how: str, pause: float) -> None:
        again = f"It is started again in {pause:g} s." if pause else "It is started again."
        if self.broken is not None:
            trouble, how = self.broken.message, f"Driver {self.number} cannot begin: {self.broken.message}"
        else:
            trouble = how = f"Driver {self.number} {how}."
        _log.info("%s %s", how, again)
        if not self.is_quiet and (trouble != self.trouble or self.broken is None):
            self._tell(f"{how} {again}")
            self.trouble = trouble

    def _hear(self, message: Message) -> None:
        if isinstance(message, Hello):
            self.cards, self.broken, self._has_loaded, self._died_loading = message.cards, None, True, 0
        elif isinstance(message, Opened):
            self.phase, self._ready_at, self._has_answered = "ready", time.monotonic(), True
            self.is_store_well = True
            if self.restarts:
                self._tell(f"Driver {self.number} is at work again.")
            self.trouble = ""
        elif isinstance(message, Pong):
            self._has_answered, self.is_store_well = True, message.is_store_well
            if self.phase == "silent":
                _log.warning("Driver %d answers again.", self.number)
                self.phase = "ready"
        elif isinstance(message, Broken):
            self.broken = message
        self._heard(message)

    # -- the end

    def kill(self) -> None:
        """End it with SIGKILL. Its supervisor ends its tools."""
        if self._row is not None:
            _log.info("Driver %d, process %d, is killed.", self.number, self._row.pid)
            table.send(self._row, signal.SIGKILL)

    def restart(self) -> None:
        """Have the driver pause its runs durably and end; another one takes its place at once, and they go on.

        One that takes too long to end is killed: what it was doing is in doubt then.
        """
        row = self._row
        if row is None or not self._is_wanted:
            self._wake.set()  # there is none: the next one has the new code anyway
            return
        self._is_renewed = True
        self._ask_to_end()

        def end_late() -> None:
            if self._row is row:
                _log.warning("Driver %d takes too long to end, and is killed.", self.number)
                self.kill()

        asyncio.get_running_loop().call_later(end_seconds(self._worker), end_late)

    def end(self) -> None:
        """No more drivers here. The one that lives is asked to pause its runs durably, and to end."""
        self._is_wanted = False
        self._wake.set()
        self._ask_to_end()

    def _ask_to_end(self) -> None:
        if self._line is not None:
            self._line.say(End())
        if self.phase == "starting" and self._row is not None:
            table.send(self._row, signal.SIGTERM)  # before it listens, that ends it: it has nothing to pause yet


class DriverSlots:
    """All drivers of a server. `heard` is told each piece of text as it streams."""

    def __init__(
        self,
        count: int,
        command: Sequence[str],
        tell: Tell,
        heard: Callable[[str, Chunk], None],
        *,
        store: str,
        listen_store: str | None = None,
        secrets: Mapping[str, str] | None = None,
        silent_seconds: float = DRIVER_SILENT_SECONDS,
        worker: WorkerOptions | None = None,
    ) -> None:
        """With `worker` all of them are on the roster of the store, each under a name of its own."""
        self._heard_text = heard
        self._end_seconds = end_seconds(worker)
        self.each = tuple(
            DriverSlot(
                number,
                command,
                tell,
                self._heard,
                store=store,
                listen_store=listen_store,
                secrets=secrets,
                silent_seconds=silent_seconds,
                worker=_numbered(worker, number),
            )
            for number in range(1, count + 1)
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        self.has_loaded = False
        """Some driver has said, once, which agents there are."""
        self._cards: dict[str, AgentCard] = {}
        self.on_refused: Callable[[Broken], None] = lambda said: None
        """Told when a driver says that no process of this program may drive here any more (`REFUSED`)."""

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(slot.keep(), name=f"driver slot {slot.number}") for slot in self.each]

    @property
    def cards(self) -> dict[str, AgentCard]:
        """The agents that the drivers have; while none lives, those that the last one had."""
        return self._cards

    @property
    def pids(self) -> Collection[int]:
        """The processes that somebody waits for here, as they are at each moment."""
        return _Pids(self.each)

    async def ready(self) -> None:
        """Return when a driver drives."""
        while not any(slot.phase == "ready" for slot in self.each):
            await self._news.wait()

    async def loaded(self) -> Broken | None:
        """Return when a driver has loaded its agents; or, when each of them has said why it cannot, what it said."""
        while not self.has_loaded and self.each:
            broken = [slot.broken for slot in self.each if slot.broken is not None]
            if len(broken) == len(self.each):
                return broken[0]
            news = self._news
            await news.wait()
        return None

    async def end(self, *, seconds: float | None = None) -> None:
        """Have every driver pause its runs and end; one that takes too long is killed. On return there is none."""
        for slot in self.each:
            slot.end()
        _, late = await asyncio.wait(self._tasks, timeout=seconds or self._end_seconds) if self._tasks else ((), ())
        if late:
            self.kill()
            await asyncio.wait(late)

    def restart(self) -> None:
        """Have every driver end in order, and another one started in its place: with the code as it is by now."""
        for slot in self.each:
            slot.restart()

    def kill(self) -> None:
        """End every driver now. What they are doing is in doubt."""
        for slot in self.each:
            slot.kill()

    def _heard(self, message: Message | None) -> None:
        if isinstance(message, Live):
            for run, chunk in message.pieces:
                self._heard_text(run, chunk)
        elif isinstance(message, Broken) and message.code in REFUSED:
            self.on_refused(message)
        elif isinstance(message, Hello):
            self._cards = {card.name: card for each in self.each for card in each.cards}
            for slot in self.each:
                slot.is_quiet = False
            self.has_loaded = True
        if not isinstance(message, Live | Pong):
            self._news.set()  # whoever waits looks, and waits for the next one
            self._news = asyncio.Event()


class _Pids(Collection[int]):
    def __init__(self, slots: Sequence[DriverSlot]) -> None:
        self._slots = slots

    def __iter__(self) -> Iterator[int]:
        return (slot.pid for slot in self._slots if slot.pid is not None)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, pid: object) -> bool:
        return pid in list(iter(self))


def refusal_of(said: Broken) -> StoreTooNew | NameTaken:
    """Why no process of this program may drive any more, of what a driver said that is one of `REFUSED`."""
    kind = StoreTooNew if said.code == StoreTooNew.code else NameTaken
    return kind(said.message, code=said.code)


def end_seconds(worker: WorkerOptions | None) -> float:
    """How long a driver may take to end before it is killed: what its runs are given, and the same margin as ever."""
    seconds = SHUT_DOWN_SECONDS if worker is None else worker.shutdown_seconds
    return seconds + DRIVERS_END_SECONDS - SHUT_DOWN_SECONDS


def _numbered(worker: WorkerOptions | None, number: int) -> WorkerOptions | None:
    """The first driver has the name of the worker, so that it keeps it whatever their number."""
    if worker is None or number == 1:
        return worker
    return msgspec.structs.replace(worker, name=f"{worker.name}/{number}")


def _how(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"
