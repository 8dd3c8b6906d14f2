"""Reading: pages, lists, text, states, chains, and following along."""

from __future__ import annotations

import asyncio

import anyio
import anyio.lowlevel
import pytest

from checkrein.core.enums import Status, Verb
from checkrein.core.events import CallStarted
from checkrein.core.evolve import evolve
from checkrein.errors import RunNotFound, StoreDamaged, StoreUnavailable
from checkrein.journal import subscriptions
from checkrein.journal.base import Chunk, Journal, Recorded
from checkrein.journal.sqlite import reads
from tests.journal.build import ALICE, created, driven, ended, outcome, permit, started, verb
from tests.journal.conftest import Store
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


async def fill(journal: Journal, count: int, run: str = "r") -> None:
    lease = await driven(journal, run)
    for first in range(0, count, 200):
        size = min(200, count - first)
        facts = [outcome(f"{run}-{first + n}") for n in range(size)]
        await journal.append(run, facts, after=first + 1, epoch=lease.epoch)


# -- events


async def test_events_are_read_in_order_from_anywhere_in_pages_of_any_size(journal: Journal):
    await fill(journal, 10)

    assert [record.seq for record in await journal.read("r")] == list(range(1, 12))
    assert [record.seq for record in await journal.read("r", after=4, limit=3)] == [5, 6, 7]
    assert await journal.read("r", after=11) == ()
    assert await journal.read("r", limit=0) == ()


async def test_a_long_run_is_read_whole(journal: Journal):
    await fill(journal, 2_500)

    records = await journal.read("r")

    assert [record.seq for record in records] == list(range(1, 2_502))
    assert await journal.read("r", after=100, limit=2_000) == records[100:2_100]


async def test_reading_a_run_that_is_not_there_says_so(journal: Journal):
    for question in (journal.read("nobody"), journal.load("nobody"), journal.verify("nobody")):
        with pytest.raises(RunNotFound):
            await question


# -- lists


async def test_runs_are_listed_newest_first_with_what_a_list_shows(journal: Journal):
    await driven(journal, "a", agent="churn", goal="g1", thread="t1", at=5.0)
    await journal.create(created("b", owner="olga"))
    await journal.append("a", [started(1)], after=1, epoch=1)

    rows = await journal.runs()

    assert [row.id for row in rows] == ["b", "a"]
    assert rows[0].owner == "olga"
    row = rows[1]
    assert (row.agent, row.goal, row.thread, row.parent, row.root) == ("churn", "g1", "t1", None, None)
    assert (row.status, row.seq, row.created_at, row.changed_at) == (Status.RUNNING, 2, 5.0, 2.0)


async def test_lists_are_narrowed_by_everything_given(journal: Journal):
    await driven(journal, "a", thread="t1", agent="x")
    await journal.create(created("b", thread="t1", agent="y", owner="olga"))
    await journal.create(created("c", thread="t2", agent="x", parent="b", root="b"))
    await journal.create(created("d", thread="t2", agent="x", parent="c", root="b"))
    await journal.append("a", [ended()], after=1, epoch=1)

    async def ids(**narrowed) -> list[str]:
        return [row.id for row in await journal.runs(**narrowed)]

    assert await ids(thread="t1") == ["b", "a"]
    assert await ids(agent="x") == ["d", "c", "a"]
    assert await ids(owner="olga") == ["b"]
    assert await ids(root="b") == ["d", "c"]
    assert await ids(status=[Status.COMPLETED]) == ["a"]
    assert await ids(status=[Status.QUEUED, Status.COMPLETED], agent="x") == ["d", "c", "a"]
    assert await ids(thread="t1", agent="nobody") == []


