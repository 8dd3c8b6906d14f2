"""Whoever is cancelled while they wait for a journal neither loses what was taken nor keeps what was opened."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from checkrein.errors import Conflict
from checkrein.journal import Journal, SqliteJournal, open_journal
from tests.journal.build import ALICE, BOB, created, driven, outcome, permit, started, verb
from tests.support.patience import PATIENCE_SECONDS
from tests.torture.races.nth_await import Cut, CutEverywhere, How

pytestmark = pytest.mark.anyio


async def test_an_open_that_is_cancelled_leaves_no_connection_and_no_thread(
    tmp_path: Path, leaves_no_trace: CutEverywhere
) -> None:
    """D4"""

    async def scene(cut: Cut) -> None:
        journal = await cut.run(open_journal(f"sqlite:///{tmp_path}/runs.db"))
        if journal is not None:
            await journal.close()

    await leaves_no_trace("open_journal", scene)


async def test_a_close_that_is_cancelled_has_closed(tmp_path: Path, leaves_no_trace: CutEverywhere) -> None:
    """D4"""

    async def scene(cut: Cut) -> None:
        journal = SqliteJournal(f"{tmp_path}/runs.db")
        await cut.run(journal.close())

    await leaves_no_trace("SqliteJournal.close", scene)


async def test_an_append_that_is_cancelled_is_taken_or_not_and_its_id_says_which(
    journal: Journal, runs: Iterator[str], cut_everywhere: CutEverywhere
) -> None:
    """Asked again with the same ids it is there once, whole, and nothing else was touched."""

    async def scene(cut: Cut) -> None:
        lease = await driven(journal, run := next(runs))
        events = [outcome(), permit(epoch=lease.epoch)]
        appended = await cut.run(journal.append(run, events, after=1, epoch=lease.epoch))
        if cut.how is How.ANSWERED or appended is not None:
            assert await until_found(journal, run, events[-1].id)

        again = await journal.append(run, events, after=1, epoch=lease.epoch)

        assert [record.seq for record in again.events] == [2, 3]
        assert len(await journal.read(run)) == 3
        assert await journal.verify(run) == 3

    await cut_everywhere(f"{type(journal).__name__}.append", scene)


async def test_a_refused_append_that_is_cancelled_has_taken_its_facts_and_nothing_else(
    journal: Journal, runs: Iterator[str], cut_everywhere: CutEverywhere
) -> None:
    async def scene(cut: Cut) -> None:
        lease = await driven(journal, run := next(runs))
        await journal.append(run, [started(lease.epoch)], after=1, epoch=lease.epoch)
        await journal.append(run, [verb()], after=2)
        fact, decision = outcome(), permit(epoch=lease.epoch)
        with suppress(Conflict):
            await cut.run(journal.append(run, [fact, decision], after=2, epoch=lease.epoch))

        assert await until_found(journal, run, fact.id)
        assert await journal.find(run, decision.id) is None

    await cut_everywhere(f"{type(journal).__name__}.append, refused", scene)


async def test_a_claim_that_is_cancelled_is_held_by_its_owner_or_by_nobody(
    journal: Journal, runs: Iterator[str], cut_everywhere: CutEverywhere
) -> None:
    """Whoever was cancelled can claim again, and the epoch only rises."""

    async def scene(cut: Cut) -> None:
        await journal.create(created(run := next(runs)))
        await cut.run(journal.claim(run, ALICE, seconds=60))
        first = await journal.lease(run)

        second = await journal.claim(run, ALICE, seconds=60)

        assert first is None or first.owner == ALICE
        assert second.epoch > (0 if first is None else first.epoch)
        await journal.release(second)
        assert (await journal.claim(run, BOB, seconds=60)).owner == BOB

    await cut_everywhere(f"{type(journal).__name__}.claim", scene)


async def test_a_create_that_is_cancelled_can_be_asked_for_again(
    journal: Journal, runs: Iterator[str], cut_everywhere: CutEverywhere
) -> None:
    async def scene(cut: Cut) -> None:
        event = created(next(runs))
        await cut.run(journal.create(event))

        record = await journal.create(event)

        assert (record.seq, len(await journal.read(event.run))) == (1, 1)

    await cut_everywhere(f"{type(journal).__name__}.create", scene)


async def test_a_follower_that_is_cancelled_goes_on_without_gap_or_repeat(
    journal: Journal, runs: Iterator[str], cut_everywhere: CutEverywhere
) -> None:
    """Its iterator can be asked again; and one that is left alone listens no longer."""

    async def scene(cut: Cut) -> None:
        lease = await driven(journal, run := next(runs))
        follower = journal.follow(run)
        seen: list[int] = []

        async def read(until: int) -> None:
            async for record in follower:
                seen.append(record.seq)
                if record.seq >= until:
                    return

        async def write() -> None:
            for seq in range(1, 5):
                await asyncio.sleep(0.002)
                await journal.append(run, [outcome()], after=seq, epoch=lease.epoch)

        writing = asyncio.ensure_future(write())
        await cut.run(read(5))
        await writing
        async with asyncio.timeout(PATIENCE_SECONDS):
            if seen[-1:] != [5]:
                await read(5)

        assert seen == [1, 2, 3, 4, 5]
        await follower.aclose()

    await cut_everywhere(f"{type(journal).__name__}.follow", scene)


async def until_found(journal: Journal, run: str, event_id: str) -> bool:
    """What was asked for is done, also when nobody waits for it any more."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await journal.find(run, event_id) is None:
            await asyncio.sleep(0.001)
    return True
