"""The screen as a person has it: a real process in a real terminal, with keys, signals and windows of any size."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.cli.screen.program import NASTY
from tests.cli.screen.terminal import ROOT, Terminal, wait_for
from tests.support.agent_tools import lines, times
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import is_alive

CTRL_C = "\x03"
ENTER = "\r"
ESCAPE = "\x1b"


def run_of(log: str) -> str:
    wait_for(lambda: any(line.startswith("run ") for line in lines(log)))
    return next(line for line in lines(log) if line.startswith("run ")).split()[1]


def bar_of(terminal: Terminal) -> list[str]:
    """The lines from the first control on, to the bottom."""
    shown = terminal.lines()
    first = next((n for n, line in enumerate(shown) if line.startswith("  p  ")), len(shown))
    return shown[first:]


def test_text_is_harmless_the_bar_stays_in_view_and_p_pauses_and_resumes(log: str, store: str) -> None:
    """D11 D17 D18 D19 D20 D24"""
    with Terminal("talk", log, store) as terminal:
        terminal.until("▶ Running", "p  Pause", "c  Cancel", "step 1 of 3", "turn 1 of 50")
        wait_for(lambda: "no markup" in terminal.text().replace("\n ┊ ", " "), terminal.text)
        shown = " ".join(line.strip(" ┊") for line in terminal.lines())
        assert "\\x1b[31mred\\x1b[0m and \\x07 and [bold]no markup[/bold]" in shown, NASTY
        assert [line.split()[1] for line in bar_of(terminal)[:3]] == ["Pause", "Redirect", "Cancel"]

        terminal.resize(60, 15)
        wait_for(lambda: len(bar_of(terminal)) == 3, terminal.text)
        terminal.until("▶ Running", "p  Pause", "r  Redirect", "c  Cancel", "step 1 of 3")
        terminal.resize(40, 10)
        wait_for(lambda: len(bar_of(terminal)) == 3, terminal.text)
        terminal.until("▶ Running", "p  Pause", "r  Redirect", "c  Cancel")

        terminal.resize(80, 24)
        terminal.keys("p")
        terminal.until("‖ Paused", "p  Resume", "Stopped in")
        terminal.keys("p")
        terminal.until("▶ Running", "p  Pause")
        terminal.keys("p")
        terminal.until("‖ Paused")
        terminal.keys("q")

        assert terminal.ended() == 0
        assert terminal.sees("LEFT paused")


def test_letters_typed_into_the_redirect_trigger_nothing_and_it_arrives_at_the_model(log: str, store: str) -> None:
    """D21 D38"""
    with Terminal("crunch", log, store) as terminal:
        wait_for(lambda: "tick" in lines(log), terminal.text)
        terminal.until("▶ Running", "crunch")

        terminal.keys("r")
        terminal.until("Redirect.", "the agent works on until you send", "Score churn risk")
        terminal.keys(" pcqx only Q3")
        terminal.until("Score churn risk pcqx only Q3")
        ticks = lines(log).count("tick")
        wait_for(lambda: lines(log).count("tick") > ticks + 2)
        assert terminal.sees("▶ Running")
        terminal.keys(ESCAPE)
        terminal.until_gone("pcqx only Q3")
        terminal.keys("r")
        terminal.until("Score churn risk pcqx only Q3")

        terminal.keys(ENTER)

        wait_for(lambda: "told Score churn risk pcqx only Q3" in lines(log), terminal.text)
        told_at = times(log, "told Score churn risk pcqx only Q3")[0]
        terminal.until("As you say.", "▶ Running")
        assert max(times(log, "tick")) <= told_at


def test_a_pause_names_what_it_waits_for_x_aborts_it_and_c_leaves_a_receipt(log: str, store: str) -> None:
    """D1 D5 D18 D22 D33"""
    with Terminal("crunch", log, store, columns=100, rows=30) as terminal:
        wait_for(lambda: "tick" in lines(log), terminal.text)
        child = int(next(line for line in lines(log) if line.startswith("child ")).split()[1])

        terminal.keys("p")
        terminal.until("◐ Pausing…", "waits for crunch to finish,", "x  Don't wait  abort crunch")
        assert not terminal.sees("‖ Paused")
        terminal.keys("x")
        terminal.until("‖ Paused")
        seen_at = time.time()
        wait_for(lambda: not is_alive(child))

        terminal.keys("c")
        terminal.until("■ Cancelled", "0 tokens after", "Undone: make_draft", "To go on from here", "q  Leave")
        assert "discard draft-7" in lines(log)
        assert max(times(log, "tick")) <= seen_at
        terminal.keys("q")

        assert terminal.ended() == 0
        assert terminal.sees("LEFT finished")


def test_the_first_ctrl_c_pauses_the_second_cancels_the_third_ends_it_at_once(log: str, store: str) -> None:
    with Terminal("stubborn", log, store) as terminal:
        terminal.until("And now I talk.", "▶ Running")
        run = run_of(log)

        terminal.process.send_signal(signal.SIGINT)  # does the same as the key
        terminal.until("‖ Paused", "Ctrl-C again cancels", "p resumes", f"checkrein resume {run}")
        terminal.keys(CTRL_C)
        terminal.until(
            "◐ Cancelling…", "waits for the undo of make_lasting_draft", "Ctrl-C again ends this process at once"
        )
        wait_for(lambda: "discarding" in lines(log))
        terminal.keys(CTRL_C)

        assert terminal.ended() == 137
        assert terminal.sees("LEFT kill")


def test_three_ctrl_c_end_a_process_whose_event_loop_is_blocked(log: str, store: str) -> None:
    """D16: an async tool that blocks cannot keep the person from ending it."""
    with Terminal("wedged", log, store) as terminal:
        wait_for(lambda: "blocking" in lines(log), terminal.text)

        deadline = time.monotonic() + PATIENCE_SECONDS
        while terminal.process.poll() is None and time.monotonic() < deadline:
            with suppress(OSError):  # it has just ended
                terminal.keys(CTRL_C)
            time.sleep(0.6)

        assert terminal.ended() == -signal.SIGKILL
        assert terminal.sees("What it was doing is in doubt.")


@pytest.fixture
def elsewhere(log: str, store: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process without a screen in which a run is at work."""
    command = [sys.executable, "-m", "tests.cli.screen.program", "silent-crunch", log, store]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: "tick" in lines(log))
        yield process
    finally:
        process.kill()
        process.wait()