async def test_lists_are_narrowed_by_when_a_run_was_created(journal: Journal):
    for number in range(5):
        await journal.create(created(f"r{number}", at=float(10 * number)))

    async def ids(**narrowed) -> list[str]:
        return [row.id for row in await journal.runs(**narrowed)]

    assert await ids(since=20.0) == ["r4", "r3", "r2"]
    assert await ids(until=20.0) == ["r1", "r0"]
    assert await ids(since=10.0, until=30.0, limit=1, before="r2") == ["r1"]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("churn", ["r-b2", "r-a1"]),
        ("CHURN", ["r-b2", "r-a1"]),
        ("r-a", ["r-a1"]),
        ("a1", ["r-a1"]),
        ("100%", ["r-c3"]),
        ("0_0", []),
        ("ärger", ["r-d4"]),
        ("ÄRGER", ["r-d4"]),
        ("r-*", []),
        ("[a", []),
        ("\\", ["r-d4"]),
        ("'; DROP TABLE runs; --", []),
        ("nobody", []),
    ],
)
async def test_lists_are_searched_for_a_part_of_the_goal_or_the_beginning_of_the_id(
    journal: Journal, search: str, found: list[str]
):
    goals = {"r-a1": "Which will churn?", "r-b2": "Churn again", "r-c3": "100% sure, 1000", "r-d4": r"Kein Ärger \o/"}
    for run, goal in goals.items():
        await journal.create(created(run, goal=goal))

    assert [row.id for row in await journal.runs(search=search)] == found


async def test_a_search_in_pieces_finds_what_a_search_at_once_does(journal: Journal, monkeypatch: pytest.MonkeyPatch):
    for number in range(10):
        await journal.create(created(f"r{number}", goal="even" if number % 2 == 0 else "odd", at=float(number)))
    at_once = [row.id for row in await journal.runs(search="even")]

    monkeypatch.setattr(reads, "SCANNED", 3)

    assert [row.id for row in await journal.runs(search="even")] == at_once == ["r8", "r6", "r4", "r2", "r0"]
    assert [row.id for row in await journal.runs(search="even", limit=2, before="r6")] == ["r4", "r2"]
    assert [row.id for row in await journal.runs(since=3.0, until=6.0)] == ["r5", "r4", "r3"]


async def test_a_run_is_listed_with_all_below_it_and_nothing_else(journal: Journal):
    for run, root in [("r-a", None), ("r-a.c1", "r-a"), ("r-a.c1.c2", "r-a"), ("r-a.c3", "r-a"), ("r-ab", None)]:
        await journal.create(created(run, parent=run.rpartition(".")[0] or None, root=root))

    async def ids(**narrowed) -> list[str]:
        return [row.id for row in await journal.runs(**narrowed)]

    assert await ids(tree="r-a") == ["r-a.c3", "r-a.c1.c2", "r-a.c1", "r-a"]
    assert await ids(tree="r-a.c1") == ["r-a.c1.c2", "r-a.c1"]
    assert await ids(tree="r-ab") == ["r-ab"]


async def test_lists_come_in_pages(journal: Journal):
    for number in range(7):
        await journal.create(created(f"r{number}"))

    first = await journal.runs(limit=3)
    second = await journal.runs(limit=3, before=first[-1].id)
    third = await journal.runs(limit=3, before=second[-1].id)

    assert [row.id for row in first + second + third] == ["r6", "r5", "r4", "r3", "r2", "r1", "r0"]
    with pytest.raises(RunNotFound):
        await journal.runs(before="nobody")


# -- text


async def test_chunks_are_kept_in_order_per_call(journal: Journal, store: Store):
    await driven(journal)

    await journal.write_chunks({"r": [Chunk("a", 5, "world"), Chunk("a", 0, "hello"), Chunk("b", 0, "ä\n")]})

    other = store.open()
    assert await other.chunks("r", "a") == (Chunk("a", 0, "hello"), Chunk("a", 5, "world"))
    assert await other.chunks("r", "a", after=0) == (Chunk("a", 5, "world"),)
    assert await other.chunks("r", "b") == (Chunk("b", 0, "ä\n"),)
    assert await other.chunks("r", "c") == ()


