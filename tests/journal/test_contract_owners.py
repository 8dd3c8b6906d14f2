"""Who may append and who may drive: epochs and leases."""

from __future__ import annotations

import msgspec
import pytest

from checkrein.core.enums import Outcome, Status, Verb
from checkrein.core.events import CallAnswered
from checkrein.errors import Conflict, LeaseHeld, MisuseError, RunNotFound, StaleEpoch
from checkrein.journal.base import Journal, Lease, Owner
from tests.journal import build
from tests.journal.conftest import RolesStore, Store

pytestmark = pytest.mark.anyio


# -- epochs


async def test_without_an_epoch_only_what_needs_no_owner_is_taken(journal: Journal):
    await build.driven(journal)

    await journal.append(
        "r", [build.verb(), build.resolved(), build.settled_effect(), build.reopened(), build.reason()], after=1
    )

    for event in (build.outcome(), build.permit(), build.ended()):
        with pytest.raises(MisuseError):
            await journal.append("r", [event], after=6)


async def test_a_stale_owner_is_refused_facts_and_all(journal: Journal, store: Store):
    stale = await build.driven(journal)
    await store.open().claim("r", build.BOB, seconds=60, force=True)

    with pytest.raises(StaleEpoch) as refused:
        await journal.append("r", [build.outcome(), build.permit()], after=1, epoch=stale.epoch)

    assert vars(refused.value)["epoch"] == stale.epoch + 1
    assert len(await journal.read("r")) == 1


async def test_an_epoch_that_was_never_given_out_is_a_mistake(journal: Journal):
    lease = await build.driven(journal)

    with pytest.raises(MisuseError):
        await journal.append("r", [build.outcome()], after=1, epoch=lease.epoch + 1)


async def test_a_stale_owner_may_say_what_became_of_a_call_of_its_own_epoch(journal: Journal, store: Store):
    stale = await build.driven(journal)
    other = store.open()
    await other.claim("r", build.BOB, seconds=60, force=True)
    await other.append("r", [build.verb(Verb.CANCEL)], after=1)

    appended = await journal.append("r", [build.answered("a"), build.answered("b")], after=1, epoch=stale.epoch)

    assert [record.seq for record in appended.events] == [3, 4]


async def test_that_is_all_a_stale_owner_may_say(journal: Journal):
    stale = await build.driven(journal)
    current = await journal.claim("r", build.BOB, seconds=60, force=True)

    for events in ([build.answered("a"), build.outcome("a")], [build.answered("a", epoch=current.epoch)]):
        with pytest.raises(StaleEpoch):
            await journal.append("r", events, after=1, epoch=stale.epoch)


async def test_it_is_taken_only_once(journal: Journal):
    stale = await build.driven(journal)
    current = await journal.claim("r", build.BOB, seconds=60, force=True)
    said = await journal.append("r", [build.answered("a", outcome=Outcome.IN_DOUBT)], after=1, epoch=current.epoch)

    again = await journal.append("r", [build.answered("b"), build.answered("a")], after=1, epoch=stale.epoch)

    assert again.events[1] == said.events[0]
    assert [record.seq for record in again.events] == [3, 2]
    assert len(await journal.read("r")) == 3


async def test_an_answer_that_came_before_does_not_swallow_what_is_said_with_it(journal: Journal):
    stale = await build.driven(journal)
    current = await journal.claim("r", build.BOB, seconds=60, force=True)
    await journal.append("r", [build.answered("a")], after=1, epoch=stale.epoch)

    both = await journal.append("r", [build.answered("a"), build.resolved("a")], after=2, epoch=current.epoch)

    assert [record.seq for record in both.events] == [2, 3]
    with pytest.raises(Conflict):
        await journal.append("r", [build.answered("a"), build.resolved("a")], after=2, epoch=current.epoch)


