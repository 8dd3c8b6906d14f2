"""An open store and the verbs on it: all that a command needs to reach a run in whichever process it lives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from checkrein.errors import WrongInput

if TYPE_CHECKING:
    from checkrein.control.verbs import Control
    from checkrein.journal.contract import Journal

T = TypeVar("T")


@dataclass(frozen=True)
class Session:
    store: str
    journal: Journal
    control: Control

    async def is_driven(self, run: str) -> bool:
        """Whether a living process drives the run."""
        from checkrein.runtime.identity import is_known_dead

        lease = await self.journal.lease(run)
        return lease is not None and lease.deadline > time.time() and not is_known_dead(lease.owner)


@asynccontextmanager
async def opened(store: str) -> AsyncIterator[Session]:
    """The store, which must exist: looking at one never makes it."""
    import msgspec

    from checkrein.control.verbs import Control
    from checkrein.journal import open_journal
    from checkrein.runtime.identity import this_process

    _must_exist(store)
    owner = this_process()
    async with await open_journal(store) as journal:
        # Not the name that a driver of this process would have: control must not take a run from it.
        yield Session(
            store, journal, Control(journal, msgspec.structs.replace(owner, process=f"{owner.process}-control"))
        )


def with_store(store: str, act: Callable[[Session], Awaitable[T]]) -> T:
    """Open the store, do one thing, close it."""

    async def run() -> T:
        async with opened(store) as session:
            return await act(session)

    return asyncio.run(run())


def _must_exist(store: str) -> None:
    from checkrein.journal.address import MEMORY, SQLITE

    if store == MEMORY:
        raise WrongInput(
            "memory: is the journal of one process and cannot be reached from another; name a file with --store.",
            code="store_not_found",
        )
    if store.startswith(SQLITE) and len(store) > len(SQLITE) and not Path(store.removeprefix(SQLITE)).exists():
        raise WrongInput(
            f"There is no store {store} yet: the first `checkrein run` makes it. Another one is named with --store or "
            "CHECKREIN_STORE.",
            code="store_not_found",
        )