async def test_writing_a_chunk_again_changes_nothing(journal: Journal):
    await driven(journal)

    for _ in range(2):
        await journal.write_chunks({"r": [Chunk("a", 0, "hello")]})
    await journal.write_chunks({"r": []})

    assert await journal.chunks("r", "a") == (Chunk("a", 0, "hello"),)
    assert len(await journal.read("r")) == 1


async def test_text_of_several_runs_is_kept_together_whatever_becomes_of_one(journal: Journal):
    await driven(journal)
    await journal.create(created("other"))

    await journal.write_chunks({
        "r": [Chunk("a", 0, "hello")], "nobody": [Chunk("a", 0, "x")], "other": [Chunk("b", 0, "you")]
    })  # fmt: skip

    assert await journal.chunks("r", "a") == (Chunk("a", 0, "hello"),)
    assert await journal.chunks("other", "b") == (Chunk("b", 0, "you"),)


async def test_text_of_a_run_that_is_not_there_is_dropped_and_not_found(journal: Journal):
    await journal.write_chunks({"nobody": [Chunk("a", 0, "x")]})

    with pytest.raises(RunNotFound):
        await journal.chunks("nobody", "a")


# -- states


async def folded(journal: Journal, run: str = "r"):
    state = None
    for record in await journal.read(run):
        state = evolve(state, record.event, record.seq)
    return state


async def test_a_loaded_state_is_the_fold_of_all_events(journal: Journal):
    lease = await driven(journal)
    await journal.append("r", [started(lease.epoch), permit()], after=1, epoch=lease.epoch)
    await journal.append("r", [verb(Verb.PAUSE)], after=3)

    state = await journal.load("r")

    assert state == await folded(journal)
    assert (state.run, state.seq, state.status) == ("r", 4, Status.PAUSING)


@pytest.mark.parametrize("length", [255, 256, 257, 1_000, 2_345])
async def test_a_state_loaded_by_way_of_snapshots_is_the_same(journal: Journal, store: Store, length: int):
    await fill(journal, length)

    for _ in range(3):
        assert await store.open().load("r") == await folded(journal)
        seq = (await journal.load("r")).seq
        await journal.append("r", [permit(f"c{seq}")], after=seq, epoch=1)


# -- chains


async def test_a_whole_chain_verifies_and_tells_its_length(journal: Journal):
    await fill(journal, 1_234)

    assert await journal.verify("r") == 1_235


@pytest.mark.parametrize("seq", [1, 2, 600, 1_201])
async def test_a_changed_event_is_found_wherever_it_is(journal: Journal, store: Store, seq: int):
    await fill(journal, 1_200)
    body = (await journal.read("r", after=seq - 1, limit=1))[0].body

    store.change_body("r", seq, body.replace(b'"at":', b'"at":1'))

    with pytest.raises(StoreDamaged) as damage:
        await journal.verify("r")
    assert vars(damage.value).items() >= {"run": "r", "seq": seq}.items()


async def test_a_chain_belongs_to_its_run(journal: Journal):
    first = await journal.create(created("a", id="same"))
    second = await journal.create(created("b", id="same"))

    assert first.hash != second.hash


# -- following


async def test_a_follower_gets_everything_once_and_in_order_while_it_is_written(journal: Journal, store: Store):
    lease = await driven(journal)
    writer = store.open()
    seen: list[int] = []

    async def follow() -> None:
        async for record in journal.follow("r"):
            seen.append(record.seq)
            if record.seq == 401:
                return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        for number in range(200):  # one after the other, from here and from elsewhere
            await journal.append("r", [outcome()], after=2 * number + 1, epoch=lease.epoch)
            await writer.append("r", [outcome()], after=2 * number + 1, epoch=lease.epoch)

    assert seen == list(range(1, 402))


