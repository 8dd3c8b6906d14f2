"""Several runs in one question: states, leases, texts, counts; what has changed; and claiming what is free.

What a journal answers quickly, the plain way of the contract answers too, and a journal that has no quick way has that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import anyio
import pytest
from msgspec.structs import replace

from checkrein.core.enums import Status, Verb
from checkrein.errors import StoreUnavailable
from checkrein.journal import Journal, Lease
from checkrein.journal.base import STOP_VERSION_SECONDS, Chunk, ClaimOptions, LeftToOthers, Owner
from checkrein.journal.sqlite import reads
from tests.journal.build import ALICE, BOB, created, driven, ended, outcome, over, reason, settled, started, verb
from tests.journal.conftest import Store
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

CAROL = Owner(process="carol-1", host="here", boot_id="boot", pid=33, started=3.5)


def names(leases: Sequence[Lease]) -> list[str]:
    return [lease.run for lease in leases]


# -- states


async def test_several_states_are_those_that_are_loaded_one_by_one(journal: Journal):
    for run in ("a", "b", "c"):
        lease = await driven(journal, run)
        await journal.append(run, [started(lease.epoch)], after=1, epoch=lease.epoch)

    states = await journal.states(["c", "a", "nobody", "a"])

    assert states == {run: await journal.load(run) for run in ("a", "c")}
    assert await Journal.states(journal, ["c", "a", "nobody", "a"]) == states
    assert await journal.states([]) == {}


async def test_several_states_of_runs_of_any_length(journal: Journal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reads, "PAGE", 10)
    monkeypatch.setattr(reads, "STATES", 3)
    lengths = {f"r{events}": events for events in (1, 9, 10, 11, 20, 35, 2, 3)}
    for run, events in lengths.items():
        lease = await driven(journal, run)
        facts = [outcome(f"{run}-{n}") for n in range(events - 1)]
        if facts:
            await journal.append(run, facts, after=1, epoch=lease.epoch)

    states = await journal.states(lengths)

    assert {run: state.seq for run, state in states.items()} == lengths
    assert states == {run: await journal.load(run) for run in lengths}


# -- leases


async def test_several_leases_are_those_that_are_asked_for_one_by_one(journal: Journal):
    await driven(journal, "of-alice")
    await driven(journal, "of-bob", BOB)
    await journal.create(created("free"))
    await journal.release(await driven(journal, "released"))
    asked = ["of-bob", "free", "released", "nobody", "of-alice"]

    leases = await journal.leases(asked)

    assert leases == {run: await journal.lease(run) for run in ("of-alice", "of-bob")}
    assert await Journal.leases(journal, asked) == leases


# -- counts


async def test_runs_are_counted_by_agent_and_status(journal: Journal):
    assert await journal.tally() == {}
    await journal.create(created("q1", agent="one"))
    await journal.create(created("q2", agent="one"))
    await journal.create(created("q3", agent="two"))
    await over(journal, "done")

    counted = await journal.tally()

    assert counted == {("one", Status.QUEUED): 2, ("two", Status.QUEUED): 1, ("churn", Status.COMPLETED): 1}
    assert await Journal.tally(journal) == counted


# -- what has changed


async def test_runs_that_have_changed_after_a_time_are_told_by_their_last_event(journal: Journal):
    for run, at in (("old", 10.0), ("new", 20.0), ("long", 5.0), ("set-back", 30.0)):
        await driven(journal, run, at=at)
    await journal.append("long", [outcome(at=40.0)], after=1, epoch=1)
    await journal.append("set-back", [outcome(at=12.0)], after=1, epoch=1)

    async def after(time: float, limit: int = 100, before: str | None = None) -> list[str]:
        return [row.id for row in await journal.runs(changed_after=time, limit=limit, before=before)]

    assert await after(0.0) == ["set-back", "long", "new", "old"]
    assert await after(10.0) == ["set-back", "long", "new"]
    assert await after(15.0) == ["long", "new"]
    assert await after(15.0, limit=1) == ["long"]
    assert await after(15.0, before="long") == ["new"]
    assert await after(40.0) == []


async def test_what_has_changed_is_found_behind_any_number_of_later_events(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reads, "PAGE", 10)
    await driven(journal, "old", at=10.0)
    await driven(journal, "changed", at=20.0)
    await driven(journal, "busy", at=5.0)
    # One that comes in late, by its time, hides nothing.
    await journal.append("busy", [outcome(at=1.0 if n % 7 == 0 else 30.0) for n in range(45)], after=1, epoch=1)

    assert [row.id for row in await journal.runs(changed_after=15.0)] == ["busy", "changed"]
    assert len(await journal.runs(changed_after=0.0)) == 3


async def test_changes_can_be_narrowed_like_any_list(journal: Journal):
    await driven(journal, "one", at=20.0, agent="a", goal="paint")
    await driven(journal, "two", at=20.0, agent="b", goal="paint")
    await driven(journal, "three", at=10.0, agent="b", goal="paint")

    found = await journal.runs(changed_after=15.0, agent="b", search="PAINT")

    assert [row.id for row in found] == ["two"]


async def test_runs_of_which_something_was_asked(journal: Journal):
    for run in ("left-alone", "paused", "cancelled"):
        await driven(journal, run)
    await journal.append("paused", [verb(Verb.PAUSE)], after=1)
    await journal.append("cancelled", [verb(Verb.CANCEL)], after=1)

    assert [row.id for row in await journal.runs(asked=True)] == ["cancelled", "paused"]
    assert [row.id for row in await journal.runs(asked=True, limit=5, before="cancelled")] == ["paused"]
    assert len(await journal.runs()) == 3


async def test_a_verb_that_was_tampered_with_was_asked_all_the_same(store: Store, journal: Journal):
    await driven(journal)
    await journal.append("r", [verb(Verb.PAUSE)], after=1)

    store.change_body("r", 2, b"nothing was asked")

    assert [row.id for row in await journal.runs(asked=True)] == ["r"]


# -- text


async def test_the_text_of_several_calls_is_that_of_each(journal: Journal):
    for run in ("r1", "r2"):
        await driven(journal, run)
    await journal.write_chunks(
        {"r1": [Chunk("c1", 0, "one "), Chunk("c1", 4, "two"), Chunk("c2", 0, "x")], "r2": [Chunk("c1", 0, "three")]}
    )
    asked = {("r1", "c1"): -1, ("r1", "c2"): 0, ("r2", "c1"): -1, ("r2", "c9"): -1, ("nobody", "c1"): -1}

    texts = await journal.chunks_of(asked)

    assert texts == {
        ("r1", "c1"): (Chunk("c1", 0, "one "), Chunk("c1", 4, "two")),
        ("r2", "c1"): (Chunk("c1", 0, "three"),),
    }
    assert await Journal.chunks_of(journal, asked) == texts
    assert await journal.chunks_of({("r1", "c1"): 0}) == {("r1", "c1"): (Chunk("c1", 4, "two"),)}


# -- claiming what is free


async def put(journal: Journal, run: str, status: Status) -> None:
    """A run in this status, that nobody drives."""
    lease = await driven(journal, run, thread=run)
    if status is Status.PAUSED:
        asked = verb(Verb.PAUSE)
        await journal.append(run, [asked], after=1)
        await journal.append(run, [settled(asked, status)], after=2, epoch=lease.epoch)
    elif status in (Status.PAUSING, Status.CANCELLING):
        await journal.append(run, [verb(Verb.PAUSE if status is Status.PAUSING else Verb.CANCEL)], after=1)
    elif status is not Status.QUEUED:
        event = started(lease.epoch) if status is Status.RUNNING else ended(status)
        await journal.append(run, [event], after=1, epoch=lease.epoch)
    await journal.release(lease)


async def test_whoever_reads_text_along_is_told_of_what_others_write(store: Store, journal: Journal):
    other = store.open()
    await other.create(created("r1"))
    texts = journal.texts()
    waiting = asyncio.ensure_future(anext(texts))
    await asyncio.sleep(0)  # it listens

    await other.write_chunks({"r1": [Chunk("c1", 0, "one")]})

    with anyio.fail_after(PATIENCE_SECONDS):
        while (runs := await waiting) is not None and "r1" not in runs:
            waiting = asyncio.ensure_future(anext(texts))
    assert (await journal.chunks_of({("r1", "c1"): -1}))["r1", "c1"] == (Chunk("c1", 0, "one"),)


async def test_what_wants_a_driver_and_has_none_is_claimed_the_oldest_first(journal: Journal):
    wanted = [Status.RUNNING, Status.PAUSING, Status.QUEUED, Status.CANCELLING]
    for status in [*wanted, Status.PAUSED, Status.COMPLETED, Status.CANCELLED]:
        await put(journal, status, status)

    claimed = await journal.claim_free(["churn"], BOB, most=10, seconds=60)

    assert names(claimed) == wanted
    assert claimed == tuple([await journal.lease(run) for run in wanted])
    assert {(lease.owner, lease.epoch, lease.previous) for lease in claimed} == {(BOB, 2, None)}
    assert await journal.claim_free(["churn"], ALICE, most=10, seconds=60) == ()


async def test_what_is_free_is_listed_the_oldest_first_and_is_nobodys_by_that(store: Store, journal: Journal):
    for number in range(4):
        await journal.create(created(f"r{number}", thread=f"of-{number}", at=float(number)))
    await driven(journal, "held", ALICE)
    await journal.create(created("held.1", parent="held", root="held", thread="sub"))

    assert await journal.free_runs(["churn"], BOB, most=9, except_for={"r1"}) == ("r0", "r2", "r3")
    assert await journal.free_runs(["churn"], BOB, most=2) == ("r0", "r1")
    assert await journal.free_runs(["churn"], BOB, most=0) == ()
    assert await journal.free_runs(["another"], BOB, most=9) == ()
    assert await journal.leases(["r0", "r1", "r2", "r3"]) == {}
    store.clock.now += 61
    everything = await journal.free_runs(["churn"], BOB, most=9)
    assert everything == ("r0", "r1", "r2", "r3", "held", "held.1")
    assert names(await journal.claim_free(["churn"], BOB, most=9, seconds=60)) == list(everything)


async def test_no_more_is_claimed_than_was_asked_for_and_only_of_these_agents(journal: Journal):
    for number in range(4):
        await journal.create(created(f"a{number}", agent="a", thread=f"a{number}", at=float(number)))
        await journal.create(created(f"b{number}", agent="b", thread=f"b{number}", at=float(number)))
        await journal.create(created(f"c{number}", agent="c", thread=f"c{number}", at=float(number)))

    assert names(await journal.claim_free(["a"], ALICE, most=2, seconds=60)) == ["a0", "a1"]
    assert names(await journal.claim_free({"a", "b"}, ALICE, most=3, seconds=60)) == ["b0", "b1", "a2"]
    assert await journal.claim_free(["nobody's"], ALICE, most=3, seconds=60) == ()
    assert await journal.claim_free([], ALICE, most=3, seconds=60) == ()
    assert await journal.claim_free(["c"], ALICE, most=0, seconds=60) == ()
    assert names(await journal.claim_free(["c"], ALICE, most=9, seconds=60, except_for={"c1", "c2"})) == ["c0", "c3"]


async def test_a_lease_in_force_keeps_a_run_from_others_and_from_its_own_owner(store: Store, journal: Journal):
    await driven(journal)

    for owner in (ALICE, BOB):
        assert await journal.claim_free(["churn"], owner, most=1, seconds=60) == ()
    store.clock.now += 61

    (lease,) = await journal.claim_free(["churn"], BOB, most=1, seconds=60)
    assert (lease.epoch, lease.owner, lease.previous) == (2, BOB, ALICE)
    assert lease.deadline == store.clock.now + 60


async def test_a_lease_of_the_same_boot_goes_by_the_clock_that_nobody_sets(store: Store, journal: Journal):
    await driven(journal)
    elsewhere = Owner(process="dora-1", host="far", boot_id="another", pid=1, started=1.0)

    store.clock.set_forward(3_600)

    assert await journal.claim_free(["churn"], BOB, most=1, seconds=60) == ()
    assert names(await journal.claim_free(["churn"], elsewhere, most=1, seconds=60)) == ["r"]


async def test_a_queued_run_waits_for_those_of_its_thread_and_owner_that_came_before(journal: Journal):
    await driven(journal, "first")
    await journal.create(created("second"))
    await journal.create(created("of-another", owner="another"))
    await journal.create(created("elsewhere", thread="t2"))

    assert names(await journal.claim_free(["churn"], BOB, most=9, seconds=60)) == ["of-another", "elsewhere"]
    await journal.append("first", [ended()], after=1, epoch=1)
    assert names(await journal.claim_free(["churn"], BOB, most=9, seconds=60)) == ["second"]


async def test_a_sub_run_is_left_to_whoever_drives_its_parent(store: Store, journal: Journal):
    await driven(journal, "top", ALICE)
    await journal.create(created("top.1", parent="top", root="top", thread="sub"))

    assert await journal.claim_free(["churn"], BOB, most=9, seconds=60) == ()
    assert names(await journal.claim_free(["churn"], ALICE, most=9, seconds=10)) == ["top.1"]
    store.clock.now += 61
    assert names(await journal.claim_free(["churn"], BOB, most=9, seconds=60)) == ["top", "top.1"]


async def test_claims_at_the_same_time_get_everything_once(store: Store, journal: Journal):
    for number in range(60):
        await journal.create(created(f"r{number}", thread=f"t{number}"))

    claims = [store.open().claim_free(["churn"], owner, most=7, seconds=60) for owner in (ALICE, BOB, CAROL) * 3]
    claimed = [lease for leases in await asyncio.gather(*claims) for lease in leases]

    assert len(claimed) == 60
    assert set(names(claimed)) == {f"r{number}" for number in range(60)}
    for lease in claimed:
        assert await journal.lease(lease.run) == lease


async def test_a_former_owner_is_refused_what_somebody_claimed_from_it(store: Store, journal: Journal):
    lease = await driven(journal)
    store.clock.now += 61

    (claimed,) = await journal.claim_free(["churn"], BOB, most=1, seconds=60)

    await journal.append("r", [started(claimed.epoch)], after=1, epoch=claimed.epoch)
    await journal.release(lease)  # it has none any more
    assert await journal.lease("r") is not None


async def test_a_run_that_was_released_to_rest_is_left_alone_until_it_has_an_event(journal: Journal):
    lease = await driven(journal)
    await journal.append("r", [started(lease.epoch)], after=1, epoch=lease.epoch)
    await journal.release(lease, rests_at=2)

    assert await journal.lease("r") is None
    assert await journal.claim_free(["churn"], BOB, most=1, seconds=60) == ()
    await journal.append("r", [reason()], after=2)
    (claimed,) = await journal.claim_free(["churn"], BOB, most=1, seconds=60)
    await journal.release(claimed)
    assert names(await journal.claim_free(["churn"], BOB, most=1, seconds=60)) == ["r"]


async def test_a_run_that_has_an_event_by_the_time_it_is_released_does_not_rest(journal: Journal):
    lease = await driven(journal)
    await journal.append("r", [reason()], after=1)

    await journal.release(lease, rests_at=1)

    assert names(await journal.claim_free(["churn"], BOB, most=1, seconds=60)) == ["r"]


async def test_who_no_longer_has_a_run_does_not_let_it_rest(journal: Journal):
    lease = await driven(journal)
    await journal.release(await journal.claim("r", BOB, seconds=60, force=True))

    await journal.release(lease, rests_at=1)
    await journal.release(lease, hands_over=True)

    assert await journal.lease("r") is None
    assert names(await journal.claim_free(["churn"], BOB, most=1, seconds=60)) == ["r"]


@pytest.mark.parametrize("status", [Status.PAUSED, Status.COMPLETED, Status.RUNNING])
async def test_a_run_that_was_handed_over_is_claimed_whatever_its_status(journal: Journal, status: Status):
    await put(journal, "r", status)
    lease = await journal.claim("r", ALICE, seconds=60)
    assert await journal.claim_free(["churn"], BOB, most=1, seconds=60) == ()

    await journal.release(lease, hands_over=True)

    (claimed,) = await journal.claim_free(["churn"], BOB, most=1, seconds=60)
    assert (claimed.run, claimed.previous) == ("r", ALICE)
    await journal.release(claimed)
    again = await journal.claim_free(["churn"], BOB, most=1, seconds=60)
    assert names(again) == (["r"] if status is Status.RUNNING else [])


async def test_a_lease_that_was_handed_over_is_not_renewed_by_whoever_did(journal: Journal):
    """A renewal may be under way at that moment."""
    await put(journal, "r", Status.PAUSED)
    await journal.release(await journal.claim("r", ALICE, seconds=60), hands_over=True)

    assert await journal.renew(ALICE, seconds=60, runs={"r"}) == frozenset()

    assert names(await journal.claim_free(["churn"], BOB, most=1, seconds=60)) == ["r"]


async def test_a_lease_that_nobody_gave_back_is_claimed_whatever_its_status(store: Store, journal: Journal):
    await put(journal, "r", Status.PAUSED)
    lease = await journal.claim("r", ALICE, seconds=60)
    store.clock.now += 61

    (claimed,) = await journal.claim_free(["churn"], BOB, most=1, seconds=60)

    assert (claimed.previous, claimed.previous_until) == (ALICE, lease.until)


async def test_the_leases_of_some_owners_can_be_left_alone_and_asked_for(store: Store, journal: Journal):
    for run, owner in (("one", ALICE), ("two", ALICE), ("three", CAROL), ("of-another-agent", ALICE)):
        agent = "another" if run == "of-another-agent" else "churn"
        await journal.create(created(run, thread=run, agent=agent))
        await journal.claim(run, owner, seconds=60)
    await journal.create(created("free", thread="free"))
    store.clock.now += 61

    assert sorted(await journal.owners(), key=str) == [ALICE, CAROL]
    claimed = await journal.claim_free(["churn"], BOB, most=9, seconds=60, not_of={ALICE.process})

    assert names(claimed) == ["three", "free"]
    left = await journal.leases_of({ALICE.process}, ["churn"])
    assert left == tuple([await journal.lease(run) for run in ("one", "two")])
    assert await journal.leases_of({ALICE.process}, []) == await journal.leases_of([], ["churn"]) == ()


async def test_what_is_being_stopped_can_be_claimed_alone(journal: Journal):
    for status in frozenset(Status) - {Status.REDIRECTING}:
        await put(journal, status, status)
    for status in (Status.RUNNING, Status.PAUSED, Status.CANCELLED):
        await journal.release(await journal.claim(status, ALICE, seconds=60), hands_over=True)

    claimed = await journal.claim_free(["churn"], BOB, most=99, seconds=60, stops_only=True)

    assert set(names(claimed)) == {Status.PAUSING, Status.CANCELLING, Status.CANCELLED}


async def test_a_run_is_left_for_a_while_to_those_who_have_the_version_that_drove_it_last(
    store: Store, journal: Journal
):
    await journal.create(created("new", thread="new", at=store.clock.now))
    for run, version in (("one", "v1"), ("two", "v2")):
        await journal.create(created(run, thread=run, at=store.clock.now))
        await journal.release(await journal.claim(run, ALICE, seconds=60, version=version))
        await journal.release(await journal.claim(run, CAROL, seconds=60))  # control, which has none
    wanted: ClaimOptions = {"version": "v2", "versions_elsewhere": {"v1"}, "version_seconds": 30.0}

    claimed = await journal.claim_free(["churn"], BOB, most=9, seconds=60, **wanted)
    assert names(claimed) == ["new", "two"]
    store.clock.now += 31
    assert names(await journal.claim_free(["churn"], BOB, most=9, seconds=60, **wanted)) == ["one"]

    for lease in await journal.leases(["one"]), await journal.leases(["new"]):
        await journal.release(*lease.values())
    left: ClaimOptions = {"version": "v1", "versions_elsewhere": {"v2"}, "version_seconds": 3_600.0}
    assert await journal.claim_free(["churn"], BOB, most=9, seconds=60, **left) == ()


async def test_a_lease_that_ran_out_counts_as_heard_of_until_then(store: Store, journal: Journal):
    await journal.create(created("r", at=store.clock.now))
    await journal.claim("r", ALICE, seconds=60, version="v1")
    wanted = LeftToOthers(versions_elsewhere={"v1"}, version_seconds=30.0)

    store.clock.now += 61
    assert await journal.claim_free(["churn"], BOB, most=9, seconds=60, **wanted) == ()
    assert await journal.leases_of([ALICE.process], ["churn"], **wanted) == ()
    store.clock.now += 30
    assert names(await journal.leases_of([ALICE.process], ["churn"], **wanted)) == ["r"]
    assert names(await journal.claim_free(["churn"], BOB, most=9, seconds=60, **wanted)) == ["r"]


async def known_by(journal: Journal, run: str, status: Status, version: str, *, at: float) -> None:
    """A run in this status of which was heard last at this time, and which a worker of this version drove last."""
    await put(journal, run, Status.QUEUED)
    await journal.release(await journal.claim(run, ALICE, seconds=60, version=version))
    asked = verb(Verb.CANCEL if status is Status.CANCELLING else Verb.PAUSE)
    if status is not Status.QUEUED:
        await journal.append(run, [replace(asked, at=at)], after=1)


async def test_what_is_being_stopped_is_left_to_its_version_for_a_moment_only_and_stays_of_that_version(
    store: Store, journal: Journal
):
    """D16: what somebody deploys keeps nobody's stop waiting."""
    for status in (Status.PAUSING, Status.CANCELLING, Status.QUEUED):
        await known_by(journal, status, status, "v1", at=store.clock.now)
    wanted: ClaimOptions = {"version": "v2", "versions_elsewhere": {"v1"}, "version_seconds": 2_000.0}

    assert await journal.claim_free(["churn"], BOB, most=9, seconds=60, **wanted) == ()
    store.clock.now += STOP_VERSION_SECONDS + 0.1
    claimed = await journal.claim_free(["churn"], BOB, most=9, seconds=60, **wanted)

    assert set(names(claimed)) == {Status.PAUSING, Status.CANCELLING}
    await journal.claim(Status.QUEUED, BOB, seconds=60, version="v2")
    known = await journal.versions([Status.PAUSING, Status.CANCELLING, Status.QUEUED, "gone"])
    assert known == {Status.PAUSING: "v1", Status.CANCELLING: "v1", Status.QUEUED: "v2"}


async def test_the_lease_of_a_dead_process_keeps_no_stop_for_its_version(store: Store, journal: Journal):
    await known_by(journal, "r", Status.CANCELLING, "v1", at=store.clock.now)
    await journal.claim("r", ALICE, seconds=600)
    wanted = LeftToOthers(versions_elsewhere={"v1"}, version_seconds=60.0)

    store.clock.now += STOP_VERSION_SECONDS + 0.1

    assert names(await journal.leases_of([ALICE.process], ["churn"], **wanted)) == ["r"]


# -- the end


async def test_a_journal_that_is_closed_answers_none_of_it(journal: Journal):
    await driven(journal)
    await journal.close()

    questions: list[Callable[[], object]] = [
        lambda: journal.states(["r"]),
        lambda: journal.leases(["r"]),
        lambda: journal.tally(),
        lambda: journal.chunks_of({("r", "c1"): -1}),
        lambda: journal.claim_free(["churn"], ALICE, most=1, seconds=60),
        lambda: journal.free_runs(["churn"], ALICE, most=1),
        lambda: journal.owners(),
        lambda: journal.leases_of(["alice-1"], ["churn"]),
    ]
    for question in questions:
        with pytest.raises(StoreUnavailable):
            await question()  # type: ignore[misc]
