"""What a page of another origin may do: with a token that names this origin, and only what the bar needs.

Cookies never count there: no answer allows credentials, and the gate does not look at cookies of such a request.
"""

from __future__ import annotations

import re
from typing import Final

from checkrein.server.auth.request import RequestInfo

_RUN: Final = re.compile(r"/api/runs/[^/]+(/.*)?")
_FILES: Final = "/ui/"
_METHODS: Final = frozenset({"GET", "POST"})
_HEADERS: Final = frozenset({"authorization", "content-type", "last-event-id", "accept", "cache-control"})
_MEMORY_SECONDS: Final = 600

Headers = tuple[tuple[bytes, bytes], ...]


def is_for_the_bar(asked: RequestInfo) -> bool:
    """One run: its view, its streams, its verbs. Not the list, not the tokens, not what operators do."""
    return asked.method in _METHODS and _RUN.fullmatch(asked.path) is not None


def is_a_file(asked: RequestInfo) -> bool:
    """The bar's own script, which a page of another origin may load once it may use it."""
    return asked.method in ("GET", "HEAD") and asked.path.startswith(_FILES)


def may_follow(asked: RequestInfo) -> bool:
    """Whether the request that a preflight announces is one for the bar."""
    method = (asked.one("access-control-request-method") or "").upper()
    names = ",".join(asked.all("access-control-request-headers")).lower().split(",")
    wanted = {name.strip() for name in names} - {""}
    if asked.path.startswith(_FILES):
        return method == "GET" and not wanted
    return method in _METHODS and wanted <= _HEADERS and _RUN.fullmatch(asked.path) is not None


def allowing(asked: RequestInfo) -> Headers:
    """The headers that let a page of the asking origin read the answer."""
    return (
        (b"access-control-allow-origin", str(asked.origin).encode()),
        (b"access-control-expose-headers", b"Retry-After"),
    )


def promising(asked: RequestInfo) -> Headers:
    """The headers that answer a preflight."""
    headers: Headers = (
        (b"access-control-allow-origin", str(asked.origin).encode()),
        (b"access-control-allow-methods", ", ".join(sorted(_METHODS)).encode()),
        (b"access-control-allow-headers", ", ".join(sorted(_HEADERS)).encode()),
        (b"access-control-max-age", str(_MEMORY_SECONDS).encode()),
    )
    if asked.one("access-control-request-private-network") == "true":
        headers += ((b"access-control-allow-private-network", b"true"),)
    return headers
