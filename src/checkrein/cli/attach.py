"""A run attached to this terminal: on the whole screen, in plain lines, or as JSON; driven here, or only looked at.

In the terminal that drives the run the first Ctrl-C pauses, the second cancels, the third ends the process at once. In
one that only looks on, and once the run has ended, it leaves. A request to end (SIGTERM) and a terminal that hangs up
leave too; a runtime that is closed then pauses its runs durably.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

from checkrein import logs
from checkrein.cli import output
from checkrein.cli.printers import JsonPrinter, PlainPrinter, Printer
from checkrein.cli.wording import receipt_lines, value_of
from checkrein.control.feed import items
from checkrein.control.viewer import look
from checkrein.core.enums import FENCING, GOING_ON, STOPPED, TERMINAL, CallKind, EffectState, Outcome, Status
from checkrein.core.escape import one_line, printable
from checkrein.core.evolve import evolve
from checkrein.core.orders import obstacle
from checkrein.core.wording import ENDED, clock, not_done
from checkrein.errors import CheckreinError
from checkrein.journal.base import Recorded

if TYPE_CHECKING:
    from checkrein.control.control import Control
    from checkrein.control.view import RunView
    from checkrein.core.state import State
    from checkrein.journal.base import Journal
    from checkrein.processes.capture import Taps
    from checkrein.runtime import Runtime


_log = logging.getLogger(__name__)


class Press(Enum):
    """What one press of Ctrl-C asks for."""

    LEAVE = auto()
    PAUSE = auto()
    IS_PAUSED = auto()
    """Nothing yet: it is paused already, and the first press never destroys anything."""
    CANCEL = auto()
    IS_CANCELLING = auto()
    KILL = auto()


class Interrupts:
    """Counts presses. A run that was paused and goes on begins anew."""

    def __init__(self, *, owns: bool) -> None:
        self._owns = owns
        self._presses = 0
        self._status: Status | None = None

    @property
    def is_pressed(self) -> bool:
        return self._presses > 0

    def saw(self, status: Status) -> None:
        """Take in what the run's events say."""
        if self._status is Status.PAUSED and status in GOING_ON:
            self._presses = 0
        self._status = status

    def press(self) -> Press:
        if not self._owns or self._status in TERMINAL:
            return Press.LEAVE
        self._presses += 1
        if self._presses > 2:
            return Press.KILL
        if self._status is Status.CANCELLING:
            self._presses = 2
            return Press.IS_CANCELLING
        if self._presses == 2:
            return Press.CANCEL
        return Press.IS_PAUSED if self._status is Status.PAUSED else Press.PAUSE


PATIENCE_SECONDS: Final = 1.0
"""After so long it is said what a verb waits for."""
_WHY: Final = "Ctrl-C"


class PlainAttachment:
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
        in_memory: bool = False,
    ) -> None:
        self._journal = journal
        self._control = control
        self._run = run
        self._printer = printer
        self._by = by
        self._in_memory = in_memory
        self._items = items(journal, run, None if runtime is None else runtime.listen)
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
        async for item in self._items:
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
        self._printer.say(f"Paused. {self._how_to_resume('To go on, in another terminal')}{again}")

    def _how_to_resume(self, when: str) -> str:
        if self._in_memory:
            return "It is in memory only: no other terminal can reach it to go on."
        return f"{when}: {output.command(f'resume {self._run}')}."

    async def _tell_what_it_waits_for(self) -> None:
        """When a verb takes long to settle: what for, whenever that changes."""
        told = ""
        while True:
            await asyncio.sleep(PATIENCE_SECONDS)
            pending = next((v for v in self.state.verbs if v.superseded_by is None), None) if self.state else None
            if self.state is None or pending is None or self._journal.now() - pending.accepted_at < PATIENCE_SECONDS:
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
                self._printer.say(f"Pausing. {self._how_to_resume('To go on later')} Ctrl-C again cancels.")
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
            _log.info("a verb was not taken: %s", error, extra={"run": self._run})
            with suppress(OSError):
                self._printer.say(error.message)


async def result_of(journal: Journal, run: str) -> dict[str, Any]:
    """The last line of JSON."""
    view = await look(journal, run, at=journal.now())
    return {"type": "result", "run": run, "status": view.status, "result": view.result, "error": view.error}


async def last_words(journal: Journal, run: str) -> list[str]:
    """What is worth reading once the screen is gone."""
    view = await look(journal, run, at=journal.now())
    return [f"Run {run} {ENDED.get(view.status, view.status.value)} after {clock(view.elapsed_seconds)}.", *_rest(view)]


