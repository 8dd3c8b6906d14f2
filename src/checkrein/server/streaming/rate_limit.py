"""Streams begin as fast as the event loop keeps up, so that no crowd stands between a person and a verb.

After a cut of the network a thousand readers come back at once, and each costs more to let in than a verb to take. So
streams are admitted at a rate that follows the event loop: when its turns come late, the rate is lowered at once; when
they come in time, it rises again slowly. Whoever is not let in is told to come again in a moment, before anything else
is done about the request. Nothing but streams is ever counted or turned away.

Those who come with a good token or session do not stand in line with those who do not: strangers have a small rate of
their own.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from checkrein.server.errors import answer

_log = logging.getLogger(__name__)

STREAMS: Final = ("/events", "/live")

MOST_PER_SECOND: Final = 300.0
LEAST_PER_SECOND: Final = 20.0
BURST: Final = 20.0
"""So many may come at the same moment, however busy it is: a page with its sub-runs."""
LATE_SECONDS: Final = 0.02
"""A turn of the event loop that comes later than this is late."""
_LOOK_SECONDS: Final = 0.025
_QUIET_SECONDS: Final = 2.0
"""When no stream was asked for so long, the event loop is not looked at until the next one."""
_LOWER: Final = 0.7
_RAISE: Final = 4.0

_SENTENCE: Final = "Too many streams begin at once; come back in a moment. Verbs are not affected."


class Admission:
    """How many streams may begin now. Use it in one event loop; it looks at the loop only while streams are asked for.

    `most_per_second` and `burst` are what an idle event loop admits of those who are known.
    """

    def __init__(self, most_per_second: float = MOST_PER_SECOND, burst: float = BURST) -> None:
        self.per_second = most_per_second
        self.refused = 0
        """How many were told to come back later, for whatever reason."""
        self._most = most_per_second
        self._least = min(LEAST_PER_SECOND, most_per_second)
        self._known, self._strangers = _Allowance(burst), _Allowance(burst)
        self._asked_at = time.monotonic()
        self._is_looking = False

    def take(self, *, is_known: bool = True) -> bool:
        """Whether one more may begin, of somebody who is known or of a stranger."""
        self._asked_at = now = time.monotonic()
        allowance, rate = (self._known, self.per_second) if is_known else (self._strangers, self._least)
        has_room = allowance.take(now, rate)
        if not has_room:
            self.refused += 1
        return has_room

    def look(self) -> None:
        """Have the rate follow the running event loop, for as long as streams are asked for."""
        if not self._is_looking:
            self._is_looking = True
            self._look_again(asyncio.get_running_loop())

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(_LOOK_SECONDS, self._looked, loop, time.monotonic() + _LOOK_SECONDS)

    def _looked(self, loop: asyncio.AbstractEventLoop, due_at: float) -> None:
        now = time.monotonic()
        self.adapt(now - due_at)
        # Until the rate is back: a loop that was slow once must not keep the next crowd out.
        if now - self._asked_at < _QUIET_SECONDS or self.per_second < self._most:
            self._look_again(loop)
        else:
            self._is_looking = False

    def adapt(self, late_seconds: float) -> None:
        if late_seconds > LATE_SECONDS:
            self.per_second = max(self._least, self.per_second * _LOWER)
        else:
            self.per_second = min(self._most, self.per_second + _RAISE)


class _Allowance:
    """How many may begin at this moment: as many as come together, and then so many in a second."""

    def __init__(self, burst: float) -> None:
        self._burst = burst
        self._left = burst
        self._counted_at = time.monotonic()

    def take(self, now: float, per_second: float) -> bool:
        self._left = min(self._burst, self._left + (now - self._counted_at) * per_second)
        self._counted_at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class StreamGate:
    """Stands before the application, and before its guard: to say no must cost next to nothing.

    `knows` says whether a request comes with a good token or session.
    """

    def __init__(self, app: ASGIApp, admission: Admission, knows: Callable[[Scope], Awaitable[bool]]) -> None:
        self._app = app
        self._admission = admission
        self._knows = knows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if asks_for_stream(scope):
            self._admission.look()
            if not self._admission.take(is_known=await self._knows(scope)):
                _log.debug("a stream is refused: %s", scope["path"])
                later = {"Retry-After": str(random.randint(1, 3)), "Connection": "close"}  # not all at once again
                return await answer(503, "busy", _SENTENCE, later)(scope, receive, send)
        await self._app(scope, receive, send)


def asks_for_stream(scope: Scope) -> bool:
    """Whether a request is one for a stream."""
    return (
        scope["type"] == "http"
        and scope["method"] == "GET"
        and scope["path"].endswith(STREAMS)
        and "/api/runs/" in scope["path"]
    )
