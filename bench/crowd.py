"""The crowd of `verbs_under_load`: readers that reconnect without end, and others that hardly read.

python -m bench.crowd PORT TOKEN RUN SECONDS RATE SLOW

Speaks HTTP by hand, because it must cost less than what it measures. Reports what it did as JSON.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections import Counter
from typing import Final

import msgspec

SETTLE_SECONDS: Final = 2.0
"""So long the slow ones have to come in, before everybody else does."""
_PATIENCE_SECONDS: Final = 10.0
_SIP_BYTES: Final = 512


class Done(msgspec.Struct):
    """What the crowd did."""

    seconds: float = 0.0
    connected: int = 0
    answers: dict[str, int] = {}
    """How often it was answered with which status."""
    failed: int = 0
    slow: int = 0
    """Slow readers that were still there at the end, or had come back after they were let go."""
    let_go: int = 0
    """How often a slow reader was let go, and came back."""


class Visit(asyncio.Protocol):
    """Connects, reads the first bytes of the answer, and leaves."""

    def __init__(self, request: bytes, answered: asyncio.Future[bytes]) -> None:
        self._request = request
        self._answered = answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._answered.done():
            self._answered.set_result(data[9:12])
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answered.done():
            self._answered.set_result(b"")


async def visit(port: int, request: bytes, counts: Counter[str]) -> None:
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[bytes] = loop.create_future()
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            transport, _ = await loop.create_connection(lambda: Visit(request, answered), "127.0.0.1", port)
            try:
                counts[(await answered).decode() or "failed"] += 1
            finally:
                transport.abort()
    except (OSError, TimeoutError):
        counts["failed"] += 1


async def sip(port: int, request: bytes, done: Done, after_seconds: float) -> None:
    """Read a few bytes a second; whoever is let go comes back."""
    await asyncio.sleep(after_seconds)
    while True:
        is_in = False
        try:
            sipping = socket.socket()
            sipping.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SIP_BYTES)
            sipping.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sipping, ("127.0.0.1", port))
            reader, writer = await asyncio.open_connection(sock=sipping, limit=_SIP_BYTES)
        except OSError:
            await asyncio.sleep(1)
            continue
        try:
            writer.write(request)
            is_in = (await reader.read(_SIP_BYTES)).startswith(b"HTTP/1.1 200")
            done.slow += is_in
            while await reader.read(_SIP_BYTES):  # noqa: ASYNC110 - it is meant to be slow
                await asyncio.sleep(1)
        except OSError:
            pass
        finally:
            writer.transport.abort()
        done.slow -= is_in
        done.let_go += is_in
        await asyncio.sleep(1)


async def main(port: int, token: str, run: str, seconds: float, rate: float, slow: int) -> Done:
    head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
    live = f"GET /api/runs/{run}/live HTTP/1.1\r\n{head}".encode()
    events = f"GET /api/runs/{run}/events?after=3 HTTP/1.1\r\n{head}".encode()
    done, counts = Done(), Counter[str]()
    slow_ones = [asyncio.create_task(sip(port, live, done, n * SETTLE_SECONDS / 2 / slow)) for n in range(slow)]
    await asyncio.sleep(SETTLE_SECONDS)
    visits: set[asyncio.Task[None]] = set()
    began, made = time.monotonic(), 0
    while (now := time.monotonic()) < began + seconds:
        due = int((now - began) * rate)
        for n in range(made, due):
            task = asyncio.create_task(visit(port, events if n % 2 else live, counts))
            visits.add(task)
            task.add_done_callback(visits.discard)
        made = max(made, due)
        await asyncio.sleep(0.005)
    done.seconds, done.connected = time.monotonic() - began, made
    await asyncio.gather(*visits)
    for task in slow_ones:
        task.cancel()
    kept = done.slow
    await asyncio.gather(*slow_ones, return_exceptions=True)
    done.slow, done.failed = kept, counts.pop("failed", 0)
    done.answers = dict(counts)
    return done


if __name__ == "__main__":
    port, token, run, seconds, rate, slow = sys.argv[1:]
    told = asyncio.run(main(int(port), token, run, float(seconds), float(rate), int(slow)))
    sys.stdout.buffer.write(msgspec.json.encode(told))