async def test_many_followers_begin_wherever_they_like(journal: Journal, store: Store):
    await fill(journal, 1_100)
    seen: dict[int, list[int]] = {}

    async def follow(after: int) -> None:
        seen[after] = []
        async for record in store.open().follow("r", after=after):
            seen[after].append(record.seq)
            if record.seq == 1_102:
                return

    async with anyio.create_task_group() as tasks:
        for after in (0, 1, 600, 1_100, 1_101):
            tasks.start_soon(follow, after)
        await anyio.sleep(0.02)
        await journal.append("r", [outcome()], after=1_101, epoch=1)

    assert seen == {after: list(range(after + 1, 1_103)) for after in seen}


async def test_what_is_appended_between_two_steps_of_a_follower_is_not_missed(journal: Journal, store: Store):
    await driven(journal)
    follower = journal.follow("r")
    other = store.open()

    assert (await anext(follower)).seq == 1
    await other.append("r", [outcome()], after=1, epoch=1)
    with anyio.fail_after(PATIENCE_SECONDS):
        assert (await anext(follower)).seq == 2


async def test_a_follower_that_was_interrupted_goes_on_where_it_was(journal: Journal):
    await driven(journal)
    follower = journal.follow("r", after=1)
    with anyio.move_on_after(0.02):
        await anext(follower)

    await journal.append("r", [outcome()], after=1, epoch=1)

    with anyio.fail_after(PATIENCE_SECONDS):
        assert (await anext(follower)).seq == 2


async def test_a_follower_that_nobody_told_looks_for_itself_after_a_while(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
):
    await driven(journal)
    monkeypatch.setattr(subscriptions, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(subscriptions.Subscription, "ring", lambda *_: None)
    follower = journal.follow("r")
    await anext(follower)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: journal.append("r", [outcome()], after=1, epoch=1))
        with anyio.fail_after(PATIENCE_SECONDS):
            assert (await anext(follower)).seq == 2


async def test_a_follower_gets_only_what_it_wants_from_the_past_and_from_anybody(journal: Journal, store: Store):
    lease = await driven(journal)
    await journal.append("r", [permit("a", lease.epoch)], after=1, epoch=lease.epoch)
    follower = journal.follow("r", wants=lambda record: isinstance(record.event, CallStarted))
    seen: list[int] = []

    async def follow() -> None:
        async for record in follower:
            seen.append(record.seq)
            if len(seen) == 3:
                return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        await anyio.sleep(0.02)
        for seq, writer, event in (
            (2, journal, outcome("a")),
            (3, journal, permit("b", lease.epoch)),
            (4, store.open(), outcome("b")),
            (5, store.open(), permit("c", lease.epoch)),
        ):
            await writer.append("r", [event], after=seq, epoch=lease.epoch)

    assert seen == [2, 4, 6]


async def test_what_its_maker_has_taken_in_by_then_is_not_wanted_any_more(journal: Journal, store: Store):
    """As a driver follows its own run: it is asked only after the one who appended was told."""
    lease = await driven(journal)
    known, asked = 1, list[int]()

    def wants(record: Recorded) -> bool:
        asked.append(record.seq)
        return record.seq > known

    follower = journal.follow("r", after=1, wants=wants)
    with anyio.move_on_after(0.02):
        await anext(follower)
    for seq in range(1, 11):
        known = (await journal.append("r", [outcome()], after=seq, epoch=lease.epoch)).events[-1].seq
    await store.open().append("r", [outcome()], after=11, epoch=lease.epoch)

    with anyio.fail_after(PATIENCE_SECONDS):
        assert (await anext(follower)).seq == 12
    assert asked == list(range(2, 13))


async def test_following_a_run_that_is_not_there_says_so(journal: Journal):
    with pytest.raises(RunNotFound):
        await anext(journal.follow("nobody"))


