"""Whatever is asked of them, all journals give the same answers: random conversations, held with each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein.core.enums import CallKind, Status, Verb
from checkrein.core.events import Event
from checkrein.errors import CheckreinError
from checkrein.journal import Fence, Journal, MemoryJournal, Owner, Scope, SqliteJournal
from checkrein.journal.base import ClaimOptions
from checkrein.journal.postgres import PostgresJournal
from tests.journal import build
from tests.support.postgres import Cluster

RUNS = ("top", "sub", "other")
Step = tuple[str, tuple[Any, ...]]

_lives = count()

runs = st.sampled_from(RUNS)
epochs = st.sampled_from([None, 1, 1, 2, 3])
calls = st.sampled_from("ab")
event = st.one_of(
    st.builds(build.permit, calls, st.just(1), st.sampled_from([CallKind.TOOL, CallKind.MODEL])),
    st.builds(build.undo, calls),
    st.builds(build.outcome, calls),
    st.builds(lambda effect: build.outcome(f"undo:{effect}"), calls),
    st.builds(build.answered, calls, st.sampled_from([1, 2])),
    st.builds(build.resolved, calls),
    st.builds(build.opened, calls),
    st.builds(build.settled_effect, calls),
    st.builds(build.undone, calls),
    st.builds(build.reopened, calls),
    st.builds(build.reason),
    st.builds(build.verb, st.sampled_from([Verb.PAUSE, Verb.CANCEL, Verb.HALT, Verb.RESUME])),
    st.builds(build.started, st.just(1)),
    st.builds(build.ended, st.sampled_from([Status.COMPLETED, Status.CANCELLED])),
)
step = st.one_of(
    st.tuples(st.just("append"), st.tuples(runs, st.lists(event, min_size=1, max_size=4), st.integers(0, 8), epochs)),
    st.tuples(st.just("append"), st.tuples(runs, st.lists(event, min_size=1, max_size=2), st.just(None), epochs)),
    st.tuples(st.just("again"), st.tuples(st.integers(0, 20), st.booleans())),
    st.tuples(st.just("create"), st.tuples(runs, st.booleans())),
    st.tuples(st.just("claim"), st.tuples(runs, st.sampled_from([build.ALICE, build.BOB]), st.booleans())),
    st.tuples(
        st.just("claim_free"), st.tuples(st.sampled_from([build.ALICE, build.BOB]), st.integers(0, 3), st.booleans())
    ),
    st.tuples(st.just("release"), st.tuples(runs, st.integers(0, 4), st.booleans())),
    st.tuples(st.just("fence"), st.tuples(st.sampled_from(list(Scope)), runs, st.booleans())),
    st.tuples(st.just("unfence"), st.tuples(st.sampled_from(list(Scope)), runs)),
)


class Conversation:
    """One journal's side: each step's answer, or the kind of its refusal, in a form that can be compared."""

    def __init__(self, journal: Journal, life: str) -> None:
        self._journal = journal
        self._life = life
        self._appends: list[tuple[Any, ...]] = []

    async def answer(self, step: Step) -> object:
        kind, arguments = step
        ask: Callable[..., Awaitable[object]] = getattr(self, kind)
        try:
            return await ask(*arguments)
        except CheckreinError as error:
            missed, committed = getattr(error, "missed", ()), getattr(error, "committed", ())
            return type(error).__name__, [r.body for r in missed], [r.body for r in committed]

    def name(self, run: str) -> str:
        return f"{self._life}-{run}"

    async def create(self, run: str, is_same: bool) -> object:
        parent = self.name("top") if run == "sub" else None
        fields = {} if is_same else {"id": "another"}
        record = await self._journal.create(
            build.created(self.name(run), parent=parent, root=parent, agent=self._life, owner=self._life, **fields)
        )
        return record

    async def append(self, run: str, events: list[Event], after: int | None, epoch: int | None) -> object:
        self._appends.append((run, events, after, epoch))
        if after is None:
            after = len(await self._journal.read(self.name(run)))
        return await self._journal.append(self.name(run), events, after=after, epoch=epoch)

    async def again(self, which: int, is_up_to_date: bool) -> object:
        if not self._appends:
            return None
        run, events, after, epoch = self._appends[which % len(self._appends)]
        return await self.append(run, events, None if is_up_to_date else after, epoch)

    async def claim(self, run: str, owner, force: bool) -> object:
        return await self._journal.claim(self.name(run), owner, seconds=60, force=force)

    async def claim_free(self, owner: Owner, most: int, stops_only: bool) -> object:
        not_of = [build.BOB.process] if stops_only else ()
        options: ClaimOptions = {"stops_only": stops_only, "not_of": not_of}
        return await self._journal.claim_free([self._life], owner, most=most, seconds=60, **options)

    async def release(self, run: str, rests_at: int, hands_over: bool) -> None:
        lease = await self._journal.lease(self.name(run))
        if lease is not None:
            await self._journal.release(lease, rests_at=rests_at, hands_over=hands_over)

    async def fence(self, scope: Scope, run: str, halt: bool) -> None:
        if scope is not Scope.ALL:  # the store is shared with conversations that come later
            await self._journal.fence(Fence(scope=scope, name=self._scoped(scope, run), halt=halt))

    async def unfence(self, scope: Scope, run: str) -> object:
        return await self._journal.unfence(scope, self._scoped(scope, run))

    def _scoped(self, scope: Scope, run: str) -> str:
        return self.name(run) if scope in (Scope.RUN, Scope.ROOT) else self._life

    async def everything(self) -> list[object]:
        known = await self._journal.runs(agent=self._life)
        journal = self._journal
        derived = (journal.read, journal.effects, journal.load, journal.lease, journal.verify)
        return [
            known,
            [fence for fence in await journal.fences() if self._life in fence.name],
            [[await ask(row.id) for ask in derived] for row in known],
            await journal.states([row.id for row in known]),
            await journal.leases([row.id for row in known]),
            {key: count for key, count in (await journal.tally()).items() if key[0] == self._life},
            [await journal.runs(agent=self._life, changed_after=time) for time in (0.0, 3.0, 5.0, 8.0)],
            await journal.runs(agent=self._life, asked=True),
        ]


def stopped() -> float:
    """A clock that stands still, so that deadlines can be compared."""
    return 1_000.0


Pair = tuple[Journal, Journal]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two journals on one store, as two processes would have it. Every conversation has an event loop of its own."""
    if request.param == "sqlite":
        path = str(tmp_path_factory.mktemp("agreement") / "runs.db")
        one, two = (SqliteJournal(path, clock=stopped, steady=stopped) for _ in "12")
        yield one, two
        asyncio.run(close(one, two))
        return
    cluster: Cluster = request.getfixturevalue("postgres")
    schema = cluster.new_schema()
    first, second = (PostgresJournal(cluster.address(schema), clock=stopped, steady=stopped) for _ in "12")
    yield first, second
    asyncio.run(close(first, second))
    cluster.drop(schema)


async def close(*journals: Journal) -> None:
    for journal in journals:
        await journal.close()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(step, max_size=25))
def test_all_journals_agree(pair: Pair, steps: list[Step]):
    asyncio.run(
        compare(pair, [("create", (run, True)) for run in RUNS] + [("claim", ("top", build.ALICE, False))] + steps)
    )


async def compare(pair: Pair, steps: list[Step]) -> None:
    life = f"life{next(_lives)}"
    memory = Conversation(MemoryJournal(clock=stopped, steady=stopped), life)
    first, second = (Conversation(journal, life) for journal in pair)
    second._appends = first._appends
    for number, step in enumerate(steps):
        expected = await memory.answer(step)
        assert await (second if number % 3 == 2 else first).answer(step) == expected, step
    everything = await memory.everything()
    assert await first.everything() == everything
    assert await second.everything() == everything
