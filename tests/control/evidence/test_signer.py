"""What is signed while it happens, and what is left of a run that was deleted."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from checkrein import Agent, Runtime
from checkrein.control.evidence import log
from checkrein.control.evidence.log import OPERATIONS, Leaf, Statement, follow_path, merkle_path, merkle_root, published
from checkrein.control.evidence.retention import prune
from checkrein.control.evidence.signer import Signer
from checkrein.core.enums import Status, Verb
from checkrein.core.events import RunFinished
from checkrein.journal import Journal, MemoryJournal, open_journal
from checkrein.journal.base import Fence, Scope
from checkrein.journal.sqlite import evidence
from checkrein.models import ScriptedModel
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


async def told(runtime: Runtime, name: str) -> str:
    """A finished run whose goal and text are private."""
    text = " ".join(f"CANARY-{name}-{number}" for number in range(200))
    agent = Agent(name, model=ScriptedModel([text], tokens_per_second=5_000))
    run = await runtime.start(agent, f"CANARY-{name}-goal")
    assert await run.result() == text
    return run.id


async def test_what_is_deleted_from_a_file_is_left_neither_in_it_nor_in_its_log(tmp_path: Path):
    """Also while others have the store open, and in pages that became free long before."""
    store, files = f"sqlite:///{tmp_path}/runs.db", ("runs.db", "runs.db-wal")

    def canaries() -> int:
        return sum((tmp_path / name).read_bytes().count(b"CANARY") for name in files if (tmp_path / name).exists())

    async with Runtime(store) as runtime:
        gone = [await told(runtime, name) for name in ("one", "two")]
        last = await runtime.start(Agent("last", model=ScriptedModel(["hello"])), "stays")
        await last.result()
    async with await open_journal(store) as journal, await open_journal(store) as other:
        await other.runs()
        assert canaries() > 400

        pruned = await prune(journal, KEY, before=time.time() + 60, keep_stopped=False, by="olga", at=AT)

        assert (sorted(pruned.deleted), pruned.copies) == (sorted(gone), "")
        assert "newest" in pruned.kept[last.id]
        assert canaries() == 0
        await other.runs()
    assert canaries() == 0


async def test_while_somebody_reads_copies_are_left_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(evidence, "SCRUB_SECONDS", 0.1)
    store = f"sqlite:///{tmp_path}/runs.db"
    async with await open_journal(store) as journal:
        with closing(sqlite3.connect(tmp_path / "runs.db")) as reader:
            await completed(journal, "one")
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM runs").fetchone()
            await completed(journal, "two")

            left = await journal.evidence.scrub()

        assert "runs.db-wal" in left
        assert await journal.evidence.scrub() == ""
