"""Between a program on a terminal of its own and the terminal of the person, with our line below it.

Nothing here waits for the person's terminal: one that takes nothing more, as after Ctrl-S, must not keep a stop from
being carried out. So a thread writes to it, and no more is read from the program than it can take.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import termios
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

from checkrein.cli.terminal.keys import Keys
from checkrein.cli.terminal.screen import Screen
from checkrein.cli.terminal.session import HANGS_UP, Line

_PIECE: Final = 65536
_MOST_WAITING: Final = 1 << 20
"""So many bytes may wait for the person's terminal before the program has to."""
_LEAST_ROWS: Final = 4
"""A terminal that is lower has no line to spare."""
_DRAW_SECONDS: Final = 0.05
_DRAIN_SECONDS: Final = 1.0


class Relay:
    """Made on the event loop; `terminal` is for the program. `line` draws our line: what it says now."""

    def __init__(self, held: Line, keys: Keys, line: Callable[[], str], on_loss: Callable[[], None]) -> None:
        self._held, self._keys, self._text, self._on_loss = held, keys, line, on_loss
        self._loop = asyncio.get_running_loop()
        self._master, self.terminal = pty.openpty()
        termios.tcsetattr(self.terminal, termios.TCSANOW, held.attributes)  # type: ignore[arg-type]
        self._screen = Screen(*self._resized())
        os.set_blocking(self._master, False)
        self._input = b""
        self._drawing: asyncio.TimerHandle | None = None
        self._shown = ""
        self._is_attached = True
        self._is_over = asyncio.Event()
        self._writer = _Writer(1)
        # Our line is made room for below whatever the shell has written last.
        self._writer.put(b"\r\n\x1b[A" + self._screen.begin_region())
        self._loop.add_reader(self._master, self._read)
        self._loop.add_reader(0, self._typed)
        self._loop.add_reader(held.lives, self._heard)
        self._loop.add_signal_handler(signal.SIGWINCH, self._resize)
        self.draw()

    # -- sizes

    def _resized(self) -> tuple[int, int]:
        """Give the program's terminal its size; how high and wide that is."""
        rows, columns, *pixels = struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))
        rows, columns = rows or 24, columns or 80
        rows = rows - 1 if rows >= _LEAST_ROWS else rows
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, *pixels))
        return rows, columns

    def _resize(self) -> None:
        if self._is_attached:
            self._screen.rows, self._screen.columns = self._resized()
            self._screen.is_dirty = True
            self._writer.put(self._screen.begin_region())
            self.draw()

    # -- what the program writes

    def _read(self) -> None:
        try:
            data = os.read(self._master, _PIECE)
        except BlockingIOError:
            return
        except OSError:  # nobody has the other end any more
            data = b""
        if not data:
            self._loop.remove_reader(self._master)
            self._is_over.set()
            return
        if not self._is_attached:
            return
        self._writer.put(self._screen.feed(data))
        self.draw()
        if self._writer.waiting > _MOST_WAITING:
            self._loop.remove_reader(self._master)
            self._loop.call_later(0.01, self._read_again)

    def _read_again(self) -> None:
        if self._writer.waiting > _MOST_WAITING // 2:
            self._loop.call_later(0.01, self._read_again)
        elif not self._is_over.is_set():
            self._loop.add_reader(self._master, self._read)

    def print(self, text: str) -> None:
        """A line of ours among those of the program."""
        if self._is_attached:
            self._writer.put(self._screen.feed(f"{text}\r\n".encode()))
            self.draw()

    # -- our line

    def draw(self) -> None:
        """Draw our line soon, if it has changed or was wiped out."""
        if self._is_attached and self._drawing is None:
            self._drawing = self._loop.call_later(_DRAW_SECONDS, self._draw)

    def _draw(self) -> None:
        self._drawing = None
        text = self._text()
        if not self._is_attached or (text == self._shown and not self._screen.is_dirty):
            return
        if not self._screen.can_draw:
            self.draw()
            return
        self._shown = text
        self._writer.put(self._screen.line(text))

    # -- what the person types

    def _typed(self) -> None:
        try:
            data = os.read(0, _PIECE)
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(0)
            self.detach("")
            return
        self._input += self._keys.feed(data)
        self.draw()
        self._pass_on()

    def _pass_on(self) -> None:
        """To the program, which may take nothing now: one that is frozen reads it when it goes on."""
        self._loop.remove_writer(self._master)
        try:
            self._input = self._input[os.write(self._master, self._input) :]
        except BlockingIOError:
            self._loop.add_writer(self._master, self._pass_on)
        except OSError:
            self._input = b""
        if len(self._input) > _MOST_WAITING:
            self._input = b""

    # -- the terminal itself

    def _heard(self) -> None:
        if os.read(self._held.lives, 1) == HANGS_UP:
            self.detach("")
            return
        self._loop.remove_reader(self._held.lives)
        if self._is_attached:
            self._on_loss()

    def detach(self, words: str) -> None:
        """Let go of the person's terminal. The program keeps its own, and what it writes is read and dropped."""
        if self._is_attached:
            self._leave(lives=True)
            with suppress(OSError):
                self._held.detach(words)

    def _leave(self, *, lives: bool = False) -> None:
        self._is_attached = False
        for descriptor in (0, self._held.lives):
            self._loop.remove_reader(descriptor)
        if self._drawing is not None:
            self._drawing.cancel()
        self._writer.put(self._screen.end(lives=lives))
        self._writer.close()

    async def close(self, last_words: str = "") -> None:
        """The program is over: what it wrote last is shown, and the terminal given back."""
        os.close(self.terminal)
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                await self._is_over.wait()
        self._loop.remove_reader(self._master)
        self._loop.remove_writer(self._master)
        if self._is_attached:
            self._leave()
            if last_words:
                os.write(1, last_words.replace("\n", "\r\n").encode())


class _Writer:
    """Writes to a terminal in a thread of its own, in order."""

    def __init__(self, descriptor: int) -> None:
        # Each is changed by one thread only.
        self._put = self._written = 0
        self._descriptor = descriptor
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._write, daemon=True, name="terminal")
        self._thread.start()

    @property
    def waiting(self) -> int:
        return self._put - self._written

    def put(self, data: bytes) -> None:
        if data:
            self._put += len(data)
            self._queue.put(data)

    def close(self) -> None:
        """Return when all is written, or the terminal takes nothing more."""
        self._queue.put(None)
        self._thread.join(_DRAIN_SECONDS)

    def _write(self) -> None:
        while (data := self._queue.get()) is not None:
            size = len(data)
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:  # the terminal is gone: the process that holds it says so
                data = b""
            self._written += size
