"""A follower is told in any order, twice, too late or not in full, and still gets everything once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein.errors import StoreUnavailable
from checkrein.journal import subscriptions
from checkrein.journal.base import Recorded, Wants
from checkrein.journal.subscriptions import Follower, Subscriptions
from tests.journal.build import outcome, verb
from tests.support.patience import PATIENCE_SECONDS

Step = tuple[str, int, int]
"""`commit` so many and tell of them, `whisper` so many and tell of them later, `tell` again, or be `vague`."""

steps = st.lists(
    st.tuples(st.sampled_from(["commit", "whisper", "tell", "vague", "next"]), st.integers(1, 4), st.integers(0, 30)),
    max_size=60,
)


class Story:
    def __init__(self, wants: Wants | None = None) -> None:
        self.tower = Subscriptions()
        self.records: list[Recorded] = []
        self.untold: list[list[Recorded]] = []
        self.seen: list[int] = []
        self.follower = Follower(self.tower, "r", 0, self.read, self.heads, wants)

    async def read(self, run: str, after: int, limit: int) -> tuple[Recorded, ...]:
        await asyncio.sleep(0)
        page = tuple(self.records[after : after + limit])
        await asyncio.sleep(0)
        return page

    async def heads(self, runs: Sequence[str]) -> Mapping[str, int]:
        return {"r": len(self.records)}

    def commit(self, count: int) -> list[Recorded]:
        first = len(self.records) + 1
        new = [Recorded("r", first + n, outcome(), b"", b"") for n in range(count)]
        self.records += new
        return new

    async def play(self, step: Step) -> None:
        kind, count, which = step
        if kind == "commit":
            self.tower.announce({"r": self.commit(count), "other": ()})
        elif kind == "whisper":
            self.untold.append(self.commit(count))
        elif kind == "tell" and self.records:
            start = which % len(self.records)
            self.tower.announce({"r": self.records[start : start + count]})
        elif kind == "vague":
            self.tower.announce({"r": ()})
        await asyncio.sleep(0)

    async def follow(self) -> None:
        async for record in self.follower:
            self.seen.append(record.seq)


async def tell(steps: list[Step], wants: Wants | None = None) -> None:
    story = Story(wants)
    task = asyncio.create_task(story.follow())
    for step in steps:
        await story.play(step)
    for records in reversed(story.untold):  # late, and the last first
        story.tower.announce({"r": records})
    for _ in range(50):
        await asyncio.sleep(0)
    assert story.seen == [record.seq for record in story.records if wants is None or wants(record)]
    task.cancel()


@settings(max_examples=300, deadline=None)
@given(steps)
def test_everything_that_was_told_of_at_least_once_arrives_once_and_in_order(steps: list[Step]):
    asyncio.run(tell(steps))


@settings(max_examples=300, deadline=None)
@given(steps, st.integers(1, 5))
def test_of_that_only_what_is_wanted_arrives_and_all_of_it(steps: list[Step], each: int):
    asyncio.run(tell(steps, lambda record: record.seq % each == 0))


@pytest.mark.anyio
async def test_what_a_person_waits_for_is_heard_at_once_and_what_came_before_it_first():
    """A fact is heard a moment later: whoever has appended it may be about to take it in."""
    asked: list[int] = []

    def wants(record: Recorded) -> bool:
        asked.append(record.seq)
        return True

    story = Story(wants)
    task = asyncio.create_task(story.follow())
    for _ in range(5):
        await asyncio.sleep(0)

    story.tower.announce({"r": [Recorded("r", 1, outcome(), b"", b"")]})
    assert asked == []
    story.tower.announce({"r": [Recorded("r", 2, verb(), b"", b"")]})
    assert asked == [1, 2]
    await asyncio.sleep(0)
    story.tower.announce({"r": [Recorded("r", 3, outcome(), b"", b"")]})
    for _ in range(5):
        await asyncio.sleep(0)
    assert asked == story.seen == [1, 2, 3]
    task.cancel()


@pytest.mark.anyio
async def test_all_who_follow_are_looked_after_with_one_question_and_only_who_missed_something_reads(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(subscriptions, "LOOK_SECONDS", 0.01)
    tower, seqs, asked, reads = Subscriptions(), {f"r{n}": 0 for n in range(100)}, list[int](), list[str]()

    async def read(run: str, after: int, limit: int) -> tuple[Recorded, ...]:
        reads.append(run)
        return tuple(Recorded(run, seq, outcome(), b"", b"") for seq in range(after + 1, seqs[run] + 1))

    async def heads(runs: Sequence[str]) -> Mapping[str, int]:
        asked.append(len(runs))
        return {run: seqs[run] for run in runs}

    followers = {run: Follower(tower, run, 0, read, heads) for run in seqs}
    waiting = {run: asyncio.create_task(anext(follower)) for run, follower in followers.items()}
    async with asyncio.timeout(PATIENCE_SECONDS):
        while asked.count(100) < 3:
            await asyncio.sleep(0.001)
        assert sorted(reads) == sorted(seqs), "once each, when they began"

        seqs["r7"] = 1
        assert (await waiting.pop("r7")).seq == 1
    assert reads[100:] == ["r7"]
    for task in waiting.values():
        task.cancel()


@pytest.mark.anyio
async def test_whoever_follows_finds_out_by_itself_why_nobody_could_look(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subscriptions, "LOOK_SECONDS", 0.01)
    is_away = False

    async def read(run: str, after: int, limit: int) -> tuple[Recorded, ...]:
        if is_away:
            raise StoreUnavailable("The store is away.")
        return ()

    async def heads(runs: Sequence[str]) -> Mapping[str, int]:
        raise StoreUnavailable("The store is away.")

    follower = Follower(Subscriptions(), "r", 0, read, heads)
    waiting = asyncio.create_task(anext(follower))
    await asyncio.sleep(0)
    is_away = True

    with pytest.raises(StoreUnavailable):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await waiting
