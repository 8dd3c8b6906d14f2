"""What a worker says to those who watch it: a file that is touched, or a port that answers two questions.

*Ready* is a worker whose driver answers and reaches the store. One that is not, or that ends, still *lives* as long as
this process does.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from checkrein.errors import WrongInput

_log = logging.getLogger(__name__)

TOUCH_SECONDS: Final = 1.0
REQUEST_SECONDS: Final = 5.0
MOST_BYTES: Final = 8192

IsReady = Callable[[], bool]


def check_health_file(path: Path) -> None:
    """Raises `WrongInput` where it cannot be written, or something else is there."""
    try:
        if path.exists() and not path.is_file():
            raise WrongInput(f"{path} is no plain file; name another one with --health-file.", code="usage")
        path.touch()
        path.unlink()  # it is there once the worker is ready
    except OSError as error:
        raise WrongInput(f"{path} cannot be written ({error.strerror}); name another one.", code="usage") from None


async def keep_touched(path: Path, is_ready: IsReady) -> None:
    """Touch a file as long as the worker is ready. Cancelled, it takes the file away."""
    try:
        while True:
            if is_ready():
                try:
                    _touch(path)
                except OSError as error:
                    _log.warning("the health file %s could not be touched: %s", path, error)
            await asyncio.sleep(TOUCH_SECONDS)
    finally:
        with suppress(OSError):
            _remove(path)


def _touch(path: Path) -> None:
    path.touch()


def _remove(path: Path) -> None:
    path.unlink()


async def answer_health(host: str, port: int, is_ready: IsReady) -> asyncio.Server:
    """Answer GET /healthz and /readyz over plain HTTP. Raises `WrongInput` where the port is not to be had."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(head, is_ready()))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # whoever that was asks again, or did not mean it
        finally:
            writer.close()

    try:
        return await asyncio.start_server(answer, host, port, limit=MOST_BYTES)
    except OSError as error:
        raise WrongInput(
            f"Port {port} of {host} is not to be had ({os.strerror(error.errno or 0)}); name another one with "
            "--health-port.",
            code="usage",
        ) from None


def _answer(head: bytes, is_ready: bool) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if path not in (b"/healthz", b"/readyz"):
        return _response("404 Not Found", '{"code": "not_found", "message": "There is /healthz and /readyz."}', method)
    if method not in (b"GET", b"HEAD"):
        return _response("405 Method Not Allowed", '{"code": "method_not_allowed", "message": "Ask with GET."}', method)
    if path == b"/healthz" or is_ready:
        return _response("200 OK", '{"status": "ok"}', method)
    return _response("503 Service Unavailable", '{"status": "not ready"}', method)


def _response(status: str, body: str, method: bytes) -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    head = "\r\n".join([*lines, "", ""])
    return (head if method == b"HEAD" else head + body).encode()