def test_leaving_a_watched_run_leaves_it_running_and_one_whose_process_died_does_not_look_so(
    log: str, store: str, elsewhere: subprocess.Popen[bytes]
) -> None:
    """D2"""
    with Terminal("watch", log, store, run_of(log)) as terminal:
        terminal.until("▶ Running", "Now the numbers.", "crunch", "q or Ctrl-C leaves, the run goes on")

        terminal.keys(CTRL_C)

        assert terminal.ended() == 0
        assert terminal.sees("LEFT detached")
    ticks = lines(log).count("tick")
    wait_for(lambda: lines(log).count("tick") > ticks + 3)

    with Terminal("watch", log, store, run_of(log)) as terminal:
        terminal.until("▶ Running", "c  Cancel")
        assert not terminal.sees("no process drives it now")

        elsewhere.kill()

        terminal.until("no process drives it now")


def test_a_watched_run_can_be_stopped_from_there(log: str, store: str, elsewhere: subprocess.Popen[bytes]) -> None:
    """D27"""
    with Terminal("watch", log, store, run_of(log)) as terminal:
        terminal.until("▶ Running", "c  Cancel")
        child = int(next(line for line in lines(log) if line.startswith("child ")).split()[1])

        terminal.keys("c")

        terminal.until("■ Cancelled", "crunch (killed", "Undone: make_draft")
        ticks = lines(log).count("tick")
        wait_for(lambda: not is_alive(child))
        assert lines(log).count("tick") == ticks
