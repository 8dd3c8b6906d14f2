"""A worker that stands still, and whose name another one has by now: it may wake with a permit in its hand."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from checkrein.core.enums import Answer, CallKind, EffectState
from checkrein.core.events import CallAnswered, CallStarted
from checkrein.core.receipts import Receipt
from tests.engines.fleet import Fleet
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["leases_on_sqlite", "leases_on_postgres"])
def fleet(request: pytest.FixtureRequest) -> Fleet:
    made: Fleet = request.getfixturevalue(request.param)
    return made


@pytest.mark.parametrize("how", ["its name", "a burial"])
async def test_what_a_frozen_worker_of_this_host_does_is_not_undone_before_it_has_answered(fleet: Fleet, how: str):
    """Whatever its name or an operator says of it: the process table knows that it lives."""
    with fleet.process(worker="w", lease_seconds=2.0) as frozen:
        run = await fleet.begin("sender")
        await fleet.witness.saw(f"sending {run}")
        os.kill(frozen.pid, signal.SIGSTOP)
        second = await fleet.worker(worker="w" if how == "its name" else "v", settle_seconds=1.0)
        if how == "a burial":
            await fleet.journal.bury("w", by="ann", reason="it does not answer")
        await fleet.is_driven_by(second, run)

        receipt = await fleet.control.cancel(run, by="ann", wait=PATIENCE_SECONDS)
        fleet.let(run)
        started = [one.event for one in await fleet.journal.read(run) if isinstance(one.event, CallStarted)]
        assert [call.kind for call in started] == [CallKind.TOOL]
        os.kill(frozen.pid, signal.SIGCONT)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not any(isinstance(one.event, CallAnswered) for one in await fleet.journal.read(run)):
                await asyncio.sleep(0.02)
        await fleet.control.resolve(run, "c1", Answer.UNDO, by="ann")
        await fleet.witness.saw(f"undo {run}")

    assert isinstance(receipt, Receipt)
    assert [effect.now for effect in receipt.effects] == [EffectState.IN_DOUBT]
    assert fleet.witness.words()[-1] == f"undo {run}", "whatever it did when it woke, it did before"
