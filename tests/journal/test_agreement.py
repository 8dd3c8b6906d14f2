"""Whatever is asked of them, all journals give the same answers: random conversations, held with each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein.core.events import Event
from checkrein.core.words import CallKind, Status, Verb
from checkrein.errors import CheckreinError
from checkrein.journal import Fence, Journal, MemoryJournal, Scope, SqliteJournal
from tests.journal.build import (
    ALICE,
    BOB,
    answered,
    created,
    ended,
    opened,
    outcome,
    permit,
    reason,
    reopened,
    resolved,
    settled_effect,
    started,
    undo,
    undone,
    verb,
)

RUNS = ("top", "sub", "other")
Step = tuple[str, tuple[Any, ...]]

_lives = count()

runs = st.sampled_from(RUNS)
epochs = st.sampled_from([None, 1, 1, 2, 3])
calls = st.sampled_from("ab")
event = st.one_of(
    st.builds(permit, calls, st.just(1), st.sampled_from([CallKind.TOOL, CallKind.MODEL])),
    st.builds(undo, calls),
    st.builds(outcome, calls),
    st.builds(lambda effect: outcome(f"undo:{effect}"), calls),
    st.builds(answered, calls, st.sampled_from([1, 2])),
    st.builds(resolved, calls),
    st.builds(opened, calls),
    st.builds(settled_effect, calls),
    st.builds(undone, calls),
    st.builds(reopened, calls),
    st.builds(reason),
    st.builds(verb, st.sampled_from([Verb.PAUSE, Verb.CANCEL, Verb.HALT, Verb.RESUME])),
    st.builds(started, st.just(1)),
    st.builds(ended, st.sampled_from([Status.COMPLETED, Status.CANCELLED])),
)
step = st.one_of(
    st.tuples(st.just("append"), st.tuples(runs, st.lists(event, min_size=1, max_size=4), st.integers(0, 8), epochs)),
    st.tuples(st.just("append"), st.tuples(runs, st.lists(event, min_size=1, max_size=2), st.just(None), epochs)),
    st.tuples(st.just("again"), st.tuples(st.integers(0, 20), st.booleans())),
    st.tuples(st.just("create"), st.tuples(runs, st.booleans())),
    st.tuples(st.just("claim"), st.tuples(runs, st.sampled_from([ALICE, BOB]), st.booleans())),
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
            created(self.name(run), parent=parent, root=parent, agent=self._life, owner=self._life, **fields)
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
        ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agreement")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(step, max_size=25))
def test_all_journals_agree(folder: Path, steps: list[Step]):
    asyncio.run(compare(folder, [("create", (run, True)) for run in RUNS] + [("claim", ("top", ALICE, False))] + steps))


async def compare(folder: Path, steps: list[Step]) -> None:
    life = f"life{next(_lives)}"
    clock = lambda: 1_000.0  # noqa: E731
    async with (
        SqliteJournal(str(folder / "runs.db"), clock=clock) as one,
        SqliteJournal(str(folder / "runs.db"), clock=clock) as two,
    ):
        memory = Conversation(MemoryJournal(clock=clock), life)
        first, second = Conversation(one, life), Conversation(two, life)
        second._appends = first._appends
        for number, step in enumerate(steps):
            expected = await memory.answer(step)
            # Two journals on one file, as two processes would have it, take turns.
            assert await (second if number % 3 == 2 else first).answer(step) == expected, step
        everything = await memory.everything()
        assert await first.everything() == everything
        assert await second.everything() == everything
