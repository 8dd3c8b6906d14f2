"""Programs that know nothing of Checkrein: what a crash of the runtime leaves of one, and what is said of it.

The witness is the program's own log and the process table.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from checkrein import Runtime
from checkrein.core.enums import Outcome, Status
from tests.support.runs import gone, outcomes, program, settled
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio

KILLED = """
import asyncio, sys
from checkrein import Runtime
from tests.support import stoppable

async def main(log, store):
    shell = stoppable.Shell(stoppable.script(log, log + ".go"))
    async with Runtime(store, agents=[shell]) as runtime:
        await (await runtime.start(shell, "Go.")).result()

if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_program_does_not_outlive_a_kill_9_of_its_runtime_and_is_in_doubt_as_a_whole(
    tmp_path: Path, store: str, witness: Witness
) -> None:
    """D2 D4 D26: nothing of it is begun again by itself, also where somebody has the agent."""
    async with program(tmp_path, KILLED, witness.log, store):
        await witness.saw("tick", times=2)
    await gone(line.pid for line in witness.lines())
    assert await witness.is_quiet()

    async with Runtime(store) as second:
        (row,) = await second.runs()
        run = await second.get(row.id)
        receipt = settled(await run.cancel())

    assert receipt.status is Status.CANCELLED
    assert {name: now for name, now in outcomes(receipt).items() if name == "ticks"} == {"ticks": Outcome.IN_DOUBT}
    assert len(witness.lines("begun")) == 1
