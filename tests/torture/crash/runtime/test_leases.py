"""A driver gives its run up, by its own clock, before somebody else can claim it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from checkrein.driver.ownership import LeaseKeeper, now
from checkrein.errors import StoreUnavailable
from checkrein.journal.base import Owner
from tests.support.patience import PATIENCE_SECONDS
from tests.torture.crash.runtime.locked import lock_out


@pytest.mark.parametrize("has_rival", [True, False], ids=["with a rival", "alone"])
def test_a_driver_whose_store_is_locked_stops_its_tools_before_its_lease_is_over(hands, scratch, tell, has_rival):
    """D3 D26: by the tools' own diary, tasks, processes and a child that had left for a session of its own."""
    lockout = hands.submit(lock_out, scratch / f"locked-{has_rival}", has_rival=has_rival).result()

    soonest = min(lockout.margins.values())
    tell(f"a store locked for longer than a lease: the last tool stopped {soonest:.2f} s before the lease was over")
    assert lockout.wrong == []
    assert len(lockout.margins) == 5
    assert soonest > 0
    assert lockout.before_takeover > 0


class Store:
    """As much of a journal as a keeper needs. `held` are the runs that it renews; None: it does not answer."""

    too_new = None

    def __init__(self, *held: str) -> None:
        self.held: frozenset[str] | None = frozenset(held)
        self.renewals = 0

    async def renew(self, owner: Owner, *, seconds: float, runs: Collection[str] | None = None) -> frozenset[str]:
        self.renewals += 1
        if self.held is None:
            raise StoreUnavailable("It is away.")
        return self.held

    async def renewed(self, times: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            wanted = self.renewals + times
            while self.renewals < wanted:
                await asyncio.sleep(0.01)


@contextmanager
def keeper(store: Any, seconds: float) -> Iterator[LeaseKeeper]:
    keeping = LeaseKeeper(store, Owner(process="p"), lease_seconds=seconds)
    try:
        yield keeping
    finally:
        keeping.stop()


@pytest.mark.anyio
async def test_a_lease_that_is_renewed_holds():
    store = Store("r-1")
    with keeper(store, 2.0) as keeping:
        keeping.keep("r-1", now())

        await store.renewed(7)

        assert keeping.holds("r-1")
        assert not keeping.holds("r-2")


@pytest.mark.anyio
async def test_a_lease_is_given_up_before_its_end_when_the_store_does_not_answer():
    store = Store("r-1")
    with keeper(store, 2.0) as keeping:
        store.held = None
        sent = now()
        keeping.keep("r-1", sent)
        assert keeping.holds("r-1")

        async with asyncio.timeout(PATIENCE_SECONDS):
            while (asked := now()) and keeping.holds("r-1"):
                assert asked - sent < 2.0, "it is not held any more when it is over"
                await asyncio.sleep(0.005)

        assert store.renewals > 0


@pytest.mark.anyio
async def test_a_lease_that_somebody_else_has_is_given_up_at_once():
    store = Store("r-1")
    with keeper(store, 4.0) as keeping:
        keeping.keep("r-1", now())
        store.held = frozenset()

        await store.renewed(2)

        assert not keeping.holds("r-1")


@pytest.mark.anyio
async def test_a_claim_counts_from_when_it_was_sent_and_not_from_its_answer():
    with keeper(Store(), 60.0) as keeping:
        keeping.keep("r-1", now() - 58.0)

        assert not keeping.holds("r-1")
