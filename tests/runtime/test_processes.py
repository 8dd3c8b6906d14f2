"""Families of processes: found wherever they go, ended to the last one, and nobody else is touched."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from checkrein.runtime import processes, table
from checkrein.runtime.lineage import Family
from tests.runtime.tools import ticker
from tests.runtime.witness import Witness, is_alive, until

pytestmark = pytest.mark.anyio

Spawn = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(command: list[str], mark: str | None = None, **options: object) -> subprocess.Popen[bytes]:
        env = {**os.environ, "CHECKREIN_CALL": mark} if mark else None
        process = subprocess.Popen(command, env=env, **options)  # type: ignore[call-overload]
        started.append(process)
        return process  # type: ignore[no-any-return]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def marked(mark: str) -> Family:
    return Family(marks=(("CHECKREIN_CALL", mark),))


async def test_a_family_is_found_by_mark_and_nobody_else_is(spawn, witness):
    """D26: what is not ours is never touched."""
    mine = spawn(ticker(witness.log, "mine"), "run/c1")
    inner = spawn(ticker(witness.log, "inner"), "outer,run/c1,inner")
    others = [spawn(ticker(witness.log, "other"), "run/c11"), spawn(ticker(witness.log, "other"))]
    await witness.saw("mine", "inner")
    await witness.saw("other", times=2)

    survivors = await processes.end(marked("run/c1"))

    assert survivors == []
    assert (mine.wait(5), inner.wait(5)) == (-signal.SIGTERM, -signal.SIGTERM)
    assert [other.poll() for other in others] == [None, None]


async def test_one_that_ignores_sigterm_is_killed_after_the_grace_and_not_before(spawn, witness):
    stubborn = spawn(ticker(witness.log, "tick", "stubborn"), "m1")
    await witness.saw("tick")

    began = time.monotonic()
    await processes.end(marked("m1"), grace_seconds=0.4)

    assert time.monotonic() - began >= 0.4
    assert stubborn.wait(5) == -signal.SIGKILL
    assert await witness.is_quiet()


async def test_a_stopped_process_hears_the_sigterm(spawn, witness):
    stopped = spawn(ticker(witness.log, "tick"), "m2")
    await witness.saw("tick")
    stopped.send_signal(signal.SIGSTOP)

    await processes.end(marked("m2"), grace_seconds=10)

    assert stopped.wait(5) == -signal.SIGTERM


async def test_the_grace_can_be_shortened_while_it_runs(spawn, witness):
    spawn(ticker(witness.log, "tick", "stubborn"), "m3")
    await witness.saw("tick")
    began = time.monotonic()

    await processes.end(marked("m3"), until=lambda: began + (60 if time.monotonic() < began + 0.3 else 0.3))

    assert time.monotonic() - began < 20


async def test_who_was_known_once_is_still_ours_when_its_parent_is_gone(spawn, witness):
    """A child that has dropped its mark and left its session, orphaned between two looks."""
    nested = f"import subprocess; subprocess.Popen({ticker(witness.log, 'orphan')!r}, env={{}}, start_new_session=True)"
    parent = spawn([sys.executable, "-I", "-S", "-c", nested + "; import time; time.sleep(60)"], "m4")
    await witness.saw("orphan")
    family = marked("m4")
    assert len(family.members()) == 2

    parent.kill()
    parent.wait()

    assert [member.pid for member in family.members()] == [witness.lines()[0].pid]
    await processes.end(family)
    assert await witness.is_quiet()


async def test_hold_freezes_everybody_and_go_on_continues_only_those_that_it_froze(spawn, witness):
    """D28: pause reaches the tool and does not kill it."""
    first = spawn(ticker(witness.log, "first"), "m5")
    second = spawn(ticker(witness.log, "second"), "m5")
    await witness.saw("first", "second")
    second.send_signal(signal.SIGSTOP)
    await until(lambda: table.row(second.pid).state == "T")  # type: ignore[union-attr]

    frozen = await processes.hold(marked("m5"))

    assert [one.pid for one in frozen] == [first.pid]
    assert await witness.is_quiet()
    await processes.go_on(frozen)
    seen = len(witness.lines("first"))
    await witness.saw("first", times=seen + 2)
    assert table.row(second.pid).state == "T"  # type: ignore[union-attr]


async def test_this_process_and_its_ancestors_belong_to_no_family():
    me = table.row_of_self()
    shell = table.row(me.parent)

    family = Family(roots=[one for one in (me, shell) if one is not None])

    assert not {os.getpid(), os.getppid(), 1} & {member.pid for member in family.members()}
    assert not table.send(me, signal.SIGKILL)


async def test_a_pid_that_belongs_to_somebody_else_by_now_is_not_signalled(spawn, witness):
    stranger = spawn(ticker(witness.log, "tick"))
    await witness.saw("tick")
    now = table.row(stranger.pid)
    assert now is not None
    before = now._replace(started=now.started - 100)

    assert not table.send(before, signal.SIGKILL)
    assert Family(roots=[before]).members() == []
    assert is_alive(stranger.pid)


async def test_ending_nobody_is_quick():
    began = time.monotonic()

    assert await processes.end(marked("nobody has this mark")) == []

    assert time.monotonic() - began < 2


async def test_the_event_loop_goes_on_while_a_family_is_ended(spawn, witness: Witness):
    """Nothing here may block: a page is served and other runs go on meanwhile."""
    spawn(ticker(witness.log, "tick", "stubborn"), "m6")
    await witness.saw("tick")
    ending = asyncio.create_task(processes.end(marked("m6"), grace_seconds=1.0))

    longest, last = 0.0, time.monotonic()
    while not ending.done():
        await asyncio.sleep(0.005)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()

    assert longest < 0.5
