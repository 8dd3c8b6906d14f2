"""What a watcher is: it reads the text of one model call as it streams, and says what may be passed on.

A watcher is pure: no I/O, no clock, no waiting, so it can be replayed over a recorded text and will say the same. It
decides character by character: what it passes on in the end, and where it flags, do not depend on how the text was cut
into chunks. Whoever feeds it carries out what its flag asks for.

Several watchers over one stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias, get_args

import msgspec
from msgspec import structs

Action: TypeAlias = Literal["flag", "pause", "cancel"]
"""What a flag asks for: be recorded and nothing else, pause the run, cancel the run."""


def check_action(specification: object, action: object) -> None:
    """Raise `ValueError` where `action` is not one of the three: a watcher that pauses must not fail to for a typo."""
    if action not in get_args(Action):
        known = ", ".join(map(repr, get_args(Action)))
        raise ValueError(f"{type(specification).__name__}(action={action!r}): action is one of {known}.")


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


_STRENGTH: Final = {"flag": 0, "pause": 1, "cancel": 2}


class SeveralWatchers:
    """Passes on what all of them pass on, and stops with the first that stops."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self.withheld = ""
        self.flags: list[Flag] = []
        """Every flag so far. `Fed` has only the strongest of those that one chunk raised."""
        self._watchers = tuple(watchers)
        self._sent = 0
        self._stopped = False

    def feed(self, text: str) -> Fed:
        if self._stopped:
            self.withheld += text
            return Fed("")
        return self._together(self.withheld + text, [watcher.feed(text) for watcher in self._watchers])

    def end(self) -> Fed:
        if self._stopped:
            return Fed("")
        return self._together(self.withheld, [watcher.end() for watcher in self._watchers])

    def _together(self, pending: str, fed: list[Fed]) -> Fed:
        """`pending` is what was read and not yet passed on by all."""
        flags = [each.flag for each in fed if each.flag]
        self.flags += flags
        flag = max(flags, key=lambda flag: _STRENGTH[flag.action], default=None)
        self._stopped = flag is not None and flag.action != "flag"
        # Each has read all of it, so what one has not passed on is at the end.
        keep = max((len(watcher.withheld) for watcher in self._watchers), default=0)
        cut = len(pending) - min(keep, len(pending))
        self.withheld = pending[cut:]
        self._sent += cut
        if flag and self._stopped:
            flag = structs.replace(flag, withheld_from=self._sent)
        return Fed(pending[:cut], flag)


def watch(specifications: Sequence[Watching], instructions: str = "", answers: Sequence[str] = ()) -> SeveralWatchers:
    """One watcher of an agent's model call, made from all its specifications."""
    return SeveralWatchers([each.watch(instructions, answers) for each in specifications])
