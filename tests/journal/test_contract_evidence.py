"""What every journal keeps for evidence: withheld text, the signed log, and the end of a run's record."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from checkrein.core.enums import Status
from checkrein.core.events import RunFinished
from checkrein.errors import Refused, RunNotFound
from checkrein.journal import Journal
from checkrein.journal.base import Chunk, Fence, Scope
from checkrein.journal.evidence import SignedEntry, Withheld
from tests.journal.build import ALICE, created, driven, new_id

pytestmark = pytest.mark.anyio


def entry(number: int, body: bytes = b"said", run: str = "") -> SignedEntry:
    return SignedEntry(number=number, run=run, body=body, key=b"k" * 32, signature=b"s" * 64, leaves=b"[]")


async def finished(journal: Journal, run: str, **fields: Any) -> None:
    lease = await driven(journal, run, **fields)
    over = RunFinished(id=new_id(), at=9.0, status=Status.COMPLETED)
    await journal.append(run, [over], after=1, epoch=lease.epoch)
    await journal.release(lease)


async def test_withheld_text_is_kept_once_and_read_by_its_place(journal: Journal):
    await driven(journal, "r")
    late, early = Withheld("c1", "f2", 40, "\0späť"), Withheld("c1", "f1", 7, "my instructions are")

    for one in (late, early, early, Withheld("c1", "f1", 7, "something else")):
        await journal.evidence.write_withheld("r", one)
    await journal.evidence.write_withheld("nobody", early)

    assert await journal.evidence.withheld("r") == (early, late)
    with pytest.raises(RunNotFound):
        await journal.evidence.withheld("nobody")


async def test_the_signed_log_takes_the_next_entry_only_and_each_once(journal: Journal):
    log = journal.evidence

    assert await log.last_signed() is None
    assert await log.add_signed(entry(1, b"one", "r"))
    assert not await log.add_signed(entry(3))
    assert not await log.add_signed(entry(1, b"another"))
    assert await log.add_signed(entry(2, b"two"))

    assert [one.body for one in await log.signed()] == [b"one", b"two"]
    assert [one.body for one in await log.signed(run="r")] == [b"one"]
    assert [one.body for one in await log.signed(after=1, limit=5)] == [b"two"]
    assert await log.last_signed() == entry(2, b"two")


async def test_of_several_who_sign_at_once_each_number_is_taken_by_one(journal: Journal):
    taken: list[bytes] = []

    async def sign(name: bytes) -> None:
        if await journal.evidence.add_signed(entry(1, name)):
            taken.append(name)

    async with anyio.create_task_group() as group:
        for name in (b"a", b"b", b"c"):
            group.start_soon(sign, name)

    assert len(taken) == 1
    assert [one.body for one in await journal.evidence.signed()] == taken


async def test_a_run_is_deleted_whole_with_its_tombstone_and_nothing_else_is(journal: Journal):
    await finished(journal, "gone")
    await journal.write_chunks({"gone": [Chunk("c1", 0, "text")]})
    await journal.write_file("gone", "c1", 0, b"file")
    await journal.evidence.write_withheld("gone", Withheld("c1", "f", 0, "secret"))
    await journal.fence(Fence(scope=Scope.RUN, name="gone"))
    await driven(journal, "stays", thread="t2")

    assert not await journal.evidence.delete_run("gone", entry(7))
    assert await journal.verify("gone") == 2, "a tombstone that is not taken deletes nothing"
    assert await journal.evidence.delete_run("gone", entry(1, b"tombstone", "gone"))

    assert [row.id for row in await journal.runs()] == ["stays"]
    assert await journal.fences() == ()
    for read in (journal.read, journal.load, journal.evidence.withheld, journal.lease):
        with pytest.raises(RunNotFound):
            await read("gone")
    assert [one.body for one in await journal.evidence.signed(run="gone")] == [b"tombstone"]
    assert await journal.verify("stays") == 1


async def test_what_is_live_is_not_deleted(journal: Journal):
    await driven(journal, "live")
    await finished(journal, "held", thread="t2")
    await journal.claim("held", ALICE, seconds=60)
    await journal.create(created("parent", thread="t3"))
    await journal.create(created("child", thread="t3", parent="parent", root="parent"))
    await finished(journal, "last", thread="t4")

    for run in ("live", "held", "parent"):
        with pytest.raises(Refused) as refused:
            await journal.evidence.delete_run(run, entry(1))
        assert refused.value.code == "run_live"
    with pytest.raises(RunNotFound):
        await journal.evidence.delete_run("nobody", entry(1))

    assert len(await journal.runs()) == 5
    assert await journal.evidence.last_signed() is None
