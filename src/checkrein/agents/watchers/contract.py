"""What a watcher is: it reads the text of one model call as it streams, and says what may be passed on.

A watcher is pure: no I/O, no clock, no waiting, so it can be replayed over a recorded text and will say the same. It
decides character by character: what it passes on in the end, and where it flags, do not depend on how the text was cut
into chunks. Whoever feeds it carries out what its flag asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

Action: TypeAlias = Literal["flag", "pause", "cancel"]
"""What a flag asks for: be recorded and nothing else, pause the run, cancel the run."""


class Flag(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Something a watcher noticed. `what` never quotes the text: flags are read by more people than evidence is."""

    watcher: str
    what: str
    offset: int
    """How many characters of the call's text had been read when it was noticed."""
    action: Action
    withheld_from: int | None = None
    """The first character that was not passed on. None: all of it was, or will be."""


class Fed(msgspec.Struct, frozen=True, gc=False):
    """What came of one chunk: the text that may be passed on now, and a flag if this chunk was enough for one."""

    forward: str
    flag: Flag | None = None


class Watcher(Protocol):
    """The watcher of one model call. It flags at most once.

    After a flag that pauses or cancels, nothing is passed on any more: not the rest of that chunk, and not what is fed
    later. `withheld` is what was read and not passed on; before such a flag it is what is held back until the watcher
    is sure, at most `HELD_BACK` characters.
    """

    @property
    def withheld(self) -> str: ...

    def feed(self, text: str) -> Fed:
        """Read a chunk of any length."""
        ...

    def end(self) -> Fed:
        """The stream ended by itself: the rest that may be passed on. Nothing may be fed afterwards."""
        ...


class Watching(Protocol):
    """The specification of a watcher: frozen, storable data that an agent is given, and that makes watchers."""

    @property
    def action(self) -> Action: ...

    def watch(self, instructions: str = "", answers: Sequence[str] = ()) -> Watcher:
        """A watcher for one model call of an agent with these instructions, after these answers, oldest first."""
        ...


HELD_BACK = 120
"""No watcher ever holds back more characters than this, unless it has stopped the stream."""
