"""Who may append and who may drive: epochs and leases."""

from __future__ import annotations

import pytest

from checkrein.core.words import Outcome, Status, Verb
from checkrein.errors import Conflict, LeaseHeld, MisuseError, RunNotFound, StaleEpoch
from checkrein.journal.contract import Journal, Lease, Owner
from tests.journal.build import (
    ALICE,
    BOB,
    answered,
    created,
    driven,
    ended,
    outcome,
    permit,
    reason,
    reopened,
    resolved,
    settled_effect,
    verb,
)
from tests.journal.conftest import Store

pytestmark = pytest.mark.anyio


# -- epochs


async def test_without_an_epoch_only_what_needs_no_owner_is_taken(journal: Journal):
    await driven(journal)

    await journal.append("r", [verb(), resolved(), settled_effect(), reopened(), reason()], after=1)

    for event in (outcome(), permit(), ended()):
        with pytest.raises(MisuseError):
            await journal.append("r", [event], after=6)


async def test_a_stale_owner_is_refused_facts_and_all(journal: Journal, store: Store):
    stale = await driven(journal)
    await store.open().claim("r", BOB, seconds=60, force=True)

    with pytest.raises(StaleEpoch) as refused:
        await journal.append("r", [outcome(), permit()], after=1, epoch=stale.epoch)

    assert vars(refused.value)["epoch"] == stale.epoch + 1
    assert len(await journal.read("r")) == 1


async def test_an_epoch_that_was_never_given_out_is_a_mistake(journal: Journal):
    lease = await driven(journal)

    with pytest.raises(MisuseError):
        await journal.append("r", [outcome()], after=1, epoch=lease.epoch + 1)


async def test_a_stale_owner_may_say_what_became_of_a_call_of_its_own_epoch(journal: Journal, store: Store):
    stale = await driven(journal)
    other = store.open()
    await other.claim("r", BOB, seconds=60, force=True)
    await other.append("r", [verb(Verb.CANCEL)], after=1)

    appended = await journal.append("r", [answered("a"), answered("b")], after=1, epoch=stale.epoch)

    assert [record.seq for record in appended.events] == [3, 4]


async def test_that_is_all_a_stale_owner_may_say(journal: Journal):
    stale = await driven(journal)
    current = await journal.claim("r", BOB, seconds=60, force=True)

    for events in ([answered("a"), outcome("a")], [answered("a", epoch=current.epoch)]):
        with pytest.raises(StaleEpoch):
            await journal.append("r", events, after=1, epoch=stale.epoch)


async def test_it_is_taken_only_once(journal: Journal):
    stale = await driven(journal)
    current = await journal.claim("r", BOB, seconds=60, force=True)
    said = await journal.append("r", [answered("a", outcome=Outcome.IN_DOUBT)], after=1, epoch=current.epoch)

    again = await journal.append("r", [answered("b"), answered("a")], after=1, epoch=stale.epoch)

    assert again.events[1] == said.events[0]
    assert [record.seq for record in again.events] == [3, 2]
    assert len(await journal.read("r")) == 3


async def test_an_answer_that_came_before_does_not_swallow_what_is_said_with_it(journal: Journal):
    stale = await driven(journal)
    current = await journal.claim("r", BOB, seconds=60, force=True)
    await journal.append("r", [answered("a")], after=1, epoch=stale.epoch)

    both = await journal.append("r", [answered("a"), resolved("a")], after=2, epoch=current.epoch)

    assert [record.seq for record in both.events] == [2, 3]
    with pytest.raises(Conflict):
        await journal.append("r", [answered("a"), resolved("a")], after=2, epoch=current.epoch)


async def test_an_answer_must_have_the_id_that_makes_it_unique(journal: Journal):
    lease = await driven(journal)

    with pytest.raises(MisuseError):
        await journal.append(
            "r", [answered("a", lease.epoch).__class__(id="x", at=1.0, call="a", epoch=1, outcome=Outcome.FAILED)],
            after=1, epoch=lease.epoch,
        )  # fmt: skip


async def test_a_stale_owner_may_answer_when_the_run_is_over(journal: Journal):
    stale = await driven(journal)
    current = await journal.claim("r", BOB, seconds=60, force=True)
    await journal.append("r", [ended(Status.CANCELLED)], after=1, epoch=current.epoch)

    appended = await journal.append("r", [answered()], after=1, epoch=stale.epoch)

    assert appended.events[0].seq == 3


