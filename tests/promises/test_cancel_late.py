"""A cancel of a run in which something swallows its cancellation for ever: it settles, and the rest is undone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from checkrein import Runtime, agent
from checkrein.core import orders
from checkrein.core.enums import EffectState, Outcome, Status
from tests.support import runs
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Witness, note

pytestmark = pytest.mark.anyio

LET_GO = asyncio.Event()


def unbook(call: Any) -> None:
    note(call.arguments["log"], "undo booking")


async def book(log: str) -> str:
    note(log, "booked")
    return "booked"


async def deaf(log: str) -> AsyncIterator[str]:
    """Whatever it is told, it goes on until the test lets it go."""
    yield "a"
    note(log, "streams")
    while not LET_GO.is_set():
        try:
            await LET_GO.wait()
        except asyncio.CancelledError:
            note(log, "told to stop")


@agent(name="streamer")
async def streamer(ctx: Any, log: str) -> None:
    await ctx.call(book, log, undo=unbook)
    await ctx.stream(lambda: deaf(log))


async def test_a_stream_that_swallows_its_cancellation_keeps_neither_the_cancel_nor_the_undos_from_their_end(
    store: str, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "DETACH_SECONDS", 0.5)
    LET_GO.clear()
    try:
        async with Runtime(store) as runtime:
            run = await runtime.start(streamer, witness.log)
            await witness.saw("streams")

            receipt = runs.settled(await run.cancel(wait=PATIENCE_SECONDS))

            assert receipt.status is Status.CANCELLED
            assert [call.now for call in receipt.calls] == [Outcome.DETACHED]
            assert [effect.now for effect in receipt.effects] == [EffectState.UNDONE]
            assert witness.words().count("undo booking") == 1
            LET_GO.set()
    finally:
        LET_GO.set()


@agent(name="booker")
async def booker(ctx: Any, log: str) -> None:
    await ctx.call(book, log, undo=unbook)
    note(log, "waits")
    await asyncio.sleep(3600)


async def test_the_undos_of_a_cancel_wait_for_a_process_that_has_the_agent_also_when_it_comes_an_hour_later(
    tmp_path: Path, witness: Witness
) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    async with Runtime(store, agents=[booker]) as runtime:
        run = await runtime.start(booker, witness.log)
        await witness.saw("waits")
        await run.pause(wait=PATIENCE_SECONDS)
    async with Runtime(store) as nobody:
        await (await nobody.get(run.id)).cancel(wait=0)

    async with Runtime(store, agents=[booker], clock=lambda: time.time() + 3600) as later:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await (await later.get(run.id)).state()).is_finished:
                await asyncio.sleep(0.02)

        assert witness.words()[-1] == "undo booking"
        assert list((await runs.ledger(later, run)).values()) == [EffectState.UNDONE]
