"""A run as the page watches it: the whole view once, then only what has changed, a few times a second.

A view frame is JSON: `{"whole": bool, "at": time, "ticking": bool, …}` and the fields of `RunView` that changed; whole
ones have all of them. `calls` holds the changed calls only, in brief: what they were given and what they brought is
asked for when somebody opens one. Of a long list that has changed at its end only the end is sent; `from` says for each
such field how many of its items stay: `{"from": {"steps": 2990}, "steps": […]}`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from checkrein.control.view import CallView, RunView, Shown
from checkrein.control.viewer import Viewer
from checkrein.core.enums import CallKind, Verb
from checkrein.journal.base import stream_of
from checkrein.server.streaming.sse import FrameBuffer, chunk_frame, view_frame

BETWEEN_SECONDS: Final = 0.05
"""At least so long lies between two patches."""
SOON_SECONDS: Final = 0.004
"""What comes together is sent together."""
TEXT_SECONDS: Final = 0.5
"""Text has frames of its own; how much there is of it is said less often."""
FRESH_SECONDS: Final = 0.25
"""A new reader gets a view that is not older than this."""
SHARE: Final = 8
"""A patch that took long to make is followed by a rest so many times as long."""
BYTES_PER_SECOND: Final = 1_000_000
"""Large patches come less often."""
SUMMARY_CHARS: Final = 120
LONG: Final = 32
"""Of a list that is longer than this only the part that has changed is sent."""

_FIELDS: Final = tuple(name for name in RunView.__struct_fields__ if name != "calls")
_encode: Final = msgspec.json.Encoder().encode


class BriefCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call without what is long in it."""

    id: str
    kind: CallKind
    name: str
    shown: Shown
    now: str
    step: int | None
    attempt: int
    error: str | None
    started_at: float | None
    finished_at: float | None
    stopped_by: Verb | None
    run: str | None
    reused_from: str
    """Of a call that a fork has taken over: the run that made it."""
    summary: str
    """What it was given, in a line."""
    partial_chars: int
    """How much text there is of it."""


def brief(call: CallView) -> BriefCall:
    return BriefCall(
        id=call.id,
        kind=call.kind,
        name=call.name,
        shown=call.shown,
        now=call.now,
        step=call.step,
        attempt=call.attempt,
        error=call.error,
        started_at=call.started_at,
        finished_at=call.finished_at,
        stopped_by=call.stopped_by,
        run=call.run,
        reused_from=call.reused_from,
        summary=_asked(call.arguments) if call.kind is CallKind.MODEL else summary(call.arguments),
        partial_chars=len(call.text),
    )


def _asked(arguments: Any) -> str:
    """What a model was asked: which turn it is says more to a person than a hash of the history."""
    known = arguments if isinstance(arguments, dict) else {}
    return summary({name: known[name] for name in ("turn", "messages") if name in known})


def summary(arguments: Any) -> str:
    """Arguments as a call would have them, in one line of at most 120 characters."""
    if arguments is None:
        return ""
    if isinstance(arguments, dict):
        text = ", ".join(f"{name}={_value(value)}" for name, value in arguments.items())
    else:
        text = _value(arguments)
    text = " ".join(text.split())
    return text if len(text) <= SUMMARY_CHARS else f"{text[: SUMMARY_CHARS - 1]}…"


def _value(value: Any) -> str:
    if isinstance(value, str) and len(value) > SUMMARY_CHARS:
        value = value[:SUMMARY_CHARS]
    return _encode(value).decode()


