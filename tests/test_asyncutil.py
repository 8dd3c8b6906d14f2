"""What comes once: everybody who waits gets it, whoever else gave up. And a process that is killed as it ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from checkrein.asyncutil import Once, kill, postpone_collection
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import is_alive, until

pytestmark = pytest.mark.anyio


async def test_everybody_who_waits_gets_it_and_so_does_whoever_comes_later():
    once: Once[int] = Once()
    waiting = [asyncio.ensure_future(once.get()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not once.done()

    once.set(7)

    assert await asyncio.gather(*waiting) == [7, 7, 7]
    assert await once.get() == 7


async def test_the_first_word_stands():
    once: Once[int] = Once()

    once.set(1)
    once.set(2)

    assert await once.get() == 1


async def test_one_who_gives_up_disturbs_nobody_else():
    once: Once[int] = Once()
    patient, impatient = asyncio.ensure_future(once.get()), asyncio.ensure_future(once.get())
    await asyncio.sleep(0)

    impatient.cancel()
    await asyncio.sleep(0)
    once.set(7)

    assert impatient.cancelled()
    assert await patient == 7


async def test_nothing_is_a_value_too():
    once: Once[None] = Once()

    once.set(None)

    assert once.done()
    async with asyncio.timeout(5):
        await once.get()


# -- a process that is killed


@pytest.fixture
def late_watcher() -> Iterator[None]:
    """asyncio takes the exit of a process when the event loop gets its turn, on every version of Python."""
    if sys.version_info >= (3, 12):
        yield  # so it does by itself
        return
    usual = asyncio.get_child_watcher()
    asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
    yield
    asyncio.set_child_watcher(usual)


async def test_a_process_that_has_just_ended_by_itself_keeps_its_exit_code(late_watcher, caplog):
    caplog.set_level(logging.WARNING, "asyncio")
    process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", "-c", "raise SystemExit(7)")
    give_up = time.monotonic() + PATIENCE_SECONDS
    while is_alive(process.pid):  # and the event loop does not hear of it
        assert time.monotonic() < give_up
        time.sleep(0.01)  # noqa: ASYNC251

    await kill(process)

    assert process.returncode == 7
    assert caplog.messages == []


async def test_a_process_may_be_killed_again(caplog):
    caplog.set_level(logging.WARNING, "asyncio")
    process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)")

    await asyncio.gather(kill(process), kill(process))
    await kill(process)

    assert process.returncode == -signal.SIGKILL
    assert not is_alive(process.pid)
    assert caplog.messages == []


async def test_garbage_is_collected_again_after_a_while_and_only_where_it_was_before():
    assert gc.isenabled()

    postpone_collection(0.05)
    postpone_collection(60)

    assert not gc.isenabled()
    await until(gc.isenabled)
    gc.disable()
    postpone_collection(0)
    await asyncio.sleep(0.01)
    assert not gc.isenabled()
    gc.enable()
