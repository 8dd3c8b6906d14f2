"""Keeping driver processes alive.

Each driver has a slot. When it dies it is started again: at once if it had lived for a while, otherwise after a pause
that doubles. What it was doing is taken up by whoever comes next, itself or another one. A driver that cannot even
begin, because its agents cannot be loaded, says why and is tried again at the same leisure.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Literal

import msgspec

from checkrein.journal.contract import Chunk, Owner
from checkrein.runtime import table
from checkrein.runtime.processes import Exit
from checkrein.server.auth.server_token import VARIABLE
from checkrein.server.backend import AgentCard
from checkrein.server.front.wire import END_SECONDS, Broken, End, Hello, Line, Live, Message, Ping, Pong

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0
LIVED_SECONDS: Final = 20.0
"""A driver that was ready for so long has earned to be started again at once."""

Tell = Callable[[str], None]
"""Told a sentence for whoever sits at the terminal."""
Phase = Literal["starting", "ready", "ending", "resting"]


class Told(msgspec.Struct, frozen=True):
    """What /healthz says about a driver."""

    number: int
    phase: Phase
    restarts: int


class Slot:
    """One driver process after the other. Use it in one event loop, and start it from the main thread."""

    def __init__(
        self, number: int, command: Sequence[str], tell: Tell, heard: Callable[[Message | None], None]
    ) -> None:
        """`heard` is told what the driver says, and None when it has ended."""
        self.number = number
        self.phase: Phase = "starting"
        self.restarts = 0
        self.trouble = ""
        """What was said last about why there is no driver; empty when all is well."""
        self.is_quiet = True
        """Until some driver was ready, its trouble is for whoever started the server to say."""
        self.broken: Broken | None = None
        """What the last driver said instead of hello, if none has said hello since."""
        self.cards: tuple[AgentCard, ...] = ()
        self._command = tuple(command)
        self._tell = tell
        self._heard = heard
        self._row: table.Row | None = None
        self._line: Line | None = None
        self._ready_at: float | None = None
        self._why_killed = ""
        self._is_wanted = True
        self._wake = asyncio.Event()
        self._pings = 0
        self._asked_at: float | None = None
        """When the oldest ping without an answer was sent."""

    @property
    def told(self) -> Told:
        return Told(self.number, self.phase, self.restarts)

    def is_it(self, owner: Owner) -> bool:
        """Whether `owner` of a lease is the driver that lives here now."""
        return self._row is not None and (owner.pid, owner.started) == self._row.key

    def has_pid(self, pid: int) -> bool:
        return self._row is not None and self._row.pid == pid

    # -- one life after the other

    async def keep(self) -> None:
        """Have a driver here until `end`; on return there is none."""
        pause = 0.0
        while self._is_wanted:
            how = await self._live()
            if not self._is_wanted:
                break
            if self._ready_at is None and self.broken is None:
                self.broken = Broken("driver_ended", f"The driver process {how} while it loaded the agents.")
            has_lived = self._ready_at is not None and time.monotonic() - self._ready_at >= LIVED_SECONDS
            pause = 0.0 if has_lived else min(max(2 * pause, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
            self._say_trouble(how, pause)
            self.phase = "resting"
            self.restarts += 1
            self._heard(None)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)
        self.phase = "ending"

    async def _live(self) -> str:
        """Start a driver, and return how it ended when it has."""
        self.phase, self._ready_at, self._asked_at, self._why_killed = "starting", None, None, ""
        try:
            process, ours = self._started()
        except OSError as error:
            return f"could not be started ({error})"
        gone = asyncio.Event()
        self._row = table.row(process.pid)
        ended = Exit(process.pid)
        line = self._line = Line(self._hear, gone.set)
        try:
            await asyncio.get_running_loop().create_connection(lambda: line, sock=ours)
            await ended.wait()
            with suppress(TimeoutError):  # what it said last is heard before it is judged
                await asyncio.wait_for(gone.wait(), 1.0)
        finally:
            if not ended:
                self._kill()
                await asyncio.shield(ended.wait())
            ended.close()
            line.close()
            code = process.wait()
            self._row = self._line = None
        return self._why_killed or _how(code)

    def _started(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        try:
            ours.setblocking(False)
            process = subprocess.Popen(
                [*self._command, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                # The server's own token is not for an agent's eyes: whoever has it may stop everything.
                env={name: value for name, value in os.environ.items() if name != VARIABLE},
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
        if not self.is_quiet and (trouble != self.trouble or self.broken is None):
            self._tell(f"{how} {again}")
            self.trouble = trouble

    def _hear(self, message: Message) -> None:
        if isinstance(message, Hello):
            self.phase, self.cards, self.broken, self._ready_at = "ready", message.cards, None, time.monotonic()
            if self.restarts:
                self._tell(f"Driver {self.number} is at work again.")
            self.trouble = ""
        elif isinstance(message, Broken):
            self.broken = message
        elif isinstance(message, Pong):
            if message.number == self._pings:
                self._asked_at = None
            return
        self._heard(message)

    # -- whether it answers

    def ping(self) -> None:
        """Ask for a sign of life, unless one is already waited for."""
        if self._line is not None and self.phase == "ready" and self._asked_at is None:
            self._pings += 1
            self._asked_at = time.monotonic()
            self._line.say(Ping(self._pings))

    def forgive(self) -> None:
        """Begin to wait anew: it was this process that stood still."""
        if self._asked_at is not None:
            self._asked_at = time.monotonic()

    @property
    def silent_seconds(self) -> float:
        """For how long its event loop has not answered."""
        return 0.0 if self._asked_at is None else time.monotonic() - self._asked_at

    def kill(self, why: str) -> None:
        """End it with SIGKILL. Its supervisor ends its tools."""
        if self._row is not None and not self._why_killed:
            self._why_killed = why
            self._kill()

    def _kill(self) -> None:
        if self._row is not None:
            table.send(self._row, signal.SIGKILL)

    # -- the end

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


class Slots:
    """All drivers of a server. `heard` is told each piece of text as it streams."""

    def __init__(self, count: int, command: Sequence[str], tell: Tell, heard: Callable[[str, Chunk], None]) -> None:
        self._heard_text = heard
        self.each = tuple(Slot(number, command, tell, self._heard) for number in range(1, count + 1))
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        self._cards: dict[str, AgentCard] = {}

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(slot.keep(), name=f"driver slot {slot.number}") for slot in self.each]

    @property
    def cards(self) -> dict[str, AgentCard]:
        """The agents that the drivers have; while none lives, those that the last one had."""
        return self._cards

    async def ready(self) -> Broken | None:
        """Return when a driver is ready; or, when every one of them has said why it cannot begin, what it said."""
        while not any(slot.phase == "ready" for slot in self.each):
            broken = [slot.broken for slot in self.each if slot.broken is not None]
            if len(broken) == len(self.each):
                return broken[0]
            await self._news.wait()
            self._news.clear()
        return None

    async def end(self, *, seconds: float = END_SECONDS + 5.0) -> None:
        """Have every driver pause its runs and end; one that takes too long is killed. On return there is none."""
        for slot in self.each:
            slot.end()
        _, late = await asyncio.wait(self._tasks, timeout=seconds) if self._tasks else ((), ())
        if late:
            self.kill()
            await asyncio.wait(late)

    def kill(self) -> None:
        """End every driver now. What they are doing is in doubt."""
        for slot in self.each:
            slot.kill("was killed")

    def _heard(self, message: Message | None) -> None:
        if isinstance(message, Live):
            for run, chunk in message.pieces:
                self._heard_text(run, chunk)
        elif isinstance(message, Hello):
            self._cards = {card.name: card for each in self.each for card in each.cards}
            for slot in self.each:
                slot.is_quiet = False
        self._news.set()


def _how(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"