class LiveView:
    """The view frames of one run. They cost nothing while nobody reads them."""

    def __init__(self, viewer: Viewer, now: Callable[[], float], ring: FrameBuffer) -> None:
        self.ring = ring
        self._viewer = viewer
        self._now = now
        self._readers = 0
        self._fields: dict[str, Any] = {}
        self._encoded: dict[str, bytes] = {}
        self._calls: dict[str, CallView] = {}
        self._briefs: dict[str, bytes] = {}
        self._whole: bytes | None = None
        self._due: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._not_before = 0.0
        self._at = 0.0
        """When it was looked at last."""

    # -- readers

    def join(self) -> tuple[bytes, int]:
        """One more reader: the whole view as the stream stands, and the position from which it goes on."""
        self._readers += 1
        if self._readers == 1:
            self._take_in()
        elif self._now() - self._at > FRESH_SECONDS:
            self._cancel()
            self._publish()  # how long it has been at work is part of the view
        if self._whole is None:
            self._whole = self._frame(is_whole=True, fields=self._encoded, calls=self._briefs.values())
        return self._whole + b"".join(self._texts()), self.ring.end

    @property
    def has_readers(self) -> bool:
        return self._readers > 0

    def leave(self) -> None:
        self._readers -= 1
        if not self._readers:
            self._cancel()

    def _texts(self) -> list[bytes]:
        """From its start, the text of calls in flight, and of the last model call that said something."""
        calls = self._calls
        last = next((call.id for call in reversed(calls.values()) if call.kind is CallKind.MODEL and call.text), None)
        live = self._viewer.state.live if self._viewer.state is not None else {}
        # As they are now, which may be more than the view has: what is in the ring already comes from here only.
        shown = [self._viewer.call(name) for name in dict.fromkeys([*live, *([] if last is None else [last])])]
        return [chunk_frame(stream_of(call.id, call.attempt), 0, call.text) for call in shown if call and call.text]

    # -- changes

    def change(self, *, within: float = SOON_SECONDS) -> None:
        """Something has changed: say so soon, together with what else does."""
        if not self._readers:
            return
        now = time.monotonic()
        due_at = max(now + within, self._not_before)
        if self._due is None or due_at < self._due_at:
            self._cancel()
            self._due_at = due_at
            self._due = asyncio.get_running_loop().call_later(due_at - now, self._publish)

    def close(self) -> None:
        self._cancel()

    def _cancel(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _publish(self) -> None:
        self._due, began = None, time.monotonic()
        before = dict(self._fields)
        changed, calls = self._take_in()
        fields = self._tails(before, changed)
        frame = self._frame(is_whole=False, fields=fields, calls=[self._briefs[call] for call in calls])
        self.ring.publish(frame)
        took = time.monotonic() - began
        self._not_before = began + max(BETWEEN_SECONDS, SHARE * took, len(frame) / BYTES_PER_SECOND)

    def _tails(self, before: dict[str, Any], changed: list[str]) -> dict[str, bytes]:
        """What has changed; of long lists only the end, with `from`."""
        fields, stays = {name: self._encoded[name] for name in changed}, dict[str, int]()
        for name in changed:
            value = self._fields[name]
            if isinstance(value, tuple) and len(value) > LONG:
                same = _common(before.get(name, ()), value)
                if same > LONG // 2:
                    stays[name], fields[name] = same, encoded(name, value[same:])
        if stays:
            fields["from"] = _encode(stays)
        return fields

    def _take_in(self) -> tuple[list[str], list[str]]:
        """Look at the run; which fields and which calls are different now."""
        self._at, self._whole = self._now(), None
        view, changed = self._viewer.view(self._at), list[str]()
        for name in _FIELDS:
            value = getattr(view, name)
            if name not in self._fields or (value is not self._fields[name] and value != self._fields[name]):
                self._fields[name] = value
                self._encoded[name] = encoded(name, value)
                changed.append(name)
        calls = [call for call in view.calls if self._calls.get(call.id) is not call]
        for call in calls:
            self._calls[call.id] = call
            self._briefs[call.id] = _encode(brief(call))
        return changed, [call.id for call in calls]

    def _frame(self, *, is_whole: bool, fields: dict[str, bytes], calls: Any) -> bytes:
        head = {"whole": is_whole, "at": self._at, "ticking": is_ticking(self._viewer)}
        parts = [_encode(head)[1:-1], *(b'"%b":%b' % (name.encode(), value) for name, value in fields.items())]
        if "seq" not in fields:
            parts.append(b'"seq":%d' % self._viewer.seq)
        briefs = b",".join(calls)
        if briefs or is_whole:
            parts.append(b'"calls":[%b]' % briefs)
        return view_frame(b"{%b}" % b",".join(parts))


def _common(before: tuple[Any, ...], after: tuple[Any, ...]) -> int:
    """How many items both begin with."""
    pairs = zip(before, after, strict=False)
    return next((n for n, (one, other) in enumerate(pairs) if one != other), min(len(before), len(after)))


def is_ticking(viewer: Viewer) -> bool:
    """Whether time counts as elapsed now."""
    return viewer.state is not None and viewer.state.active_since is not None and viewer.left_at is None


def encoded(name: str, value: Any) -> bytes:
    """A field of a view. A receipt is spelled out: that no token came after a stop is worth saying."""
    return _encode(spelled_out(value) if name == "receipts" else value)


def spelled_out(value: Any) -> Any:
    """Structs as dictionaries with every field, those with their default value included."""
    if isinstance(value, msgspec.Struct):
        if value.__struct_config__.tag is not None:
            return value  # its tag is no field
        return {name: spelled_out(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple | list):
        return [spelled_out(one) for one in value]
    return value
