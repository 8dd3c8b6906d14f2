"""A receipt never says *aborted* or *undone* while something of the call still runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from checkrein import Runtime, tool
from checkrein.core.enums import EffectState, Outcome
from tests.support import birth_tools, runs
from tests.support.witness import Witness, note, until

pytestmark = pytest.mark.anyio


async def discard(call: Any) -> None:
    note(call.arguments["log"], "undo")


@tool(undo=discard)
async def in_a_deaf_thread(log: str, file: str) -> None:
    """As anyio does by default: nothing stops it, and nobody may leave it."""
    await anyio.to_thread.run_sync(birth_tools.swallow, log, file)


@tool(undo=discard)
async def in_a_daemon(log: str) -> None:
    """A process without environment or parent."""
    await birth_tools.by_nohup_setsid(log)


async def test_nothing_is_undone_while_a_thread_of_its_call_still_runs(store: str, witness: Witness) -> None:
    async with Runtime(store, settle_seconds=4.0) as runtime:
        agent = runs.agent([runs.calls(("in_a_deaf_thread", runs.until_let(witness))), "Done."], [in_a_deaf_thread])
        run = await runtime.start(agent, "Go.")
        await witness.saw("tick")
        try:
            receipt = runs.settled(await run.cancel(wait=60.0))

            assert runs.outcomes(receipt)["in_a_deaf_thread"] == Outcome.DETACHED
            assert list(runs.effects(receipt).values()) == [EffectState.IN_DOUBT]
            seen = len(witness.lines("tick"))
            await witness.saw("tick", times=seen + 2)
            assert "undo" not in witness.words()
        finally:
            Path(runs.until_let(witness)["file"]).touch()


async def test_what_has_fled_from_an_async_tool_is_gone_before_its_effect_is_undone(
    runtime: Runtime, witness: Witness
) -> None:
    agent = runs.agent([runs.calls(("in_a_daemon", {"log": witness.log})), "Done."], [in_a_daemon])
    run = await runtime.start(agent, "Go.")
    await witness.saw("tick")

    receipt = runs.settled(await run.cancel(wait=60.0))

    assert runs.outcomes(receipt)["in_a_daemon"] == Outcome.ABORTED
    assert list(runs.effects(receipt).values()) == [EffectState.UNDONE]
    await until(lambda: "undo" in witness.words())
    await witness.is_quiet()
    words = witness.words()
    assert words[words.index("undo") :] == ["undo"], "nothing after it"