async def test_an_answer_must_have_the_id_that_makes_it_unique(journal: Journal):
    lease = await build.driven(journal)
    answer = CallAnswered(id="x", at=1.0, call="a", epoch=1, outcome=Outcome.FAILED)

    with pytest.raises(MisuseError):
        await journal.append("r", [answer], after=1, epoch=lease.epoch)


async def test_a_stale_owner_may_answer_when_the_run_is_over(journal: Journal):
    stale = await build.driven(journal)
    current = await journal.claim("r", build.BOB, seconds=60, force=True)
    await journal.append("r", [build.ended(Status.CANCELLED)], after=1, epoch=current.epoch)

    appended = await journal.append("r", [build.answered()], after=1, epoch=stale.epoch)

    assert appended.events[0].seq == 3


# -- leases


async def lease_of(journal: Journal, run: str) -> Lease:
    lease = await journal.lease(run)
    assert lease is not None
    return lease


async def test_a_claim_makes_one_owner_with_an_epoch_and_a_deadline(journal: Journal, store: Store):
    await journal.create(build.created("r"))
    assert await journal.lease("r") is None

    lease = await journal.claim("r", build.ALICE, seconds=30)

    assert (lease.run, lease.epoch, lease.owner, lease.deadline) == ("r", 1, build.ALICE, store.clock.now + 30)
    assert lease.previous is None
    assert await store.open().lease("r") == lease


async def test_a_run_with_a_living_owner_is_not_given_to_another(journal: Journal, store: Store):
    await build.driven(journal)

    with pytest.raises(LeaseHeld) as refused:
        await store.open().claim("r", build.BOB, seconds=60)

    assert vars(refused.value)["owner"] == build.ALICE


async def test_a_lease_that_has_run_out_may_be_claimed_and_names_who_held_it(journal: Journal, store: Store):
    first = await build.driven(journal)
    store.clock.now += 61

    second = await journal.claim("r", build.BOB, seconds=60)

    assert (second.epoch, second.previous) == (first.epoch + 1, build.ALICE)


async def test_force_takes_a_living_lease(journal: Journal):
    first = await build.driven(journal)

    second = await journal.claim("r", build.BOB, seconds=60, force=True)

    assert second.epoch > first.epoch
    assert (await lease_of(journal, "r")).owner == build.BOB


async def test_the_same_owner_may_claim_again_and_gets_a_new_epoch(journal: Journal):
    first = await build.driven(journal)

    second = await journal.claim("r", build.ALICE, seconds=60)

    assert (second.epoch, second.previous) == (first.epoch + 1, build.ALICE)


async def test_another_life_of_a_process_is_another_owner(journal: Journal):
    await build.driven(journal)

    with pytest.raises(LeaseHeld):
        await journal.claim("r", Owner(process="alice-2", host=build.ALICE.host, pid=build.ALICE.pid), seconds=60)


async def test_a_given_epoch_is_taken_only_upwards(journal: Journal, store: Store):
    await build.driven(journal)
    higher = 2 if isinstance(store, RolesStore) else 2_000_001  # a role may claim with the next one alone
    lease = await journal.claim("r", build.ALICE, seconds=60, epoch=higher)
    assert lease.epoch == higher

    for epoch in (1, higher):
        with pytest.raises(StaleEpoch):
            await journal.claim("r", build.BOB, seconds=60, epoch=epoch, force=True)

    assert (await journal.claim("r", build.ALICE, seconds=60)).epoch == higher + 1


async def test_renewal_prolongs_the_leases_that_nobody_else_has_claimed_and_says_which(journal: Journal, store: Store):
    for run in ("mine", "lost", "lapsed", "never"):
        await journal.create(build.created(run))
    for run, seconds in (("mine", 60), ("lost", 60), ("lapsed", 10)):
        await journal.claim(run, build.ALICE, seconds=seconds)
    await journal.claim("lost", build.BOB, seconds=60, force=True)
    store.clock.now += 20

    assert await journal.renew(build.ALICE, seconds=60) == {"mine", "lapsed"}

    assert (await lease_of(journal, "mine")).deadline == store.clock.now + 60
    assert (await lease_of(journal, "lapsed")).deadline == store.clock.now + 60
    assert (await lease_of(journal, "lost")).deadline == store.clock.now + 40
    assert await journal.renew(Owner(process="nobody"), seconds=60) == frozenset()


