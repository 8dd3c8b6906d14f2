"""Verbs that meet on a run that nobody drives: whoever is faster claims it, and both get their receipts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from checkrein import Receipt
from checkrein.control.control import Control
from checkrein.core.enums import Status
from checkrein.core.events import VerbAccepted, VerbSettled
from checkrein.errors import Refused
from checkrein.journal import Journal
from tests.support.driver_harness import new_run, owner

pytestmark = pytest.mark.anyio


async def test_two_verbs_on_a_run_that_nobody_drives_are_both_answered(
    journal: Journal, seed: int, tell: Callable[..., None]
) -> None:
    """D7 D27: neither has to wait until the other's lease has run out."""
    dice, controls = Random(seed), [Control(journal, owner(name)) for name in ("here", "there")]
    races, paused = 100, 0

    async def say(control: Control, run: str, verb: str, rounds: int) -> Receipt | None:
        for _ in range(rounds):
            await asyncio.sleep(0)
        try:
            answer = await getattr(control, verb)(run, by="p", wait=20)
        except Refused:
            return None
        assert isinstance(answer, Receipt), answer
        return answer

    for number in range(races):
        run = await new_run(journal, f"r{number}")
        verbs = dice.choice([("cancel", "cancel"), ("pause", "cancel"), ("pause", "pause")])
        told = await asyncio.gather(
            *(say(control, run, verb, dice.randrange(20)) for control, verb in zip(controls, verbs, strict=True))
        )

        events = [record.event for record in await journal.read(run)]
        accepted = [event.id for event in events if isinstance(event, VerbAccepted)]
        assert sorted(accepted) == sorted(event.accepted for event in events if isinstance(event, VerbSettled))
        assert any(told)
        status = (await journal.load(run)).status
        assert status is (Status.CANCELLED if "cancel" in verbs else Status.PAUSED)
        paused += status is Status.PAUSED
        assert await journal.lease(run) is None
    tell(f"two verbs, nobody drives, on {type(journal).__name__}: {races} races, {paused} paused", races=races)
