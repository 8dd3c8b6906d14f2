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

    async def look(self) -> None:
        try:
            await self._read()
            self._is_away = False
        except JournalError as error:
            if not self._is_away:  # once: it is tried again every second
                _log.warning("halts are told by the flags of this host alone: %s", error)
            self._is_away = True

    async def _read(self) -> None:
        if self._seen is None:
            self._halted = {(one.scope, one.name) for one in await self._journal.halts()}
            self._seen = max((record.seq for record in await self._journal.operations()), default=0)
            return
        for record in await self._journal.operations(after=self._seen):
            self._seen, operation = record.seq, record.operation
            scope = (operation.scope, operation.name)
            if operation.type == HALTED:
                self._halted.add(scope)
            else:
                self._halted.discard(scope)
                self._take_down(scope[0].value, scope[1], operation.at)

    def _take_down(self, scope: str, name: str, at: float) -> None:
        """A reset that was recorded takes down the flag of this host too, wherever it was asked for."""
        if self._flags is None:
            return
        try:
            if any(flag.at <= at for flag in read(self._flags.store) if (flag.scope, flag.name) == (scope, name)):
                take_down(self._flags.store, scope, name)
        except OSError as error:
            _log.warning("a flag of this host could not be taken down after a reset: %s", error)

    def covers(self, state: State, above: Collection[str]) -> bool:
        """Whether a run is halted; `above` are its own id and those of the runs above it."""
        if self._flags is not None and self._flags.covers(runs=above, agent=state.agent, owner=state.owner):
            return True
        if not self._halted:
            return False
        wanted = {(Scope.ALL, ""), (Scope.AGENT, state.agent), (Scope.OWNER, state.owner)}
        wanted |= {(Scope.RUN, run) for run in above} | {(Scope.ROOT, state.root or state.run)}
        return not self._halted.isdisjoint(wanted)
