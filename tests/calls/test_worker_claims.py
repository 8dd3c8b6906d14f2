"""A tool shares its process with what speaks for it: nothing that a worker says is believed without a bound."""

from __future__ import annotations

import asyncio
import struct

import pytest

from checkrein.calls import tool_execution
from checkrein.calls.workers import process
from checkrein.core.enums import Outcome
from checkrein.processes.ipc import pack
from tests.support import tools
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import until

pytestmark = [pytest.mark.anyio, pytest.mark.skipif("sys.platform != 'linux'", reason="finds the line in /proc")]

OVER = {"end": "completed", "left": False, "told": False}


async def test_a_worker_that_claims_a_shield_for_ever_is_ended_after_the_longest_there_is(start, witness, monkeypatch):
    monkeypatch.setattr(tool_execution, "SHIELD_SECONDS", 0.5)
    execution = start(tools.claim_and_tick, log=witness.log, claim={"shield": 1e9})
    await witness.saw("tick")
    await until(lambda: execution._shields)

    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await execution.abort(grace_seconds=0.2) is Outcome.KILLED

    assert await witness.is_quiet()


async def test_whoever_is_in_a_hurry_waits_for_no_shield(start, witness):
    execution = start(tools.claim_and_tick, log=witness.log, claim={"shield": 60})
    await witness.saw("tick")
    aborting = asyncio.create_task(execution.abort(grace_seconds=0.2))
    await until(lambda: execution.waits_for is not None)

    await execution.hurry()

    async with asyncio.timeout(min(PATIENCE_SECONDS, 50)):
        assert await aborting is Outcome.KILLED
    assert await witness.is_quiet()


async def test_an_end_that_the_main_loop_does_not_confirm_is_the_end_of_the_worker(start, witness, monkeypatch):
    monkeypatch.setattr(process, "_BACK_SECONDS", 0.3)

    ended = await start(tools.claim_and_tick, log=witness.log, claim=OVER).ended()

    assert ended.outcome is Outcome.FAILED
    assert "had to be ended: it said that the call was over, and went on" in ended.error
    assert await witness.is_quiet()


async def test_a_stop_reaches_a_worker_that_has_said_that_its_call_is_over(start, witness):
    execution = start(tools.claim_and_tick, log=witness.log, claim=OVER)
    await witness.saw("tick")
    await until(lambda: execution._answer is not None)

    await execution.abort(grace_seconds=0.2)

    assert await witness.is_quiet()


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(struct.pack("!II", 2, 4_000_000_000), id="a body of 4 GB"),
        pytest.param(struct.pack("!II", 5_000_000, 0), id="a head of 5 MB"),
        pytest.param(struct.pack("!II", 4, 0) + b"junk", id="no JSON"),
        pytest.param(struct.pack("!II", 100_000, 0) + b"[" * 100_000, id="deep JSON"),
        pytest.param(struct.pack("!II", 2, 0) + b"[]", id="no object"),
        pytest.param(pack({"end": "completed"}), id="half an end"),
        pytest.param(pack({"end": "failed", "left": False, "told": False}), id="a failure of nothing"),
        pytest.param(pack({"shield": None}), id="out of a shield that it was not in"),
        pytest.param(pack({"shield": "long"}), id="a shield of no length"),
        pytest.param(pack({"shield": 1}) * 101, id="more shields than anybody enters"),
        pytest.param(pack({"nonce": "1"}), id="an answer to nothing"),
        pytest.param(pack({"what": 1}), id="what nobody says"),
    ],
)
async def test_what_no_worker_says_is_the_end_of_the_worker(start, witness, said):
    async with asyncio.timeout(PATIENCE_SECONDS):
        ended = await start(tools.say_and_tick, log=witness.log, said=said.hex()).ended()

    assert ended.outcome is Outcome.FAILED
    assert "had to be ended: it said what no worker says" in ended.error
    assert await witness.is_quiet()
    assert (await start(tools.add, a=1, b=2).ended()).result == b"3"


async def test_when_a_run_is_stopped_every_worker_that_has_served_it_ends_whatever_it_said(start, executor, witness):
    forged = await start(tools.forge_everything_and_tick, log=witness.log, _id="c1", _key="stopped/c1").ended()
    await witness.saw("tick")
    other = await start(tools.identify, _id="c1", _key="other/c1").ended()
    assert forged.outcome is Outcome.COMPLETED, "it has answered in the name of its main loop, too"

    await executor.end_workers("stopped")

    assert await witness.is_quiet()
    assert (await start(tools.identify, _id="c2", _key="other/c2").ended()).result == other.result
