"""A disk that is really full: a small tmpfs, filled to the last block.

New work is refused, a stop is still recorded and settled, and once there is room again everything goes on. Each act is
a process of its own: a full tmpfs under a memory map may end a process with SIGBUS, and that must be noticed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from checkrein.errors import Fenced, RunOver, StoreFull
from checkrein.journal import open_journal
from checkrein.journal.base import Owner
from tests.torture.crash import witness
from tests.torture.crash.check import check_in_child
from tests.torture.crash.client import Client, GaveUp
from tests.torture.crash.crew import crew, in_child
from tests.torture.crash.shim import Folder
from tests.torture.crash.tally import Tally
from tests.torture.crash.witness import Promise, Witness
from tests.torture.crash.workload import FINISHED, Driver, cancelled, url

SIZE: Final = "6m"
MOST_CALLS: Final = 3_000
"""More than fit on the disk."""

ROOM_AGAIN_SECONDS: Final = 10.0

Act = Callable[[Client, Folder], Awaitable[None]]


@pytest.fixture
def tiny(tmp_path: Path, skip_aloud: Callable[[str], None]) -> Iterator[Folder]:
    """A folder whose disk is a tmpfs of a few megabytes; the witness lies outside of it."""
    folder = Folder(tmp_path.resolve()).made()
    if os.geteuid() != 0 or not shutil.which("mount"):
        skip_aloud("a full disk is a small tmpfs, and mounting one needs root and `mount`")
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "checkrein-test", str(folder.disk)]
    mounted = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if mounted.returncode != 0:
        skip_aloud(f"a small tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder.disk)], check=True, timeout=30)


# -- the disk


def fill(folder: Folder) -> None:
    """Take all the room that is left."""
    fd = os.open(folder.disk / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for _ in range(1_000_000):
            os.write(fd, bytes(4096))
    except OSError:
        return
    finally:
        os.close(fd)
    raise AssertionError("the disk never got full")


def make_room(folder: Folder) -> None:
    (folder.disk / "filler").unlink()


# -- acts, each in a process of its own


def perform(act: Act, folder: Folder) -> int:
    with Witness(folder.witness) as promises:
        asyncio.run(_perform(act, folder, promises))
    return FINISHED


async def _perform(act: Act, folder: Folder, promises: Witness) -> None:
    async with await open_journal(url(folder.database)) as journal:
        await act(Client(journal, promises, Owner(process=f"p{os.getpid()}", pid=os.getpid())), folder)


async def start_two_runs(client: Client, folder: Folder) -> None:
    for run in ("a", "b"):
        driver = Driver(client, run, 1)
        await driver.start()
        await driver.call(0)


async def work_until_full(client: Client, folder: Folder) -> None:
    """Run `a` goes on until a permit is refused because there is no room for it."""
    driver = await _taken_over(client, "a")
    with _refused_for_lack_of_room():
        for number in range(1, MOST_CALLS):
            await driver.permit(number)
            await driver.outcome(number)


async def fill_and_die(client: Client, folder: Folder) -> None:
    await start_two_runs(client, folder)
    fill(folder)
    await work_until_full(client, folder)
    os.kill(os.getpid(), signal.SIGKILL)


async def cancel_and_settle(client: Client, folder: Folder) -> None:
    """Run `a` is cancelled and settled; permits of run `b` are still refused."""
    driver = await _taken_over(client, "a")
    await client.append("a", cancelled("a"))
    await driver.settle()
    other = await _taken_over(client, "b")
    with _refused_for_lack_of_room():
        await other.permit(1)


async def go_on(client: Client, folder: Folder) -> None:
    """Run `b` does some more, soon after there is room, and finishes; run `a` stays fenced."""
    driver = await _taken_over(client, "b")
    await _eventually(partial(driver.permit, 1))
    for number in range(2, 20):
        await driver.call(number)
    await driver.finish()
    with pytest.raises((Fenced, RunOver)):
        await (await _taken_over(client, "a")).permit(MOST_CALLS)


async def everything_in_one_life(client: Client, folder: Folder) -> None:
    await start_two_runs(client, folder)
    fill(folder)
    await work_until_full(client, folder)
    await cancel_and_settle(client, folder)
    make_room(folder)
    await go_on(client, folder)


@contextmanager
def _refused_for_lack_of_room() -> Iterator[None]:
    with pytest.raises(GaveUp) as refused:
        yield
    assert isinstance(refused.value.__cause__, StoreFull), refused.value


async def _taken_over(client: Client, run: str) -> Driver:
    driver = Driver(client, run, 0)
    await driver.take_over()
    return driver


async def _eventually(ask: Callable[[], Awaitable[None]]) -> None:
    until = time.monotonic() + ROOM_AGAIN_SECONDS
    while time.monotonic() < until:
        with suppress(GaveUp):
            return await ask()
        await asyncio.sleep(0.05)
    await ask()


# -- the proof


class Stage:
    """Performs acts in processes of their own, on one disk."""

    def __init__(self, folder: Folder, pool: ProcessPoolExecutor) -> None:
        self._folder = folder
        self._pool = pool

    def play(self, act: Act, ends_with: int = FINISHED) -> None:
        code = self._pool.submit(_in_child, act, self._folder).result()
        assert code == ends_with, self._folder.errors.read_text()

    def check(self) -> int:
        """Everything acknowledged is there. Returns how much that is."""
        promises = witness.read(self._folder.witness)
        code = self._pool.submit(_check, self._folder, promises).result()
        assert code == 0, self._folder.errors.read_text()
        return len(promises)


def _in_child(act: Act, folder: Folder) -> int:
    return in_child(partial(perform, act, folder), folder.errors)


def _check(folder: Folder, promises: list[Promise]) -> int:
    return in_child(partial(check_in_child, folder.database, promises), folder.errors)


@pytest.fixture
def executor(tiny: Folder) -> Iterator[Stage]:
    with crew(workers=1) as pool:
        yield Stage(tiny, pool)


def test_on_a_full_disk_work_is_refused_and_a_cancel_is_settled(executor, summarise):
    executor.play(everything_in_one_life)

    summarise(Tally("full disks", "one process", 1, executor.check(), 0))


def test_a_process_that_starts_on_a_full_disk_can_cancel_and_settle(executor, tiny, summarise):
    executor.play(start_two_runs)
    fill(tiny)

    executor.play(work_until_full)
    executor.play(cancel_and_settle)
    make_room(tiny)
    executor.play(go_on)

    summarise(Tally("full disks", "opened when full", 1, executor.check(), 0))


def test_a_kill_on_a_full_disk_loses_nothing_and_a_cancel_still_works(executor, tiny, summarise):
    executor.play(fill_and_die, ends_with=-signal.SIGKILL)

    executor.play(cancel_and_settle)
    make_room(tiny)
    executor.play(go_on)

    summarise(Tally("full disks", "kill -9 when full", 1, executor.check(), 0))
