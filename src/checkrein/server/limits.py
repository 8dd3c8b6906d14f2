"""How much readers may ask for, and for how long what they share is kept."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much readers may ask for."""

    queue_frames: int = 4096
    """How far a reader may fall behind, in frames."""
    queue_bytes: int = 4_000_000
    """The same, in bytes."""
    keep_alive_seconds: float = 15.0
    stall_seconds: float = 30.0
    """A reader that takes nothing at all for so long is let go."""
    linger_seconds: float = 10.0
    """How long a run nobody reads any more is kept at hand."""
    idle_feeds: int = 32
    """How many runs nobody reads are kept at hand at most."""
    streams: int = 5_000
    """How many may read at the same time."""
