"""`checkrein exec` at a terminal: a full-screen program looks as always, above one line of ours; keys for verbs."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import sys
import termios

import pyte
import pytest

from checkrein.cli.terminal.keys import Keys
from checkrein.cli.terminal.screen import Screen
from tests.cli.shell import Shell, Started, until
from tests.cli.test_exec import TICKS, is_quiet, none_left, ticks

FULL = """
import curses
def main(screen):
    while True:
        screen.erase()
        rows, columns = screen.getmaxyx()
        screen.border("|", "|", "-", "-", "+", "+", "+", "+")
        screen.addstr(1, 2, f"{rows} x {columns}")
        screen.addstr(rows - 2, 2, "the last line but one")
        screen.refresh()
        key = screen.getch()
        if key == ord("q"):
            return
curses.wrapper(main)
"""
PREFIX = "\x1d"


def resize(started: Started, rows: int, columns: int) -> None:
    fcntl.ioctl(started._source, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def shown(started: Started, rows: int, columns: int, after: int = 0) -> list[str]:
    """What a person sees: all that was written, on a terminal of this size."""
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    stream.feed(re.sub(rb"\x1b\[\?1049[hl]", b"\x1b[2J", started.raw[after:]))
    return list(screen.display)


def expected(rows: int, columns: int) -> list[str]:
    edge, empty = "+" + "-" * (columns - 2) + "+", "|" + " " * (columns - 2) + "|"
    lines = [edge, *[empty] * (rows - 2), edge]
    lines[1] = f"| {rows} x {columns}".ljust(columns - 1) + "|"
    lines[-2] = "| the last line but one".ljust(columns - 1) + "|"
    return lines


def test_a_full_screen_program_looks_as_always_and_is_resized(shell: Shell) -> None:
    started = shell.terminal("exec", "--", sys.executable, "-c", FULL, variables={"LINES": "24"})
    resize(started, 24, 80)
    until(lambda: shown(started, 24, 80)[:23] == expected(23, 80), lambda: "\n".join(shown(started, 24, 80)))
    until(lambda: "pause" in shown(started, 24, 80)[23])

    before = len(started.raw)
    resize(started, 30, 100)
    os.kill(started.process.pid, signal.SIGWINCH)
    until(
        lambda: shown(started, 30, 100, before)[:29] == expected(29, 100),
        lambda: "\n".join(shown(started, 30, 100, before)),
    )
    started.keys("q")

    assert started.wait() == 0


def start(shell: Shell) -> Started:
    started = shell.terminal("exec", "--", sys.executable, "-c", TICKS)
    resize(started, 24, 80)
    until(lambda: ticks(shell) > 1)
    started.until("Running")
    return started


def test_keys_pause_resume_and_cancel(shell: Shell) -> None:
    """D1 D2 D20"""
    started = start(shell)

    started.keys(PREFIX + "p")
    started.until("Paused")
    assert is_quiet(shell)
    started.keys(PREFIX + "p")
    before = ticks(shell)
    until(lambda: ticks(shell) > before + 1)
    started.keys(PREFIX + "c")

    assert started.wait() == 3
    none_left(shell)


def test_detached_it_goes_on_without_a_terminal_and_can_be_stopped_from_elsewhere(shell: Shell) -> None:
    """D16"""
    started = start(shell)

    started.keys(PREFIX + "d")
    assert started.wait() == 0
    assert "goes on as run r-" in started.text
    before = ticks(shell)
    until(lambda: ticks(shell) > before + 1)

    assert shell.say("cancel", "last").code == 0
    none_left(shell)


def test_the_words_at_a_detach_stand_on_a_line_of_their_own(shell: Shell) -> None:
    """Wherever a full-screen program has left the cursor."""
    started = shell.terminal(
        "exec", "--", sys.executable, "-c", "print('\\x1b[2J\\x1b[3;9Hhere', end='', flush=True); input()"
    )
    resize(started, 24, 100)
    os.kill(started.process.pid, signal.SIGWINCH)
    until(lambda: "here" in shown(started, 24, 100)[2])
    until(lambda: "Running" in shown(started, 24, 100)[23])

    started.keys(PREFIX + "d")

    assert started.wait() == 0
    lines = shown(started, 24, 100)
    assert lines[1].strip() == "here"
    assert lines[22].startswith("Detached.")
    assert shell.say("cancel", "last").code == 0


def test_whoever_kills_the_process_that_the_shell_waits_for_ends_the_program(shell: Shell) -> None:
    """D4 D26"""
    started = start(shell)

    os.kill(started.process.pid, signal.SIGKILL)

    none_left(shell)
    assert is_quiet(shell)


# -- what is kept off our line


@pytest.mark.parametrize(
    ("written", "passed"),
    [
        (b"plain \xc3\xa4", b"plain \xc3\xa4"),
        (b"\x1b[r", b"\x1b[1;23r"),
        (b"\x1b[1;24r", b"\x1b[1;23r"),
        (b"\x1b[3;9r", b"\x1b[3;9r"),
        (b"\x1b[999;999H", b"\x1b[23;999H"),
        (b"\x1b[24d", b"\x1b[23d"),
        (b"\x1b[5;7H\x1b[H", b"\x1b[5;7H\x1b[H"),
        (b"\x1bc", b"\x1bc\x1b[1;23r"),
        (b"\x1b[!p", b"\x1b[!p\x1b7\x1b[1;23r\x1b8"),
        (b"\x1b]0;title\x07\x1b]8;;x\x1b\\link", b"\x1b]0;title\x07\x1b]8;;x\x1b\\link"),
    ],
)
def test_only_what_would_reach_our_line_is_changed_however_it_is_cut(written: bytes, passed: bytes) -> None:
    for cut in range(len(written) + 1):
        screen = Screen(23, 80)
        assert screen.feed(written[:cut]) + screen.feed(written[cut:]) == passed
        assert screen.can_draw


def test_our_line_is_not_drawn_in_the_middle_of_a_sequence_nor_while_the_cursor_is_saved() -> None:
    screen = Screen(23, 80)

    for unfinished in (b"\x1b", b"[3", b"1m\x1b]0;title", b"\x07\xc3"):
        screen.feed(unfinished)
        assert not screen.can_draw
    screen.feed(b"\xa4\x1b7")
    assert not screen.can_draw
    screen.feed(b"\x1b8")
    assert screen.can_draw


def test_keys_without_the_prefix_are_the_programs_own() -> None:
    pressed: list[str] = []
    told: list[str] = []
    keys = Keys(pressed.append, told.append)

    assert keys.feed(b"p\x03\x1d\x1dq\x1dp") == b"p\x03\x1dq"
    keys.ask()
    assert keys.feed("only Q4\x7f3 ä\rx".encode()) == b"x"
    keys.ask()
    assert keys.feed(b"never\x1by") == b"y"

    assert (pressed, told) == (["p"], ["only Q3 ä"])