def _rest(view: RunView) -> list[str]:
    if view.status is Status.COMPLETED:
        said = printable(view.result if isinstance(view.result, str) else value_of(view.result))
        unknown = {effect.id for effect in view.effects if effect.now is EffectState.IN_DOUBT}
        missing = not_done(
            (call.name, Outcome.IN_DOUBT if call.id in unknown else call.now)
            for call in view.calls
            if call.kind in (CallKind.TOOL, CallKind.RUN)
        )
        return [said, *([missing] if missing else [])]
    if view.status is Status.FAILED:
        return [one_line(view.error or "")]
    if view.status in STOPPED:
        stop = [receipt for receipt in view.receipts if receipt.verb in FENCING]
        return receipt_lines(stop[-1]) if stop else []
    return []


def how_to_go_on(run: str) -> str:
    """After a run was left unfinished."""
    return f"It is kept. To go on with it: {output.take_up(run)}"


NOT_KEPT: Final = "It was in memory only, and is gone: with --store PATH it would be kept."


_KEPT_PRINTS: Final = 200
"""How many lines that tools print are kept while the screen is up."""


class Manner(NamedTuple):
    """How a run is to be shown."""

    json: bool = False
    plain: bool = False
    is_terminal: bool = False
    leave: bool = False
    by: str = ""
    can_be_taken_up: bool = True
    """False: the run ends with this process for good, whatever it is left in."""
    in_memory: bool = False
    """Nothing of the run is kept, and no other process can reach it."""

    def left_unfinished(self, run: str) -> str:
        """What is said to whoever has left the run; empty: nothing."""
        if self.in_memory:
            return NOT_KEPT
        return how_to_go_on(run) if self.can_be_taken_up else ""

    @property
    def is_screen(self) -> bool:
        return self.is_terminal and not (self.json or self.plain)


async def attach(
    journal: Journal,
    control: Control,
    run: str,
    manner: Manner,
    *,
    runtime: Runtime | None = None,
    taps: Taps | None = None,
) -> int:
    """Show the run until it ends or the person leaves; the exit code that says how that was."""
    if manner.is_screen:
        return await _on_screen(journal, control, run, manner, runtime, taps)
    printer: Printer = JsonPrinter(*_streams(taps)) if manner.json else PlainPrinter(_streams(taps)[0])
    if taps is not None:
        taps.tell = _in_loop(printer.tool_print)
    attendance = PlainAttachment(
        journal,
        control,
        run,
        printer,
        by=manner.by,
        runtime=runtime,
        leaves_when_paused=manner.leave,
        in_memory=manner.in_memory,
    )
    status = await attendance.attend()
    if manner.json:
        printer.end(await result_of(journal, run))
    if status in TERMINAL:
        return output.of_status(status)
    if runtime is None:
        return output.DONE
    if words := manner.left_unfinished(run):
        printer.say(words)
    return output.PAUSED


async def _on_screen(
    journal: Journal, control: Control, run: str, manner: Manner, runtime: Runtime | None, taps: Taps | None
) -> int:
    from checkrein.cli.screen import Left
    from checkrein.cli.screen import attach as show

    printed: deque[str] = deque(maxlen=_KEPT_PRINTS)
    if taps is not None:
        taps.tell = printed.append
    with logs.held():
        left = await show(
            *(runtime, journal, control, run), owns=runtime is not None, by=manner.by, is_kept=manner.can_be_taken_up
        )
    out, err = _streams(taps)
    for line in printed:
        print(f"printed: {printable(line)}", file=err, flush=True)
    if left is Left.KILL:
        print("Killing this process. Its tools end with it; what they were doing is in doubt.", file=err, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    status = (await journal.load(run)).status
    if runtime is not None or status in TERMINAL:
        print(*await last_words(journal, run), sep="\n", file=out, flush=True)
    if status in TERMINAL:
        return output.of_status(status)
    if runtime is not None and (words := manner.left_unfinished(run)):
        print(words, file=out, flush=True)
    return output.PAUSED if runtime is not None else output.DONE


def _streams(taps: Taps | None) -> tuple[TextIO, TextIO]:
    return (sys.stdout, sys.stderr) if taps is None else (taps.out, taps.err)


def _in_loop(tell: Callable[[str], None]) -> Callable[[str], None]:
    """The same from another thread; once the loop is gone, directly."""
    loop = asyncio.get_running_loop()

    def told(line: str) -> None:
        try:
            loop.call_soon_threadsafe(tell, line)
        except RuntimeError:
            tell(line)

    return told
