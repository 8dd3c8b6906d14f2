"""Files that calls have published, for people to read.

Only what a journal names, and only where it is still a plain file at the very place that was written: not through a
link that was put there afterwards. It is sent as text that no browser takes for anything else, or as a download.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from starlette.responses import Response

MOST: Final = 2 << 20
"""A larger file is not read over HTTP."""


def published(path: str) -> bytes | None:
    """The contents of a file; None if it is not there, is no plain file, or too large."""
    if os.path.realpath(path) != path:
        return None
    with suppress(OSError, ValueError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and found.st_size <= MOST:
                return file.read(MOST + 1)
    return None


def file_answer(body: bytes, path: str) -> Response:
    """A file in an answer: text to be shown, anything else to be kept."""
    name = quote(os.path.basename(path))
    try:
        body.decode()
    except UnicodeDecodeError:
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(body, media_type="application/octet-stream", headers=headers)
    return Response(body, media_type="text/plain; charset=utf-8")
