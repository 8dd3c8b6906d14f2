"""Several watchers over one stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from checkrein.agents.watchers.contract import Fed, Flag, Watcher, Watching

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