async def test_only_the_runs_that_are_asked_for_are_renewed(journal: Journal, store: Store):
    for run in ("kept", "forgotten"):
        await journal.create(build.created(run))
        await journal.claim(run, build.ALICE, seconds=60)
    store.clock.now += 20

    assert await journal.renew(build.ALICE, seconds=60, runs={"kept", "never"}) == {"kept"}

    assert (await lease_of(journal, "forgotten")).deadline == store.clock.now + 40


async def test_the_time_of_a_journal_is_the_one_that_leases_are_judged_by(journal: Journal, store: Store):
    await journal.create(build.created("r"))
    store.clock.set_forward(5_000)

    lease = await journal.claim("r", build.ALICE, seconds=30)

    assert lease.deadline == journal.now() + 30


# -- a wall clock that is set

HOUR = 3_600.0


@pytest.mark.parametrize("set_by", [HOUR, -HOUR], ids=["forward", "back"])
async def test_on_one_host_a_lease_lasts_as_long_whatever_the_wall_clock_is_set_to(
    journal: Journal, store: Store, set_by: float
):
    await journal.create(build.created("r"))
    await journal.claim("r", build.ALICE, seconds=60)

    store.clock.set_forward(set_by)
    store.clock.now += 59
    with pytest.raises(LeaseHeld):
        await journal.claim("r", build.BOB, seconds=60)
    store.clock.now += 2

    assert (await journal.claim("r", build.BOB, seconds=60)).epoch == 2


@pytest.mark.parametrize("set_by", [HOUR, -HOUR], ids=["forward", "back"])
async def test_a_lease_is_renewed_whatever_the_wall_clock_is_set_to(journal: Journal, store: Store, set_by: float):
    await journal.create(build.created("r"))
    await journal.claim("r", build.ALICE, seconds=60)

    store.clock.set_forward(set_by)
    store.clock.now += 50
    assert await journal.renew(build.ALICE, seconds=60) == {"r"}
    store.clock.now += 50

    with pytest.raises(LeaseHeld):
        await journal.claim("r", build.BOB, seconds=60)


async def test_between_hosts_and_boots_the_wall_clock_decides(journal: Journal, store: Store):
    elsewhere = msgspec.structs.replace(build.BOB, boot_id="another")
    await journal.create(build.created("r"))
    await journal.claim("r", build.ALICE, seconds=60)
    store.clock.now += 59
    with pytest.raises(LeaseHeld):
        await journal.claim("r", elsewhere, seconds=60)

    store.clock.set_forward(2)

    assert (await journal.claim("r", elsewhere, seconds=60)).epoch == 2


async def test_a_released_run_is_free_but_its_epoch_stays(journal: Journal):
    lease = await build.driven(journal)

    await journal.release(lease)

    assert await journal.lease("r") is None
    await journal.append("r", [build.outcome()], after=1, epoch=lease.epoch)
    taken = await journal.claim("r", build.BOB, seconds=60)
    assert (taken.epoch, taken.previous) == (lease.epoch + 1, None)


async def test_releasing_a_lease_that_was_lost_does_nothing(journal: Journal):
    lost = await build.driven(journal)
    held = await journal.claim("r", build.BOB, seconds=60, force=True)

    await journal.release(lost)

    assert (await lease_of(journal, "r")).epoch == held.epoch


async def test_a_run_that_is_not_there_cannot_be_claimed(journal: Journal):
    with pytest.raises(RunNotFound):
        await journal.claim("nobody", build.ALICE, seconds=1)
    with pytest.raises(RunNotFound):
        await journal.lease("nobody")
