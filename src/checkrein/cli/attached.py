"""A run attached to this terminal: on the whole screen, in plain lines, or as JSON; driven here, or only looked at."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

from checkrein.cli import exits
from checkrein.cli.attending import Attendance
from checkrein.cli.clean import printable
from checkrein.cli.ending import how_to_go_on, last_words, result_of
from checkrein.cli.printing import JsonPrinter, PlainPrinter, Printer
from checkrein.core.words import TERMINAL

if TYPE_CHECKING:
    from checkrein.cli.prints import Taps
    from checkrein.control.runs import Runtime
    from checkrein.control.verbs import Control
    from checkrein.journal.contract import Journal

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
    attendance = Attendance(
        journal, control, run, printer, by=manner.by, runtime=runtime, leaves_when_paused=manner.leave
    )
    status = await attendance.attend()
    if manner.json:
        printer.end(await result_of(journal, run))
    if status in TERMINAL:
        return exits.of_status(status)
    if runtime is None:
        return exits.DONE
    if manner.can_be_taken_up:
        printer.say(how_to_go_on(run))
    return exits.PAUSED


async def _on_screen(
    journal: Journal, control: Control, run: str, manner: Manner, runtime: Runtime | None, taps: Taps | None
) -> int:
    from checkrein.cli.screen import Left
    from checkrein.cli.screen import attach as show

    printed: deque[str] = deque(maxlen=_KEPT_PRINTS)
    if taps is not None:
        taps.tell = printed.append
    left = await show(runtime, journal, control, run, owns=runtime is not None, by=manner.by)
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
        return exits.of_status(status)
    if runtime is not None and manner.can_be_taken_up:
        print(how_to_go_on(run), file=out, flush=True)
    return exits.PAUSED if runtime is not None else exits.DONE


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
