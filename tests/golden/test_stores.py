"""Stores that an earlier version wrote: they are read, shown, replayed, taken over, resolved and cancelled.

The witness of what is done, and of what is not done again, is the log that the tools themselves keep.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from checkrein import Receipt, Run, Runtime
from checkrein.core.events import VerbAccepted
from checkrein.errors import Fenced, Refused
from checkrein.journal import open_journal
from tests.golden.agents import clerk, gate, planner, words
from tests.golden.compare import STORES, assert_as_recorded
from tests.golden.readings import reading
from tests.golden.scenarios import settled, until
from tests.golden.stores import MAKE, copy, reopened

pytestmark = pytest.mark.anyio


async def runs_of(runtime: Runtime) -> list[Run]:
    """The topmost runs of a store, oldest first."""
    return [await runtime.get(row.id) for row in reversed(await runtime.runs()) if row.parent is None]


async def doubt_of(run: Run) -> str:
    """The one call of a run that is in doubt."""
    (call,) = (await until(run, lambda state: state.doubts)).doubts
    return call


def before(name: str) -> list[str]:
    """What the tools had done by the time the store was recorded."""
    return (STORES / f"{name}.txt").read_text().splitlines()


async def nothing_is_damaged(runtime: Runtime) -> None:
    for row in await runtime.runs():
        assert await runtime.journal.verify(row.id) == row.seq


def more(name: str) -> Sequence[str]:
    """What the tools have done since."""
    assert words()[: len(before(name))] == before(name)
    return words()[len(before(name)) :]


def test_every_store_is_there_and_together_they_are_small() -> None:
    assert {path.name for path in STORES.iterdir()} == {f"{name}.{end}" for name in MAKE for end in ("db", "txt")}
    assert sum(path.stat().st_size for path in STORES.iterdir()) < 1_000_000


@pytest.mark.parametrize("name", MAKE)
async def test_a_store_says_what_it_said_when_it_was_recorded(name: str, tmp_path: Path) -> None:
    """Its chain is whole, and its events fold into the same states, effects and views."""
    assert_as_recorded(f"readings/{name}.json", await reading(name, tmp_path))


@pytest.mark.parametrize("name", MAKE)
async def test_a_store_of_an_earlier_version_tells_of_which_runs_something_was_asked(name: str, tmp_path: Path) -> None:
    async with await open_journal(copy(name, tmp_path)) as journal:
        records = {row.id: await journal.read(row.id) for row in await journal.runs()}
        asked = {row.id for row in await journal.runs(asked=True)}

        assert asked == {run for run, its in records.items() if any(isinstance(r.event, VerbAccepted) for r in its)}
        assert await journal.states(records) == {run: await journal.load(run) for run in records}


async def test_a_state_is_the_same_with_its_snapshot_and_without(tmp_path: Path) -> None:
    """A snapshot of a shape that is no longer known is as good as none."""
    address = copy("completed", tmp_path)
    async with await open_journal(address) as journal:
        with_snapshots = {row.id: await journal.load(row.id) for row in await journal.runs()}

    with sqlite3.connect(tmp_path / "runs.db") as db:
        dropped = db.execute("DELETE FROM snapshots").rowcount
    db.close()
    async with await open_journal(address) as journal:
        without = {row.id: await journal.load(row.id) for row in await journal.runs()}

    assert dropped == len(with_snapshots) == 4
    assert without == with_snapshots


async def test_a_completed_run_gives_its_result_does_nothing_more_and_can_be_continued(tmp_path: Path) -> None:
    async with reopened("completed", tmp_path) as runtime:
        first, second, third = await runs_of(runtime)

        assert await first.result() == "Done."
        assert (await second.result())["square"] == 49
        assert await third.result() == "worked for boss"
        with pytest.raises(Refused):
            await first.pause()
        following = await runtime.start(clerk, "And then?", continues=first.id)
        assert await following.result() == "Done.", "it knows what was said before"
        assert more("completed") == []
        await nothing_is_damaged(runtime)


async def test_a_paused_program_is_replayed_and_does_only_what_was_left(tmp_path: Path) -> None:
    """D29 D30"""
    async with reopened("paused_program", tmp_path) as runtime:
        (run,) = await runs_of(runtime)
        assert (await run.state()).status == "paused"

        await run.resume(by="bob")
        result = await run.result()

        assert more("paused_program") == ["lock door"]
        assert {name: result[name] for name in ("found", "square", "drafted", "booked", "said", "newer", "locked")} == {
            "found": "A",
            "square": 49,
            "drafted": "draft-ann",
            "booked": "booked-table",
            "said": "do re mi ",
            "newer": True,
            "locked": "lock-door",
        }
        await nothing_is_damaged(runtime)


async def test_a_paused_program_is_cancelled_and_what_it_did_is_undone(tmp_path: Path) -> None:
    """D33: by undo functions that are known from the journal alone."""
    async with reopened("paused_program", tmp_path) as runtime:
        (run,) = await runs_of(runtime)

        receipt = await run.cancel(undo="all", by="bob")

        assert isinstance(receipt, Receipt)
        assert more("paused_program") == ["discard bob", "unbook table", "discard ann"]
        assert {effect.now.value for effect in receipt.effects if effect.what != "square"} == {"undone"}
        await nothing_is_damaged(runtime)


async def test_calls_in_doubt_that_happened_or_are_to_be_undone_are_not_made_again(tmp_path: Path) -> None:
    """P2"""
    async with reopened("in_doubt", tmp_path) as runtime:
        sending, drafting = await runs_of(runtime)
        assert more("in_doubt") == []

        await sending.resolve(await doubt_of(sending), "happened", by="ann", result="sent-bob")
        assert await sending.result() == "Done."
        assert more("in_doubt") == []
        await drafting.resolve(await doubt_of(drafting), "undo", by="ann")
        await until(drafting, lambda state: state.is_finished)

        assert more("in_doubt") == ["discard bob"]
        await nothing_is_damaged(runtime)


async def test_a_call_in_doubt_that_did_not_happen_is_made_and_one_of_a_cancelled_run_is_undone(tmp_path: Path) -> None:
    """P2 D33"""
    async with reopened("in_doubt", tmp_path) as runtime:
        sending, drafting = await runs_of(runtime)
        gate("sends").touch()

        await sending.resolve(await doubt_of(sending), "did_not_happen", by="ann")
        assert await sending.result() == "Done."
        assert more("in_doubt") == ["send bob", "sent bob"]
        settled(await drafting.cancel(by="ann"))

        assert more("in_doubt")[2:] == ["discard bob", "unbook table", "discard ann"]
        await nothing_is_damaged(runtime)


async def test_what_was_cancelled_stays_so_and_what_was_halted_stays_latched(tmp_path: Path) -> None:
    async with reopened("cancelled", tmp_path) as runtime:
        _, stubborn, _, _ = await runs_of(runtime)
        (left,) = await runtime.journal.effects(stubborn.id)
        assert left.state == "left"

        with pytest.raises(Fenced):
            await runtime.start(planner, "planned")
        assert await (await runtime.start(clerk, "answer")).result() == "All is well."
        assert more("cancelled") == []

        await stubborn.retry_undo(left.id, by="ann")
        while b"effect.left" not in (await runtime.journal.read(stubborn.id))[-1].body:
            await asyncio.sleep(0.01)
        assert set(more("cancelled")) == {"fail to discard ann"}
        await nothing_is_damaged(runtime)


async def test_a_run_whose_process_was_killed_is_taken_over_and_finished(tmp_path: Path) -> None:
    """D29 D30: the draft is not made again; the fetch, which says that it may be, is."""
    async with reopened("killed", tmp_path) as runtime:
        (run,) = await runs_of(runtime)
        gate("fetches").touch()

        assert await run.result() == "Done."

        assert more("killed") == ["fetch fetches"]
        assert (await run.state()).epoch == 2
        await nothing_is_damaged(runtime)


async def test_a_run_whose_process_was_killed_is_taken_over_and_cancelled(tmp_path: Path) -> None:
    async with reopened("killed", tmp_path) as runtime:
        (run,) = await runs_of(runtime)

        settled(await run.cancel(by="ann"))

        assert [word for word in more("killed") if word != "fetch fetches"] == ["discard ann"]
        await nothing_is_damaged(runtime)


async def test_a_text_that_was_paused_in_its_middle_goes_on_from_there(tmp_path: Path) -> None:
    async with reopened("paused_in_a_text", tmp_path) as runtime:
        (run,) = await runs_of(runtime)
        gate("tells and drafts").touch()

        await run.resume(by="bob")

        assert await run.result() == "One two three WAIT four five six."
        assert "draft ann" not in more("paused_in_a_text")
        await nothing_is_damaged(runtime)


async def test_a_text_that_was_paused_in_its_middle_is_redirected(tmp_path: Path) -> None:
    async with reopened("paused_in_a_text", tmp_path) as runtime:
        (run,) = await runs_of(runtime)
        gate("tells and drafts").touch()

        await run.resume("that will do", by="bob")

        assert isinstance(await run.result(), str)
        delivered = [
            record.event for record in await runtime.journal.read(run.id) if b"instruction.delivered" in record.body
        ]
        assert len(delivered) == 1


async def test_a_run_and_its_sub_run_go_on_together(tmp_path: Path) -> None:
    async with reopened("paused_sub_runs", tmp_path) as runtime:
        (run,) = await runs_of(runtime)

        await run.resume(by="bob")

        assert await run.result() == "worked for boss"
        assert more("paused_sub_runs") == []
        await nothing_is_damaged(runtime)


async def test_a_run_and_its_sub_run_are_cancelled_together(tmp_path: Path) -> None:
    async with reopened("paused_sub_runs", tmp_path) as runtime:
        (run,) = await runs_of(runtime)

        (below,) = await runtime.journal.runs(root=run.id)

        settled(await run.cancel(by="bob"))
        await until(await runtime.get(below.id), lambda state: state.status == "cancelled")

        undone = ["discard below paused below", "unbook below paused below"]
        assert [word for word in more("paused_sub_runs") if word in undone] == undone
        assert sorted(more("paused_sub_runs")) == sorted([*undone, "unbook paused below"])
        await nothing_is_damaged(runtime)


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_that_an_earlier_version_asked_for_is_given_or_denied(approved: bool, tmp_path: Path) -> None:
    async with reopened("waiting", tmp_path) as runtime:
        (run,) = await runs_of(runtime)
        (call,) = (await run.state()).approvals
        assert more("waiting") == []

        await (run.approve if approved else run.deny)(call, by="ann")

        assert await run.result() == "Done."
        assert more("waiting") == (["pay 100"] if approved else [])
        await nothing_is_damaged(runtime)
