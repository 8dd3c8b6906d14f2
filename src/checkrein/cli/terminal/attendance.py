"""A person at a terminal with a program in it: the run's state on our line, and verbs by keys."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine
from typing import Any

from checkrein.cli import output
from checkrein.cli.terminal.keys import PREFIX_NAME, Keys
from checkrein.cli.terminal.relay import Relay
from checkrein.cli.terminal.session import Line
from checkrein.cli.wording import receipt_lines
from checkrein.core.enums import PAUSE_IN_FORCE, STOPPED, Status
from checkrein.core.escape import one_line
from checkrein.core.events import VerbSettled, WatcherFlagged
from checkrein.core.evolve import evolve
from checkrein.core.state import State
from checkrein.core.wording import STATUS_WORDS
from checkrein.errors import CheckreinError
from checkrein.runtime import Runtime

_log = logging.getLogger(__name__)

_WHY = "key"
SAID_SECONDS = 10.0
"""For so long a word about the run stands before what the keys do, which may have no room beside it."""


class Attendance:
    """One person at one program. Made before the run is, since the program needs its terminal."""

    def __init__(self, held: Line, name: str, *, by: str) -> None:
        self._name, self._by = name, by
        self._run = ""
        self._runtime: Runtime | None = None
        self._state: State | None = None
        self._said = self._receipt = ""
        self._unsaying: asyncio.TimerHandle | None = None
        self._verbs: set[asyncio.Task[None]] = set()
        self._leave = asyncio.Event()
        self._keys = Keys(self._press, self._redirect)
        self._relay = Relay(held, self._keys, self._line, on_loss=_end_with_the_terminal)

    @property
    def terminal(self) -> int:
        """For the program."""
        return self._relay.terminal

    async def attend(self, runtime: Runtime, run: str) -> Status:
        """Until the run has ended, or this process is asked to end; the status in which it was left."""
        self._runtime, self._run = runtime, run
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._leave.set)
        following, leaving = loop.create_task(self._follow()), loop.create_task(self._leave.wait())
        try:
            await asyncio.wait([following, leaving], return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
        finally:
            tasks = (following, leaving, *self._verbs)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._relay.close(self._last_words())
        return Status.QUEUED if self._state is None else self._state.status

    def print(self, text: str) -> None:
        """A line above what the program writes from now on."""
        self._relay.print(text)

    def say(self, text: str) -> None:
        """A word instead of what the keys do, for a while."""
        self._said = one_line(text, 200)
        self._relay.draw()
        if self._unsaying is not None:
            self._unsaying.cancel()
        self._unsaying = asyncio.get_running_loop().call_later(SAID_SECONDS, self._unsay)

    def _unsay(self) -> None:
        self._said = ""
        self._relay.draw()

    async def _follow(self) -> None:
        assert self._runtime is not None
        records = self._runtime.journal.follow(self._run)
        try:
            async for record in records:
                self._state = evolve(self._state, record.event, record.seq)
                if isinstance(record.event, VerbSettled):
                    self._receipt = receipt_lines(record.event.receipt)[0]
                    self.say(self._receipt)
                elif isinstance(record.event, WatcherFlagged):
                    self.say(record.event.what)
                self._relay.draw()
                if self._state.is_finished:
                    return
        finally:
            await records.aclose()

    def _last_words(self) -> str:
        stopped = self._state is not None and self._state.status in STOPPED
        return f"\n{self._name}: {self._receipt}\n" if stopped else ""

    # -- our line

    def _line(self) -> str:
        if (typed := self._keys.typed) is not None:
            return f" Redirect: {typed}_   Enter: tell it · Escape: leave it"
        status = "Starting" if self._state is None else STATUS_WORDS[self._state.status]
        verb = "resume" if self._state is not None and self._state.status in PAUSE_IN_FORCE else "pause"
        keys = f"p {verb} · r redirect · c cancel · d detach"
        keys = f"now: {keys}" if self._keys.is_chosen else f"{PREFIX_NAME} then {keys}"
        said = "" if self._keys.is_chosen or not self._said else f" · {self._said}"
        waiting = () if self._state is None else self._state.asked()
        needs = f" · needs you: {waiting[0].what}" if waiting else ""
        if said.startswith(f" · {status}"):
            status, said = "", said.removeprefix(" · ")  # a receipt says it once more
        return f" {status}{needs}{said} · {keys}"

    # -- verbs

    def _press(self, key: str) -> None:
        if self._runtime is None:
            return
        control, is_paused = self._runtime.control, self._state is not None and self._state.status in PAUSE_IN_FORCE
        match key:
            case "p" if is_paused:
                self._ask(control.resume(self._run, by=self._by, reason=_WHY))
            case "p":
                self._ask(control.pause(self._run, by=self._by, reason=_WHY))
            case "c":
                self._ask(control.cancel(self._run, by=self._by, reason=_WHY))
            case "r":
                self._keys.ask()
            case "d":
                how = output.command(f"watch {self._run}")
                self._relay.detach(f"Detached. {self._name} goes on as run {self._run}: {how}")

    def _redirect(self, text: str) -> None:
        if self._runtime is not None:
            self._ask(self._runtime.control.redirect(self._run, text, by=self._by, reason=_WHY))

    def _ask(self, verb: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(self._done(verb))
        self._verbs.add(task)
        task.add_done_callback(self._verbs.discard)

    async def _done(self, verb: Coroutine[Any, Any, object]) -> None:
        try:
            await verb
        except CheckreinError as error:
            _log.info("a verb was not taken: %s", error, extra={"run": self._run})
            self.say(error.message)


def _end_with_the_terminal() -> None:
    """The process that the shell waits for was killed, by which the run is meant. The supervisor ends the program."""
    os.kill(os.getpid(), signal.SIGKILL)
