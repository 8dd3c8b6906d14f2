"""A network between two programs that can be made to swallow everything: no data, no end, no refusal."""

from __future__ import annotations

import select
import socket
import threading
from types import TracebackType
from typing import Self


class CutNetwork:
    """Passes connections to `port` on this machine on to a server, until `is_cut`. What was begun then stays silent."""

    def __init__(self, server_port: int) -> None:
        self.is_cut = False
        self._server_port = server_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._is_over = False
        self._swallowed: list[socket.socket] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over = True
        self._thread.join()
        for one in [*self._swallowed, *(one for pair in self._pairs for one in pair), self._listening]:
            one.close()

    def restore(self) -> None:
        """New connections go through again. Those that were swallowed stay so, as after a network that was rebuilt."""
        self._swallowed += [one for pair in self._pairs for one in pair]
        self._pairs = []
        self.is_cut = False

    def _run(self) -> None:
        while not self._is_over:
            ends = {} if self.is_cut else {a: b for one, two in self._pairs for a, b in ((one, two), (two, one))}
            ready, _, _ = select.select([self._listening, *ends], [], [], 0.02)
            for one in ready:
                if one is self._listening:
                    self._accept()
                elif not self.is_cut:
                    self._pass_on(one, ends[one])

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        self._pairs.append((client, socket.create_connection(("127.0.0.1", self._server_port))))

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        try:
            data = one.recv(65536)
            other.sendall(data)
        except OSError:
            data = b""
        if not data:
            self._pairs = [pair for pair in self._pairs if one not in pair]
            one.close()
            other.close()
