"""Watchers: they read a model's output as it streams, and flag, pause or cancel."""

from checkrein.watchers.base import HELD_BACK, Action, Fed, Flag, SeveralWatchers, Watcher, Watching, watch
from checkrein.watchers.confession import Confession
from checkrein.watchers.loops import Loops

__all__ = [
    "Confession",
    "Loops",
    "watch",
    "Watching",
    "Watcher",
    "SeveralWatchers",
    "Fed",
    "Flag",
    "Action",
    "HELD_BACK",
]
