"""Facts, decisions, and what happens when they meet somebody else's."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import msgspec
import pytest
from anyio import to_thread
from msgspec.structs import replace

from checkrein.core.enums import CallKind, Status, Verb
from checkrein.core.events import Event
from checkrein.errors import Conflict, EventTooLarge, MisuseError, RunExists, RunNotFound, RunOver
from checkrein.journal import encoding
from checkrein.journal.base import Fence, Journal, Scope
from tests.journal import build
from tests.journal.conftest import Store

pytestmark = pytest.mark.anyio


# -- beginning a run


async def test_a_run_begins_with_its_creation_as_event_one(journal: Journal):
    event = build.created("r")

    record = await journal.create(event)

    assert (record.run, record.seq, record.event) == ("r", 1, event)
    assert record.body == encoding.encode(event)
    assert record.hash == encoding.link(encoding.genesis("r"), 1, record.body)
    assert await journal.read("r") == (record,)


async def test_creating_a_run_again_with_the_same_event_returns_the_same_record(journal: Journal):
    record = await journal.create(build.created("r"))

    assert await journal.create(build.created("r", at=99.0)) == record
    assert len(await journal.read("r")) == 1


async def test_another_event_cannot_create_a_run_that_exists(journal: Journal):
    await journal.create(build.created("r"))

    with pytest.raises(RunExists):
        await journal.create(build.created("r", id="another"))


async def test_a_run_below_an_unknown_one_is_not_created(journal: Journal):
    with pytest.raises(RunNotFound):
        await journal.create(build.created("r", parent="nobody", root="nobody"))


async def test_a_run_must_name_the_topmost_run_above_it(journal: Journal):
    await journal.create(build.created("top"))
    await journal.create(build.created("middle", parent="top", root="top"))

    with pytest.raises(MisuseError):
        await journal.create(build.created("low", parent="middle", root="middle"))
    with pytest.raises(MisuseError):
        await journal.create(build.created("low", root="top"))
    await journal.create(build.created("low", parent="middle", root="top"))


async def test_a_run_below_a_finished_one_is_not_created(journal: Journal):
    await build.over(journal, "r")

    with pytest.raises(RunOver):
        await journal.create(build.created("sub", parent="r", root="r"))


async def test_appending_to_an_unknown_run_says_so(journal: Journal):
    with pytest.raises(RunNotFound):
        await journal.append("nobody", [build.verb()], after=0)


# -- facts and decisions


async def test_appended_events_are_numbered_chained_and_kept_as_they_were_encoded(journal: Journal):
    lease = await build.driven(journal)
    first, second = build.outcome("a", "ä\n☃"), build.outcome("b", {"n": [1, 2.5, None]})

    appended = await journal.append("r", [first, second], after=1, epoch=lease.epoch)

    records = await journal.read("r")
    assert appended.events == records[1:]
    assert appended.missed == ()
    assert [record.seq for record in records] == [1, 2, 3]
    assert [record.event for record in records[1:]] == [first, second]
    assert records[2].hash == encoding.link(records[1].hash, 3, encoding.encode(second))


async def test_a_fact_is_taken_although_a_verb_came_in_between(journal: Journal):
    lease = await build.driven(journal)
    pause = await journal.append("r", [build.verb()], after=1)

    appended = await journal.append("r", [build.outcome()], after=1, epoch=lease.epoch)

    assert appended.events[0].seq == 3
    assert appended.missed == pause.events


async def test_a_decision_made_in_ignorance_of_a_verb_is_refused_with_what_came_in_between(journal: Journal):
    lease = await build.driven(journal)
    pause = await journal.append("r", [build.verb()], after=1)

    with pytest.raises(Conflict) as refused:
        await journal.append("r", [build.permit()], after=1, epoch=lease.epoch)

    assert refused.value.missed == pause.events
    assert refused.value.committed == ()
    assert await journal.read("r", after=1) == pause.events


async def test_a_decision_is_taken_although_facts_and_permits_came_in_between(journal: Journal):
    lease = await build.driven(journal)
    between = await journal.append("r", [build.outcome("a"), build.permit("b")], after=1, epoch=lease.epoch)

    appended = await journal.append("r", [build.verb(Verb.CANCEL)], after=1)

    assert appended.events[0].seq == 4
    assert appended.missed == between.events


async def test_of_a_mixed_append_the_facts_are_taken_and_the_decisions_refused(journal: Journal):
    lease = await build.driven(journal)
    pause = await journal.append("r", [build.verb()], after=1)
    fact = build.outcome("a")

    with pytest.raises(Conflict) as refused:
        await journal.append("r", [fact, build.permit("b"), build.opened("b")], after=1, epoch=lease.epoch)

    assert [record.event for record in refused.value.committed] == [fact]
    assert refused.value.missed == pause.events + refused.value.committed
    assert [record.event for record in await journal.read("r", after=2)] == [fact]


async def test_a_fact_behind_a_decision_shares_its_fate(journal: Journal):
    await build.driven(journal)
    await journal.append("r", [build.verb()], after=1)

    with pytest.raises(Conflict) as refused:
        await journal.append("r", [build.resolved(), build.settled_effect()], after=1)

    assert refused.value.committed == ()
    assert len(await journal.read("r")) == 2


async def test_two_decisions_made_on_the_same_knowledge_have_one_winner(journal: Journal, store: Store):
    lease = await build.driven(journal)
    other = store.open()

    answers = await asyncio.gather(
        journal.append("r", [build.ended()], after=1, epoch=lease.epoch),
        other.append("r", [build.verb(Verb.CANCEL)], after=1),
        return_exceptions=True,
    )

    assert sorted(type(answer).__name__ for answer in answers) in (["Appended", "Conflict"], ["Appended", "RunOver"])
    assert len(await journal.read("r")) == 2


async def test_an_append_that_claims_to_have_seen_the_future_is_a_mistake(journal: Journal):
    lease = await build.driven(journal)

    with pytest.raises(MisuseError):
        await journal.append("r", [build.permit()], after=7, epoch=lease.epoch)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [build.created("r", id="again")],
        [build.ended(), build.outcome()],
        [build.outcome(id="same"), build.outcome(id="same")],
    ],
    ids=["nothing", "another creation", "something after the end", "two events with one id"],
)
async def test_an_append_that_no_run_could_take_is_a_mistake(journal: Journal, events: list[Event]):
    lease = await build.driven(journal)

    with pytest.raises(MisuseError):
        await journal.append("r", events, after=1, epoch=lease.epoch)

    assert len(await journal.read("r")) == 1


async def test_the_status_of_a_run_follows_the_events_that_carry_one(journal: Journal):
    async def status() -> Status:
        [row] = await journal.runs()
        return row.status

    lease = await build.driven(journal)
    assert await status() is Status.QUEUED
    await journal.append("r", [build.started(lease.epoch)], after=1, epoch=lease.epoch)
    assert await status() is Status.RUNNING
    await journal.append("r", [build.verb(), build.reason()], after=2)
    assert await status() is Status.PAUSING
    await journal.append("r", [build.verb(Verb.RESUME)], after=4)
    assert await status() is Status.RUNNING
    await journal.append("r", [build.ended(Status.FAILED)], after=5, epoch=lease.epoch)
    assert await status() is Status.FAILED


# -- neighbours


async def test_a_refused_append_does_not_disturb_its_neighbours(journal: Journal):
    leases = {run: await build.driven(journal, run) for run in ("a", "b", "c")}
    await journal.append("b", [build.verb()], after=1)

    async with anyio.create_task_group() as tasks:  # in one group commit, where there is such a thing
        for run in ("a", "c"):
            tasks.start_soon(lambda run: journal.append(run, [build.permit()], after=1, epoch=leases[run].epoch), run)
        with pytest.raises(Conflict):
            await journal.append("b", [build.permit()], after=1, epoch=leases["b"].epoch)

    assert [len(await journal.read(run)) for run in ("a", "b", "c")] == [2, 2, 2]


async def test_an_append_that_fails_in_an_unforeseen_way_does_not_harm_its_neighbours(journal: Journal):
    lease = await build.driven(journal)
    other = await build.driven(journal, "other")
    taken, fact = build.outcome(), build.outcome("c")
    await journal.append("r", [taken], after=1, epoch=lease.epoch)

    answers = await asyncio.gather(
        journal.append("other", [build.outcome("a")], after=1, epoch=other.epoch),
        # A new event, and then one with an id that the run has: no repeat of anything.
        journal.append("r", [build.permit("x"), build.permit("y", id=taken.id)], after=2, epoch=lease.epoch),
        journal.append("other", [build.outcome("b")], after=1, epoch=other.epoch),
        journal.append("r", [fact], after=2, epoch=lease.epoch),
        return_exceptions=True,
    )

    assert [type(answer).__name__ for answer in answers] == ["Appended", "MisuseError", "Appended", "Appended"]
    assert len(await journal.read("other")) == 3
    assert [record.event for record in await journal.read("r", after=1)] == [taken, fact]


async def test_many_tasks_append_at_once_and_nothing_is_lost_or_doubled(journal: Journal):
    lease = await build.driven(journal)
    ids = [build.new_id() for _ in range(300)]

    async with anyio.create_task_group() as tasks:
        for name in ids:
            tasks.start_soon(lambda n: journal.append("r", [build.outcome(id=n)], after=1, epoch=lease.epoch), name)

    records = await journal.read("r", after=1)
    assert sorted(record.event.id for record in records) == sorted(ids)
    assert [record.seq for record in records] == list(range(2, 302))
    assert await journal.verify("r") == 301


# -- repeats


async def test_a_repeat_returns_what_was_recorded_the_first_time(journal: Journal, store: Store):
    lease = await build.driven(journal)
    events = [build.outcome("a"), build.permit("b"), build.opened("b")]
    first = await journal.append("r", events, after=1, epoch=lease.epoch)
    await journal.append("r", [build.verb()], after=1)

    again = await store.open().append("r", events, after=1, epoch=lease.epoch)

    assert again.events == first.events
    assert len(await journal.read("r")) == 5


async def test_a_repeated_verb_is_a_look_up_also_when_the_run_is_over(journal: Journal):
    lease = await build.driven(journal)
    cancel = build.verb(Verb.CANCEL, id="request-7")
    first = await journal.append("r", [cancel], after=1)
    await journal.append("r", [build.ended(Status.CANCELLED)], after=2, epoch=lease.epoch)

    again = await journal.append("r", [cancel], after=1)

    assert again.events == first.events


async def test_a_repeat_of_an_append_whose_decisions_were_refused_is_refused_again(journal: Journal):
    lease = await build.driven(journal)
    await journal.append("r", [build.verb()], after=1)
    events = [build.outcome("a"), build.permit("b")]
    for _ in range(2):
        with pytest.raises(Conflict) as refused:
            await journal.append("r", events, after=1, epoch=lease.epoch)
        assert [record.event for record in refused.value.committed] == events[:1]

    assert len(await journal.read("r")) == 3


async def test_decisions_refused_once_may_be_made_again_with_knowledge(journal: Journal):
    lease = await build.driven(journal)
    await journal.append("r", [build.verb(Verb.REDIRECT, status=Status.QUEUED)], after=1)
    events = [build.outcome("a"), build.permit("b")]
    with pytest.raises(Conflict):
        await journal.append("r", events, after=1, epoch=lease.epoch)

    appended = await journal.append("r", events, after=3, epoch=lease.epoch)

    assert [record.seq for record in appended.events] == [3, 4]


async def test_an_event_is_found_by_its_id_if_it_was_ever_taken(journal: Journal):
    lease = await build.driven(journal)
    fact = build.outcome()
    appended = await journal.append("r", [fact], after=1, epoch=lease.epoch)

    assert await journal.find("r", fact.id) == appended.events[0]
    assert await journal.find("r", "never") is None
    assert await journal.find("nobody", fact.id) is None


async def test_the_same_event_id_may_be_used_in_two_runs(journal: Journal):
    for run in ("a", "b"):
        lease = await build.driven(journal, run)
        await journal.append(run, [build.outcome(id="same")], after=1, epoch=lease.epoch)

    assert [len(await journal.read(run)) for run in ("a", "b")] == [2, 2]


# -- cancellation


async def test_a_task_that_is_cancelled_while_it_waits_does_not_take_its_append_back(journal: Journal):
    lease = await build.driven(journal)
    fact = build.outcome()

    with anyio.CancelScope() as scope:
        scope.cancel()
        await journal.append("r", [fact], after=1, epoch=lease.epoch)

    await journal.append("r", [build.outcome()], after=1, epoch=lease.epoch)  # behind it in every queue
    assert await journal.find("r", fact.id) is not None


async def test_a_task_that_is_cancelled_while_it_waits_changes_nothing_for_others(journal: Journal):
    lease = await build.driven(journal)

    async def append_and_be_cancelled() -> None:
        with anyio.move_on_after(0.001):
            for _ in range(50):
                await journal.append("r", [build.outcome()], after=1, epoch=lease.epoch)
                await journal.read("r")

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(append_and_be_cancelled)
    taken = await journal.append("r", [build.outcome()], after=1, epoch=lease.epoch)

    assert await journal.verify("r") == taken.events[-1].seq


async def test_a_journal_is_used_from_several_event_loops_at_once(journal: Journal):
    """Leases are renewed, and loops watched, by threads with a loop of their own."""
    runs = ["a", "b", "c"]
    for run in runs:
        await build.driven(journal, run)

    async def append(run: str) -> None:
        for seq in range(1, 21):
            await journal.append(run, [build.outcome()], after=seq, epoch=1)
            await journal.renew(build.ALICE, seconds=60)
            assert len(await journal.read(run)) == seq + 1

    async with anyio.create_task_group() as tasks:
        for run in runs:
            tasks.start_soon(lambda run: to_thread.run_sync(asyncio.run, append(run)), run)
        await append_here(journal)

    assert [await journal.verify(run) for run in [*runs, "here"]] == [21, 21, 21, 21]


async def append_here(journal: Journal) -> None:
    await build.driven(journal, "here")
    for seq in range(1, 21):
        await journal.append("here", [build.outcome()], after=seq, epoch=1)


async def test_an_undo_and_other_kinds_of_calls_are_permits_like_any_other(journal: Journal):
    lease = await build.driven(journal)
    await journal.append("r", [build.verb()], after=1)

    for kind in CallKind:
        with pytest.raises(Conflict):
            await journal.append("r", [build.permit(kind=kind)], after=1, epoch=lease.epoch)


async def test_a_cancel_under_the_id_of_a_pause_is_a_mistake_and_not_a_repeat(journal: Journal):
    await build.driven(journal)
    await journal.append("r", [build.verb(Verb.PAUSE, id="click")], after=1)

    with pytest.raises(MisuseError):
        await journal.append("r", [build.verb(Verb.CANCEL, id="click")], after=2)

    assert [record.seq for record in await journal.read("r")] == [1, 2]


async def test_a_second_permit_for_the_same_attempt_is_refused(journal: Journal):
    """P2: also when the first one has its outcome by now."""
    await build.driven(journal)
    await journal.append("r", [build.permit("c1", id="c1#1")], after=1, epoch=1)
    await journal.append("r", [build.outcome("c1")], after=2, epoch=1)

    with pytest.raises(MisuseError):
        await journal.append("r", [build.permit("c1", id="c1#1", at=9.0)], after=3, epoch=1)

    assert (await journal.load("r")).live == {}


@pytest.mark.parametrize(
    "poison",
    [
        {"at": float("inf")},
        {"at": float("nan")},
        {"result_body": b"NaN"},
        {"result_body": b""},
        {"result_body": b"[" * 5000 + b"]" * 5000},
        {"error": "\ud800"},
    ],
    ids=["infinite", "no number", "NaN", "nothing", "too deep", "no text"],
)
async def test_an_event_that_could_not_be_read_again_is_not_taken(journal: Journal, poison: dict[str, Any]):
    """P5: what is recorded is there for good, so a run must stay readable, and stoppable."""
    await build.driven(journal)
    body = poison.get("result_body")
    event = replace(build.outcome(), **poison) if body is None else replace(build.outcome(), result=msgspec.Raw(body))

    with pytest.raises(MisuseError):
        await journal.append("r", [event], after=1, epoch=1)

    assert (await journal.load("r")).seq == 1


@pytest.mark.parametrize("fence", [Fence(scope=Scope.ALL, name="oops"), Fence(scope=Scope.AGENT)], ids=repr)
async def test_a_fence_that_would_cover_nothing_is_refused(journal: Journal, fence: Fence):
    with pytest.raises(MisuseError):
        await journal.fence(fence)

    assert await journal.fences() == ()


async def test_an_event_that_is_too_large_is_refused_with_its_own_code_and_leaves_nothing(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
):
    """However large: the largest that SQLite takes is never reached."""
    monkeypatch.setattr(encoding, "LARGEST_EVENT", 10_000)
    lease = await build.driven(journal)

    with pytest.raises(EventTooLarge) as refused:
        await journal.append("r", [build.outcome("c1"), build.outcome("c2", "x" * 10_000)], after=1, epoch=lease.epoch)
    await journal.append("r", [build.outcome("c3", "x" * 9_000)], after=1, epoch=lease.epoch)

    assert (refused.value.code, refused.value.type) == ("event_too_large", "call.finished")
    assert len(await journal.read("r")) == 2