# -- leases


async def lease_of(journal: Journal, run: str) -> Lease:
    lease = await journal.lease(run)
    assert lease is not None
    return lease


async def test_a_claim_makes_one_owner_with_an_epoch_and_a_deadline(journal: Journal, store: Store):
    await journal.create(created("r"))
    assert await journal.lease("r") is None

    lease = await journal.claim("r", ALICE, seconds=30)

    assert (lease.run, lease.epoch, lease.owner, lease.deadline) == ("r", 1, ALICE, store.clock.now + 30)
    assert lease.previous is None
    assert await store.open().lease("r") == lease


async def test_a_run_with_a_living_owner_is_not_given_to_another(journal: Journal, store: Store):
    await driven(journal)

    with pytest.raises(LeaseHeld) as refused:
        await store.open().claim("r", BOB, seconds=60)

    assert vars(refused.value)["owner"] == ALICE


async def test_a_lease_that_has_run_out_may_be_claimed_and_names_who_held_it(journal: Journal, store: Store):
    first = await driven(journal)
    store.clock.now += 61

    second = await journal.claim("r", BOB, seconds=60)

    assert (second.epoch, second.previous) == (first.epoch + 1, ALICE)


async def test_force_takes_a_living_lease(journal: Journal):
    first = await driven(journal)

    second = await journal.claim("r", BOB, seconds=60, force=True)

    assert second.epoch > first.epoch
    assert (await lease_of(journal, "r")).owner == BOB


async def test_the_same_owner_may_claim_again_and_gets_a_new_epoch(journal: Journal):
    first = await driven(journal)

    second = await journal.claim("r", ALICE, seconds=60)

    assert (second.epoch, second.previous) == (first.epoch + 1, ALICE)


async def test_another_life_of_a_process_is_another_owner(journal: Journal):
    await driven(journal)

    with pytest.raises(LeaseHeld):
        await journal.claim("r", Owner(process="alice-2", host=ALICE.host, pid=ALICE.pid), seconds=60)


async def test_a_given_epoch_is_taken_only_upwards(journal: Journal):
    await driven(journal)
    lease = await journal.claim("r", ALICE, seconds=60, epoch=2_000_001)
    assert lease.epoch == 2_000_001

    for epoch in (1, 2_000_001):
        with pytest.raises(StaleEpoch):
            await journal.claim("r", BOB, seconds=60, epoch=epoch, force=True)

    assert (await journal.claim("r", ALICE, seconds=60)).epoch == 2_000_002


async def test_renewal_prolongs_the_leases_an_owner_still_holds_and_says_which(journal: Journal, store: Store):
    for run in ("mine", "lost", "lapsed", "never"):
        await journal.create(created(run))
    for run, seconds in (("mine", 60), ("lost", 60), ("lapsed", 10)):
        await journal.claim(run, ALICE, seconds=seconds)
    await journal.claim("lost", BOB, seconds=60, force=True)
    store.clock.now += 20

    assert await journal.renew(ALICE, seconds=60) == {"mine"}

    assert (await lease_of(journal, "mine")).deadline == store.clock.now + 60
    assert (await lease_of(journal, "lost")).deadline == store.clock.now + 40
    assert await journal.renew(Owner(process="nobody"), seconds=60) == frozenset()


async def test_a_released_run_is_free_but_its_epoch_stays(journal: Journal):
    lease = await driven(journal)

    await journal.release(lease)

    assert await journal.lease("r") is None
    await journal.append("r", [outcome()], after=1, epoch=lease.epoch)
    taken = await journal.claim("r", BOB, seconds=60)
    assert (taken.epoch, taken.previous) == (lease.epoch + 1, None)


async def test_releasing_a_lease_that_was_lost_does_nothing(journal: Journal):
    lost = await driven(journal)
    held = await journal.claim("r", BOB, seconds=60, force=True)

    await journal.release(lost)

    assert (await lease_of(journal, "r")).epoch == held.epoch


async def test_a_run_that_is_not_there_cannot_be_claimed(journal: Journal):
    with pytest.raises(RunNotFound):
        await journal.claim("nobody", ALICE, seconds=1)
    with pytest.raises(RunNotFound):
        await journal.lease("nobody")
