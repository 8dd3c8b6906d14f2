"""What an operator has halted, as a process that drives runs knows it: by the journal, and by the flags of its host."""

from __future__ import annotations

import logging
from collections.abc import Collection

from checkrein.core.state import State
from checkrein.errors import JournalError
from checkrein.journal.base import Journal, Scope
from checkrein.journal.operations import HALTED
from checkrein.processes.halt_flags import Flags, read, take_down

_log = logging.getLogger(__name__)


class HaltWatch:
    """Reads what was recorded since the last look. While the store is away what is known stays, and flags count."""

    def __init__(self, journal: Journal, flags: Flags | None) -> None:
        self._journal = journal
        self._flags = flags
        self._seen: int | None = None
        self._halted: set[tuple[Scope, str]] = set()
        self._is_away = False
        self._ids: dict[tuple[Scope, str], set[str]] = {}
        """Of the halts that are recorded and not lifted."""
        self._up: frozenset[str] = frozenset()

    def is_flagged_anew(self) -> bool:
        """Whether other flags are up than when this was last asked."""
        up = self.flags_up()
        is_news, self._up = up != self._up, up
        return is_news

    async def look(self) -> bool:
        """Whether something was halted since the last look."""
        before = len(self._halted)
        try:
            await self._read()
            self._is_away = False
        except JournalError as error:
            if not self._is_away:  # once: it is tried again every second
                _log.warning("halts are told by the flags of this host alone: %s", error)
            self._is_away = True
        return len(self._halted) > before

    async def _read(self) -> None:
        news = await self._journal.operations(after=self._seen or 0)
        if self._seen is None:
            self._halted = {(one.scope, one.name) for one in await self._journal.halts()}
            self._seen = 0
        for record in news:
            self._seen, operation = record.seq, record.operation
            scope = (operation.scope, operation.name)
            if operation.type == HALTED:
                self._ids.setdefault(scope, set()).add(operation.id)
                self._halted.add(scope)
            else:
                self._halted.discard(scope)
                self._take_down(scope[0].value, scope[1], self._ids.pop(scope, set()))

    def _take_down(self, scope: str, name: str, lifted: Collection[str]) -> None:
        """A reset that was recorded takes down the flag of this host too, wherever it was asked for: one of a halt that
        the store had by then. By its id and not by its time, for the clocks of hosts differ."""
        if self._flags is None:
            return
        try:
            if any(flag.id in lifted for flag in read(self._flags.store) if (flag.scope, flag.name) == (scope, name)):
                take_down(self._flags.store, scope, name)
        except OSError as error:
            _log.warning("a flag of this host could not be taken down after a reset: %s", error)

    def flags_up(self) -> frozenset[str]:
        """The names of the flags that are up."""
        return frozenset() if self._flags is None else self._flags.names()

    def covers(self, state: State, above: Collection[str], up: frozenset[str]) -> bool:
        """Whether a run is halted; `above` are its own id and those of the runs above it, `up` the flags."""
        agent, owner = state.agent, state.owner
        if up and self._flags is not None and self._flags.covers(runs=above, agent=agent, owner=owner, among=up):
            return True
        if not self._halted:
            return False
        wanted = {(Scope.ALL, ""), (Scope.AGENT, state.agent), (Scope.OWNER, state.owner)}
        wanted |= {(Scope.RUN, run) for run in above} | {(Scope.ROOT, state.root or state.run)}
        return not self._halted.isdisjoint(wanted)
