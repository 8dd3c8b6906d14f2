"""What operators did is recorded and chained: no halt and no reset without a trace."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256

import pytest

from checkrein.errors import MisuseError, StoreDamaged
from checkrein.journal.base import Fence, Journal, Scope
from tests.journal.build import driven
from tests.journal.conftest import Store
from tests.support.patience import within

pytestmark = pytest.mark.anyio

AGENT = Fence(scope=Scope.AGENT, name="churn", by="olga", reason="runaway", at=5.0)


async def test_a_halt_and_its_reset_are_recorded_with_who_why_where_and_both_clocks(journal: Journal):
    """D35, D14: also of a scope in which no run ever was."""
    assert not await journal.fence(AGENT, host="desk-1")
    assert await journal.unfence(Scope.AGENT, "churn", by="ada", reason="mended", host="desk-2", at=9.0)

    halted, reset = (record.operation for record in await journal.operations())

    assert (halted.type, halted.scope, halted.name, halted.by, halted.reason, halted.host, halted.at) == (
        "halt.latched", Scope.AGENT, "churn", "olga", "runaway", "desk-1", 5.0,
    )  # fmt: skip
    assert (reset.type, reset.scope, reset.name, reset.by, reset.reason, reset.host, reset.at) == (
        "halt.lifted", Scope.AGENT, "churn", "ada", "mended", "desk-2", 9.0,
    )  # fmt: skip
    assert (halted.was_latched, reset.was_latched) == (False, True)
    assert 0 < halted.store_at <= reset.store_at


async def test_a_second_halt_and_a_reset_of_nothing_leave_a_trace_too(journal: Journal):
    await journal.fence(AGENT)
    assert await journal.fence(Fence(scope=Scope.AGENT, name="churn", by="ada", reason="me too", at=6.0))
    assert not await journal.unfence(Scope.ALL, by="ada")

    recorded = [record.operation for record in await journal.operations()]

    assert [(one.type, one.by, one.was_latched) for one in recorded] == [
        ("halt.latched", "olga", False),
        ("halt.latched", "ada", True),
        ("halt.lifted", "ada", False),
    ]
    assert await journal.halts() == (AGENT,)


async def test_the_records_are_chained_and_anybody_can_follow_the_chain(journal: Journal):
    for number in range(3):
        await journal.fence(Fence(scope=Scope.AGENT, name=f"agent-{number}", by="olga", at=float(number)))

    records = await journal.operations()

    previous = sha256(b"checkrein operations").digest()
    for seq, record in enumerate(records, 1):
        previous = sha256(previous + seq.to_bytes(8, "big") + record.body).digest()
        assert (record.seq, record.hash) == (seq, previous)
        assert json.loads(record.body)["name"] == f"agent-{seq - 1}"
    assert await journal.verify_operations() == 3


async def test_they_are_read_from_anywhere_a_few_at_a_time(journal: Journal):
    for number in range(5):
        await journal.fence(Fence(scope=Scope.OWNER, name=f"owner-{number}"))

    assert [record.seq for record in await journal.operations(after=1, limit=2)] == [2, 3]
    assert await journal.operations(after=5) == ()


async def test_a_run_that_a_wider_halt_ended_is_no_halt_of_its_own(journal: Journal):
    """The fence that its own event puts up stays out of the list of what operators have latched."""
    from checkrein.core.enums import Status, Verb
    from tests.journal.build import verb

    await driven(journal)
    await journal.fence(AGENT)
    await journal.append("r", [verb(Verb.HALT, status=Status.KILLED)], after=1, epoch=1)

    assert {(fence.scope, fence.name) for fence in await journal.fences()} == {("agent", "churn"), ("run", "r")}
    assert await journal.halts() == (AGENT,)

    await journal.unfence(Scope.AGENT, "churn", runs=["r"])
    assert await journal.fences() == await journal.halts() == ()
    assert len(await journal.operations()) == 2


async def test_words_that_are_no_text_are_refused_and_nothing_is_latched(journal: Journal):
    with pytest.raises(MisuseError):
        await journal.fence(Fence(scope=Scope.AGENT, name="churn", reason="\ud800"))

    assert await journal.fences() == ()
    assert await journal.operations() == ()


async def test_whoever_listens_hears_of_a_halt_by_another_process_at_once(journal: Journal, store: Store):
    heard = journal.operated(seconds=within(60))
    waiting = asyncio.ensure_future(anext(heard))
    await asyncio.sleep(0.05)

    await store.open().fence(AGENT)

    async with asyncio.timeout(within(1)):
        await waiting


async def test_a_halt_is_no_cancel_so_the_fence_of_one_is_not_recorded(journal: Journal):
    await driven(journal)
    await journal.fence(Fence(scope=Scope.RUN, name="r", halt=False))

    assert await journal.operations() == ()


async def test_a_changed_record_is_found(journal: Journal, monkeypatch: pytest.MonkeyPatch):
    await journal.fence(AGENT)
    await journal.unfence(Scope.AGENT, "churn")
    whole = await journal.operations()

    async def without_the_first(**_: object) -> object:
        return whole[1:]

    monkeypatch.setattr(journal, "operations", without_the_first)
    with pytest.raises(StoreDamaged):
        await journal.verify_operations()