async def test_changes_name_the_runs_that_got_events_by_whomever(journal: Journal, store: Store):
    for run in ("a", "b", "c"):
        await driven(journal, run)
    changes = journal.changes()
    other = store.open()
    await journal.load("a")  # whatever is read from now on is no older than what is told

    await journal.append("a", [outcome()], after=1, epoch=1)
    await other.append("b", [outcome()], after=1, epoch=1)
    await other.create(created("d"))

    seen: set[str] = set()
    with anyio.fail_after(PATIENCE_SECONDS):
        while seen != {"a", "b", "d"}:
            seen |= await anext(changes)


async def test_changes_do_not_name_the_runs_that_are_left_out_at_the_time(journal: Journal, store: Store):
    for run in ("a", "b", "c"):
        await driven(journal, run)
    left_out = {"a", "b"}
    changes, other = journal.changes(except_for=left_out), store.open()
    await journal.load("a")  # whatever is read from now on is no older than what is told

    await journal.append("a", [outcome()], after=1, epoch=1)
    await journal.append("c", [outcome()], after=1, epoch=1)
    with anyio.fail_after(PATIENCE_SECONDS):
        assert await anext(changes) == {"c"}
    left_out.remove("b")
    await other.append("b", [outcome()], after=1, epoch=1)

    told: set[str] = set()
    with anyio.fail_after(PATIENCE_SECONDS):
        while "b" not in told:
            told |= await anext(changes)
    assert "a" not in told


async def test_nothing_changes_when_nothing_is_appended(journal: Journal):
    await driven(journal)
    changes = journal.changes()
    await journal.renew(ALICE, seconds=60)
    await journal.write_chunks({"r": [Chunk("a", 0, "x")]})

    with anyio.move_on_after(0.05) as scope:
        await anext(changes)

    assert scope.cancelled_caught


async def test_an_iterator_that_is_left_is_forgotten(journal: Journal):
    await driven(journal)
    async for _ in journal.follow("r"):
        break
    follower = journal.follow("r")
    await follower.aclose()

    assert not journal._tower.is_listened_to  # type: ignore[attr-defined]


# -- a store that is away


async def test_a_follower_goes_on_where_it_stood_after_a_store_that_was_away(journal: Journal, store: Store):
    lease = await driven(journal)
    follower = journal.follow("r")
    heard = [(await anext(follower)).seq]

    with store.away(journal), pytest.raises(StoreUnavailable):
        await anext(follower)
    await journal.append("r", [outcome(), verb()], after=1, epoch=lease.epoch)
    async with asyncio.timeout(PATIENCE_SECONDS):
        heard += [(await anext(follower)).seq, (await anext(follower)).seq]

    assert heard == [1, 2, 3]
    await follower.aclose()


# -- closing


async def test_a_closed_journal_refuses_and_lets_its_followers_know(journal: Journal):
    await driven(journal)
    follower = journal.follow("r", after=1)
    told: list[str] = []

    async def follow() -> None:
        try:
            await anext(follower)
        except StoreUnavailable as error:
            told.append(error.code)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        await anyio.sleep(0.02)
        await journal.close()

    assert told == ["store_unavailable"]
    for refused in (
        lambda: journal.append("r", [verb()], after=1),
        lambda: journal.create(created("s")),
        lambda: journal.read("r"),
        lambda: journal.load("r"),
        lambda: journal.renew(ALICE, seconds=1),
    ):
        with pytest.raises(StoreUnavailable):
            await refused()
    await journal.close()


async def test_closing_commits_what_is_queued(journal: Journal, store: Store):
    await driven(journal, "r")

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            event = outcome(id=f"q{number}")
            tasks.start_soon(lambda event: journal.append("r", [event], after=1, epoch=1), event)
        await anyio.lowlevel.checkpoint()
        await journal.close()

    if type(journal).__name__ != "MemoryJournal":
        assert len(await store.open().read("r")) == 51


async def test_a_journal_is_a_context(store: Store):
    async with store.open() as journal:
        await journal.create(created("r"))

    with pytest.raises(StoreUnavailable):
        await journal.read("r")
