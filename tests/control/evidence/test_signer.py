"""What is signed while it happens, and what is left of a run that was deleted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from checkrein.control.evidence import log
from checkrein.control.evidence.log import Leaf, Statement, follow_path, merkle_path, merkle_root, published
from checkrein.control.evidence.retention import prune
from checkrein.control.evidence.signer import OPERATIONS, Signer
from checkrein.core.enums import Status, Verb
from checkrein.core.events import RunFinished
from checkrein.journal import Journal, MemoryJournal, SqliteJournal
from checkrein.journal.base import Fence, Scope
from tests.control.evidence.sample import AT, KEY
from tests.journal.build import created, driven, new_id, settled, verb

pytestmark = pytest.mark.anyio


async def stopped(journal: Journal, run: str, *, at: float = AT, ends: Status = Status.CANCELLED) -> None:
    lease = await driven(journal, run, thread=run)
    cancel = verb(Verb.CANCEL, id=f"{run}.v", at=at)
    await journal.append(run, [cancel], after=1)
    over = RunFinished(id=new_id(), at=at, status=ends)
    await journal.append(run, [settled(cancel, ends), over], after=2, epoch=lease.epoch)
    await journal.release(lease)


async def completed(journal: Journal, run: str, *, at: float = AT) -> None:
    lease = await driven(journal, run, thread=run)
    await journal.append(run, [RunFinished(id=new_id(), at=at, status=Status.COMPLETED)], after=1, epoch=lease.epoch)
    await journal.release(lease)


async def said(journal: Journal) -> list[Statement]:
    return [published(entry).statement() for entry in await journal.evidence.signed()]


async def test_the_head_at_a_settled_stop_and_the_heads_of_all_that_changed_are_signed_once():
    journal = MemoryJournal()
    await stopped(journal, "r1")
    await completed(journal, "r2")
    signer = Signer(journal, KEY, lambda: AT)

    assert await signer.sign() == 2
    assert await signer.sign() == 0, "nothing has changed"
    assert await Signer(journal, KEY, lambda: AT).sign(heads=False) == 0, "another one finds what is signed"

    stop, heads = await said(journal)
    records = await journal.read("r1")
    assert (stop.kind, stop.what, stop.leaf) == ("stop", "cancel", Leaf("r1", 3, records[2].hash.hex()))
    assert (heads.kind, heads.count, heads.previous) == ("heads", 2, log.hash_of(msgspec.json.encode(stop)))


async def test_every_halt_and_every_reset_is_signed():
    journal = MemoryJournal()
    signer = Signer(journal, KEY, lambda: AT)
    await journal.fence(Fence(scope=Scope.ALL, by="olga", reason="it deletes"))
    await signer.sign(heads=False)
    await journal.unfence(Scope.ALL)

    await Signer(journal, KEY, lambda: AT).sign(heads=False)

    halted, reset = await said(journal)
    assert [(one.kind, one.run, one.what) for one in (halted, reset)] == [
        ("operation", OPERATIONS, "halt.latched"),
        ("operation", OPERATIONS, "halt.lifted"),
    ]
    assert halted.by == "olga"
    assert [one.hash.hex() for one in await journal.operations()] == [halted.hash, reset.hash]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 33])
def test_a_path_leads_from_every_leaf_to_the_root_and_from_no_other(count: int):
    leaves = [Leaf(f"r{number}", number, "ab" * 32) for number in range(count)]
    root = merkle_root(leaves)

    for place, leaf in enumerate(leaves):
        path = merkle_path(leaves, place)
        assert follow_path(leaf, path) == root
        assert follow_path(leaf._replace(seq=leaf.seq + 1), path) != root


async def test_prune_deletes_what_is_old_and_over_and_leaves_a_signed_tombstone():
    journal = MemoryJournal()
    await completed(journal, "old")
    await stopped(journal, "stopped")
    await driven(journal, "live", thread="live")
    await completed(journal, "new", at=AT + 500)
    head = (await journal.read("old"))[-1].hash.hex()

    pruned = await prune(journal, KEY, before=AT + 100, keep_stopped=True, by="olga", at=AT + 600)

    assert pruned.deleted == ["old"]
    assert pruned.kept == {"live": "run live is queued", "stopped": "run stopped was stopped"}
    assert {row.id for row in await journal.runs()} == {"stopped", "live", "new"}
    (tombstone,) = await said(journal)
    assert (tombstone.kind, tombstone.leaf, tombstone.by) == ("tombstone", Leaf("old", 2, head), "olga")
    assert tombstone.at == AT + 600
    again = await prune(journal, KEY, before=AT + 100, keep_stopped=False, by="olga", at=AT + 700)
    assert again.deleted == ["stopped"]


async def test_a_family_goes_together_or_not_at_all():
    journal = MemoryJournal()
    lease = await driven(journal, "parent", thread="p")
    await journal.create(created("parent.c1", thread="p", parent="parent", root="parent"))
    await journal.append(
        "parent", [RunFinished(id=new_id(), at=AT, status=Status.COMPLETED)], after=1, epoch=lease.epoch
    )
    await journal.release(lease)

    kept = await prune(journal, KEY, before=AT + 1, keep_stopped=False, by="olga", at=AT)
    claimed = await journal.claim("parent.c1", lease.owner, seconds=60)
    over = RunFinished(id=new_id(), at=AT, status=Status.COMPLETED)
    await journal.append("parent.c1", [over], after=1, epoch=claimed.epoch)
    await journal.release(claimed)
    gone = await prune(journal, KEY, before=AT + 1, keep_stopped=False, by="olga", at=AT)

    assert (kept.deleted, list(kept.kept)) == ([], ["parent"])
    assert gone.deleted == ["parent.c1", "parent"]
    assert await journal.runs() == ()


async def test_what_is_deleted_from_a_file_is_not_left_in_it(tmp_path: Path):
    path = tmp_path / "runs.db"
    async with SqliteJournal(str(path)) as journal:
        lease = await driven(journal, "old", goal="CANARY-a-private-goal", thread="t")
        over = RunFinished(id=new_id(), at=AT, status=Status.COMPLETED)
        await journal.append("old", [over], after=1, epoch=lease.epoch)
        await journal.release(lease)
        await completed(journal, "newer")
        assert b"CANARY-a-private-goal" in path.read_bytes() + (tmp_path / "runs.db-wal").read_bytes()

        pruned = await prune(journal, KEY, before=AT + 1, keep_stopped=False, by="olga", at=AT)

        assert pruned.deleted == ["old"]
        assert "newest" in pruned.kept["newer"]
    assert b"CANARY-a-private-goal" not in path.read_bytes()
