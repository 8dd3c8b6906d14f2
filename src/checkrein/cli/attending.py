"""Attending to a run in plain lines: print what happens, and let Ctrl-C and signals do what they are for.

In the terminal that drives the run the first Ctrl-C pauses, the second cancels, the third ends the process at once.
In one that only looks on it leaves. A request to end (SIGTERM) and a terminal that hangs up leave too; a runtime that
is closed then pauses its runs durably.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from checkrein.cli import hints
from checkrein.cli.feed import Feed
from checkrein.cli.interrupts import Interrupts, Press
from checkrein.core.evolve import evolve
from checkrein.core.orders import obstacle
from checkrein.core.words import Status
from checkrein.errors import CheckreinError
from checkrein.journal.contract import Recorded

if TYPE_CHECKING:
    from checkrein.cli.printing import Printer
    from checkrein.control.runs import Runtime
    from checkrein.control.verbs import Control
    from checkrein.core.state import State
    from checkrein.journal.contract import Journal

PATIENCE_SECONDS: Final = 1.0
"""After so long it is said what a verb waits for."""
_WHY: Final = "Ctrl-C"


class Attendance:
    """One person at one run. With a `runtime` it is driven here."""

    def __init__(
        self,
        journal: Journal,
        control: Control,
        run: str,
        printer: Printer,
        *,
        by: str,
        runtime: Runtime | None = None,
        leaves_when_paused: bool = False,
    ) -> None:
        self._journal = journal
        self._control = control
        self._run = run
        self._printer = printer
        self._by = by
        self._resume = hints.command(f"resume {run}")
        self._feed = Feed(journal, run, runtime)
        self._interrupts = Interrupts(owns=runtime is not None)
        self._owns = runtime is not None
        self._leaves_when_paused = leaves_when_paused
        self._leave = asyncio.Event()
        self._verbs: set[asyncio.Task[None]] = set()
        self.state: State | None = None

    async def attend(self) -> Status:
        """Until the run has ended or the person leaves; the status in which it was left."""
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGINT: self._press, signal.SIGTERM: self._leave.set, signal.SIGHUP: self._leave.set}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        printing = loop.create_task(self._print())
        leaving = loop.create_task(self._leave.wait())
        telling = loop.create_task(self._tell_what_it_waits_for())
        try:
            await asyncio.wait([printing, leaving], return_when=asyncio.FIRST_COMPLETED)
            if printing.done():
                printing.result()
        finally:
            tasks = (printing, leaving, telling, *self._verbs)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for number in handlers:
                loop.remove_signal_handler(number)
        return Status.QUEUED if self.state is None else self.state.status

    async def _print(self) -> None:
        async for item in self._feed.items():
            self._printer.item(item)
            if isinstance(item, Recorded):
                self._saw(item)
            if self._printer.is_unheard and not self._owns:
                return  # nobody looks any more

    def _saw(self, record: Recorded) -> None:
        before = None if self.state is None else self.state.status
        self.state = evolve(self.state, record.event, record.seq)
        self._interrupts.saw(self.state.status)
        if not self._owns or self.state.resumes_itself:
            return
        if self.state.status is Status.PAUSED and before is not Status.PAUSED:
            self._say_how_to_go_on()
        if self._leaves_when_paused and (self.state.status is Status.PAUSED or self.state.waiting()):
            self._leave.set()

    def _say_how_to_go_on(self) -> None:
        again = "" if self._leaves_when_paused else " Ctrl-C again cancels."
        self._printer.say(f"Paused. To go on, in another terminal: {self._resume}.{again}")

    async def _tell_what_it_waits_for(self) -> None:
        """When a verb takes long to settle: what for, whenever that changes."""
        told = ""
        while True:
            await asyncio.sleep(PATIENCE_SECONDS)
            pending = next((v for v in self.state.verbs if v.superseded_by is None), None) if self.state else None
            if self.state is None or pending is None or time.time() - pending.accepted_at < PATIENCE_SECONDS:
                continue
            waits_for = obstacle(self.state, pending, await self._journal.effects(self._run))
            if waits_for and waits_for != told:
                self._printer.say(f"The {pending.verb.value} still waits for {waits_for}.")
                told = waits_for

    # -- Ctrl-C

    def _press(self) -> None:
        match self._interrupts.press():
            case Press.LEAVE:
                self._leave.set()
            case Press.PAUSE:
                self._printer.say(f"Pausing. To go on later: {self._resume}. Ctrl-C again cancels.")
                self._ask(self._control.pause(self._run, by=self._by, reason=_WHY))
            case Press.IS_PAUSED:
                self._say_how_to_go_on()
            case Press.CANCEL:
                self._printer.say("Cancelling. Ctrl-C a third time kills this process.")
                self._ask(self._control.cancel(self._run, by=self._by, reason=_WHY))
            case Press.IS_CANCELLING:
                self._printer.say("It is being cancelled. Ctrl-C again kills this process.")
            case Press.KILL:
                self._printer.say("Killing this process. Its tools end with it; what they were doing is in doubt.")
                os.kill(os.getpid(), signal.SIGKILL)

    def _ask(self, verb: Coroutine[Any, Any, object]) -> None:
        """Have a verb done beside the printing, which will show its receipt."""
        task = asyncio.get_running_loop().create_task(self._done(verb))
        self._verbs.add(task)
        task.add_done_callback(self._verbs.discard)

    async def _done(self, verb: Coroutine[Any, Any, object]) -> None:
        try:
            await verb
        except CheckreinError as error:
            with suppress(OSError):
                self._printer.say(error.message)
