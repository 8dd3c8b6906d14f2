"""The event loop of a driver process: nothing of one run ends it for the others. The witness is who still runs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any

import pytest

from checkrein.server.processes.driver_main import TORN_DOWN, DriverLoop
from tests.support.patience import PATIENCE_SECONDS


def played(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=DriverLoop) as runner:
        return runner.run(main)


@pytest.mark.parametrize("end", [SystemExit(4), KeyboardInterrupt()])
def test_a_task_that_exits_has_failed_and_the_others_go_on(end: BaseException) -> None:
    async def exits() -> None:
        raise end

    async def innocent() -> str:
        await begun.wait()
        await asyncio.sleep(0.01)
        return "done"

    async def main() -> tuple[str, str]:
        other = asyncio.create_task(innocent())
        told = "nothing"
        try:
            await asyncio.gather(exits())
        except BaseException as error:
            told = type(error).__name__
        begun.set()
        return told, await other

    begun = asyncio.Event()
    assert played(main()) == (type(end).__name__, "done")


def test_a_callback_that_exits_ends_nothing() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        after = loop.create_future()
        loop.call_soon(sys.exit, 4)
        loop.call_soon(after.set_result, "went on")
        return str(await after)

    assert played(main()) == "went on"


def test_what_the_loop_was_started_for_may_exit() -> None:
    async def main() -> None:
        await asyncio.sleep(0)
        sys.exit(4)

    with pytest.raises(SystemExit):
        played(main())


TORN = """
import asyncio, sys
from checkrein.server.processes.driver_main import run_to_the_end

async def never_ends():
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass

async def drive():
    stubborn = asyncio.create_task(never_ends())
    await asyncio.sleep(0)
    sys.exit(4)

run_to_the_end(drive())
"""


def test_a_driver_whose_event_loop_is_over_ends_at_once_whatever_does_not_end() -> None:
    ended = subprocess.run([sys.executable, "-c", TORN], timeout=PATIENCE_SECONDS, capture_output=True, check=False)

    assert ended.returncode == TORN_DOWN
