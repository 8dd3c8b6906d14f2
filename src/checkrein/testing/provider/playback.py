"""One answer being sent: token by token in time, as the scenario says, until it ends, breaks or nobody is there.

It is made of callbacks rather than tasks: two hundred answers at a time cost one timer each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from checkrein.testing.provider.http import LAST_CHUNK, chunks, head
from checkrein.testing.provider.log import How, Log, Request
from checkrein.testing.provider.scenario import Fault, Reply
from checkrein.testing.provider.wire import ERROR_STATUS, Answer, Problem

BURST: Final = 256
"""Tokens sent at once where no pace is asked for, before others get their turn."""
STREAM: Final = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
JSON: Final = "application/json"


NO_ANSWER: Final = Answer({}, b"", b"", [], [], b"", b"", lambda _: b"", lambda _: b"")
"""Where there is a problem instead."""


class Line(Protocol):
    """The connection that an answer goes out on."""

    def send(self, data: bytes) -> None: ...
    def released(self) -> None:
        """The answer is over; the next request may be served."""

    def cut(self, reset: bool) -> None:
        """Break the connection, with a reset or by closing it."""

    @property
    def full(self) -> bool:
        """The client does not read what has been sent."""


class Playing:
    """Plays `answer`, or a problem in its place, to `line`, and writes down in `request` what happens."""

    def __init__(self, line: Line, request: Request, log: Log, reply: Reply, answer: Answer | Problem) -> None:
        self._line = line
        self._request = request
        self._log = log
        self._reply = reply
        self._problem = answer if isinstance(answer, Problem) else None
        self._answer = answer if isinstance(answer, Answer) else NO_ANSWER
        self._fault: Fault | None = reply.fault
        self._timer: asyncio.Handle | None = None
        self._next = 0
        self._began = 0.0
        self._waits = False  # for the client to read what it has been sent
        self._loop = asyncio.get_running_loop()

    def begin(self) -> None:
        if self._fault is not None:
            self._request.fault = self._fault.kind
        if self._fault is not None and self._fault.never_answers:
            return
        wait = self._reply.first_byte_after
        if not self._request.stream and self._reply.tokens_per_second:
            wait += len(self._answer.pieces) / self._reply.tokens_per_second
        if wait:
            self._later(wait, self._first_byte)
        else:
            self._first_byte()

    # -- what happens to it

    def gone(self) -> None:
        """The client has closed its side, or the connection broke. Noticed now, whenever the next token is due."""
        request = self._request
        if request.how or request.disconnected_at is not None:
            return
        request.disconnected_at = time.monotonic()
        if self._reply.keeps_generating and self._began and self._reply.tokens_per_second:
            self._log.changed()  # the timer goes on
        else:
            self._end("disconnected")

    def room(self) -> None:
        """The client reads again."""
        if self._waits:
            self._waits = False
            self._step()

    def shut(self) -> None:
        """The provider is closing."""
        if not self._request.how:
            self._end("shutdown")

    # -- beginning

    def _first_byte(self) -> None:
        request, answer = self._request, self._answer
        if self._problem is not None:
            send_problem(self._line, request, self._log, self._problem, "fault")
            return
        request.first_byte_at = time.monotonic()
        request.status = 200
        if not request.stream:
            self._all_at_once()
            return
        self._line.send(head(200, STREAM | answer.headers) + chunks(answer.opening, self._reply.shred))
        self._began = time.monotonic()
        self._log.changed()
        self._step()

    def _all_at_once(self) -> None:
        body, fault = self._answer.whole, self._fault
        if fault is not None and fault.kind == "oversized":
            body += b" " * fault.oversized_bytes
        if fault is not None and fault.kind == "malformed":
            body = body[:-20]
        headers = {"content-type": JSON, "content-length": str(len(body))}
        broken = fault is not None and fault.kind in ("cut", "stall", "stall_before_end")
        self._line.send(head(200, headers | self._answer.headers) + (body[: len(body) // 2] if broken else body))
        if broken:
            self._break_off()
            return
        now = time.monotonic()
        self._request.tokens_sent = len(self._answer.pieces)
        self._request.token_times = [now] * self._request.tokens_sent
        self._end("completed")

    # -- token by token

    def _step(self) -> None:
        """Send what is due, and come back when more is."""
        self._timer = None
        if self._line.full and self._request.disconnected_at is None:
            self._waits = True
            return
        until = self._due()
        stop = self._breaks_at()
        if stop is not None and stop <= until:
            self._send_tokens(stop)
            self._break_off()
            return
        self._send_tokens(until)
        if self._next < len(self._answer.pieces):
            self._wait()
        else:
            self._close()

    def _breaks_at(self) -> int | None:
        """After how many tokens the fault happens: at the end of an answer that has not as many."""
        after = self._fault.after if self._fault is not None else None
        return None if after is None else min(after, len(self._answer.pieces))

    def _due(self) -> int:
        pace, pieces = self._reply.tokens_per_second, len(self._answer.pieces)
        if pace is None:
            return min(self._next + BURST, pieces)
        # The first token is due at once. A hair of slack: a timer that fires on time must not come a token too early.
        return min(int((time.monotonic() - self._began) * pace + 1.001), pieces)

    def _wait(self) -> None:
        pace = self._reply.tokens_per_second
        if pace is None:
            self._timer = self._loop.call_soon(self._step)
        else:
            self._later(self._began + self._next / pace - time.monotonic(), self._step)

    def _send_tokens(self, until: int) -> None:
        count = until - self._next
        if count <= 0:
            return
        request, now = self._request, time.monotonic()
        if request.disconnected_at is not None:
            request.tokens_after_disconnect += count
        else:
            shred = self._reply.shred
            self._line.send(b"".join([chunks(piece, shred) for piece in self._answer.pieces[self._next : until]]))
            request.tokens_sent += count
            request.token_times += [now] * count
        self._next = until
        self._log.changed()

    # -- ending

    def _close(self) -> None:
        if self._request.disconnected_at is not None:
            self._end("disconnected")
            return
        fault, closing = self._fault, self._answer.closing
        if fault is not None and fault.kind == "stall_before_end":
            self._send_events(closing[:-1])
            self._stall(fault)
            return
        self._send_events(closing)
        self._line.send(LAST_CHUNK)
        self._end("completed")

    def _send_events(self, events: list[bytes]) -> None:
        self._line.send(b"".join([chunks(event, self._reply.shred) for event in events]))

    def _break_off(self) -> None:
        """Do what the fault says, at the place where it says so."""
        fault = self._fault
        assert fault is not None
        match fault.kind:
            case "cut":
                self._line.cut(fault.cut == "reset")
                self._end("fault")
            case "error":
                self._line.send(
                    chunks(self._answer.error(fault.status or ERROR_STATUS), self._reply.shred) + LAST_CHUNK
                )
                self._end("fault")
            case "stall" | "stall_before_end":
                self._stall(fault)
            case "malformed":
                self._go_on(self._answer.malformed)
            case "oversized":
                self._go_on(self._answer.oversized(fault.oversized_bytes))

    def _go_on(self, event: bytes) -> None:
        self._fault = None
        self._line.send(chunks(event, self._reply.shred))
        self._wait()

    def _stall(self, fault: Fault) -> None:
        if fault.pings_every is not None and self._request.stream:
            self._later(fault.pings_every, lambda: self._ping(fault))
        self._log.changed()

    def _ping(self, fault: Fault) -> None:
        self._line.send(chunks(self._answer.ping, self._reply.shred))
        self._stall(fault)

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        self._timer = self._loop.call_later(max(0.0, seconds), what)

    def _end(self, how: How) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ended(self._request, self._log, how)
        if how != "shutdown":
            self._line.released()


def ended(request: Request, log: Log, how: How) -> None:
    request.how = how
    request.ended_at = time.monotonic()
    log.changed()


def send_problem(line: Line, request: Request, log: Log, problem: Problem, how: How) -> None:
    """Answer with an error, whole and at once."""
    request.status = problem.status
    request.error = problem.message
    request.first_byte_at = time.monotonic()
    line.send(head(problem.status, {**problem.headers, "content-length": str(len(problem.body))}) + problem.body)
    ended(request, log, how)
    line.released()
