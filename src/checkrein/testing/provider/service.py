"""What all connections of one provider share: its terms, what it plays, and its log."""

from __future__ import annotations

from checkrein.testing.provider.log import Log
from checkrein.testing.provider.scenario import Scenario, Script
from checkrein.testing.provider.wire import Terms


class Service:
    def __init__(self, script: Script, terms: Terms) -> None:
        self.terms = terms
        self.scenario = Scenario(script)
        self.log = Log()
        self.failures: list[Exception] = []
        """What a scenario that is a function raised."""

    def play(self, script: Script) -> None:
        """Answer requests from now on by another scenario."""
        self.scenario = Scenario(script)
