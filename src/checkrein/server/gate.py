"""How many streams may begin in a second: whoever comes too often is told when to come back, before anything is done.

Only streams are counted. A verb, a cancel or a halt never waits for a rate limit, and that is why there is this one:
a thousand readers that reconnect at once must not stand between a person and the button.
"""

from __future__ import annotations

import random
import time
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from checkrein.server.errors import answer

STREAMS: Final = ("/events", "/live")


class Bucket:
    """Tokens that come back with time: `per_second` of them, at most `burst` at once."""

    def __init__(self, per_second: float, burst: float) -> None:
        self.per_second = per_second
        self._burst = burst
        self._tokens = burst
        self._at = time.monotonic()
        self.refused = 0

    def take(self) -> bool:
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self.per_second)
        self._at = now
        if self._tokens < 1:
            self.refused += 1
            return False
        self._tokens -= 1
        return True


class StreamGate:
    """Stands before the application, and before its guard: to say no must cost next to nothing."""

    def __init__(self, app: ASGIApp, bucket: Bucket) -> None:
        self._app = app
        self._bucket = bucket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_stream = scope["type"] == "http" and scope["method"] == "GET" and scope["path"].endswith(STREAMS)
        if is_stream and not self._bucket.take():
            told = "Too many streams begin at once; come back in a moment. Verbs are not affected."
            later = {"Retry-After": str(random.randint(1, 3))}  # not all at the same moment again
            return await answer(503, "busy", told, later)(scope, receive, send)
        await self._app(scope, receive, send)
