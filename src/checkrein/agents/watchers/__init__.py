"""Watchers: they read a model's output as it streams, and flag, pause or cancel."""

from checkrein.agents.watchers.confession import Confession
from checkrein.agents.watchers.contract import HELD_BACK, Action, Fed, Flag, Watcher, Watching
from checkrein.agents.watchers.loops import Loops
from checkrein.agents.watchers.several import SeveralWatchers, watch

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
