"""What has come to a process that adopts orphans, and is not of a call of it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable

import pytest

from checkrein.processes import env_marks, orphans, table

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def only_on_linux() -> None:
    if not table.LINUX:
        pytest.skip("orphans are adopted on Linux only")


def _many() -> list[int]:
    for _ in range(100):  # a look may fall between `fork` and `exec`
        subprocess.run(["/bin/true"], check=True)
    return []


def _a_daemon() -> list[int]:
    daemon = subprocess.run(["/bin/sh", "-c", "sleep 60 > /dev/null & echo $!"], check=True, stdout=subprocess.PIPE)
    return [int(daemon.stdout)]


def _on_a_terminal() -> list[int]:
    pid, _ = os.forkpty()
    if pid == 0:
        os.execv("/bin/sleep", ["sleep", "60"])
    return [pid]


@pytest.mark.parametrize("begin", [_many, _a_daemon, _on_a_terminal])
async def test_what_no_call_has_started_is_no_stray_at_any_moment(begin: Callable[[], list[int]]) -> None:
    env_marks.install()
    began, left = table.now(), list[int]()
    async with orphans.adopting():
        thread = threading.Thread(target=lambda: left.extend(begin()))
        thread.start()
        found = {one.pid for _ in iter(thread.is_alive, False) for one in orphans.strays(began)}
        thread.join()
        found |= {one.pid for one in orphans.strays(began)}
        for pid in left:
            os.kill(pid, signal.SIGKILL)

    assert not found


async def test_a_child_that_is_started_during_a_look_stays_known() -> None:
    env_marks.install()
    async with orphans.adopting():
        is_over = threading.Event()

        def look() -> None:
            while not is_over.is_set():
                orphans._forget_gone()

        thread = threading.Thread(target=look)
        thread.start()
        started = [subprocess.Popen(["/bin/sleep", "30"]) for _ in range(50)]
        is_over.set()
        thread.join()
        known = [one.pid in orphans._own for one in started]
        for one in started:
            one.kill()
            one.wait()

    assert all(known)
