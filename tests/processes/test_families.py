"""Families of processes: found wherever they go, ended to the last one, and nobody else is touched."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from checkrein.processes import families, table, termination
from checkrein.processes.families import Family
from checkrein.timings import KILL_LIMIT_SECONDS
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.tools import ticker
from tests.support.witness import Witness, is_alive, until

pytestmark = pytest.mark.anyio

Spawn = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(command: list[str], mark: str | None = None, **options: object) -> subprocess.Popen[bytes]:
        env = {**os.environ, "CHECKREIN_CALL": mark_of(mark)} if mark else None
        process = subprocess.Popen(command, env=env, **options)  # type: ignore[call-overload]
        started.append(process)
        return process  # type: ignore[no-any-return]

    yield begin
    for process in started:
        process.kill()
        process.wait()


OURS = uuid.uuid4().hex
"""In every mark of this file: the same tests may run beside it, and families are found by their marks alone."""


def mark_of(name: str) -> str:
    return ",".join(f"{OURS}/{part}" for part in name.split(","))


def marked(name: str) -> Family:
    return Family(marks=(("CHECKREIN_CALL", mark_of(name)),))


class StoodStill(Family):
    """A family of which somebody has just been seen when whoever looks is frozen, for longer than killing may take."""

    asleep = 0.0

    def members(self, on_sight: Callable[[table.ProcessInfo], object] | None = None) -> list[table.ProcessInfo]:
        found = super().members(on_sight)
        if not self.asleep:
            self.asleep = 2 * KILL_LIMIT_SECONDS
        return found


async def test_nobody_is_given_up_unkilled_because_whoever_kills_stood_still(spawn, monkeypatch):
    """A driver may be frozen at any moment, and its clock goes on."""
    child = spawn([sys.executable, "-c", "import time; time.sleep(60)"], "run/c1")
    family = StoodStill(marks=(("CHECKREIN_CALL", mark_of("run/c1")),))
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + family.asleep, sleep=time.sleep)
    monkeypatch.setattr(families, "time", clock)

    survivors = await termination.end(family, grace_seconds=0.0)

    assert survivors == []
    assert child.wait(5) == -signal.SIGKILL


async def test_a_family_is_found_by_mark_and_nobody_else_is(spawn, witness):
    """D26: what is not ours is never touched."""
    mine = spawn(ticker(witness.log, "mine"), "run/c1")
    inner = spawn(ticker(witness.log, "inner"), "outer,run/c1,inner")
    others = [spawn(ticker(witness.log, "other"), "run/c11"), spawn(ticker(witness.log, "other"))]
    await witness.saw("mine", "inner")
    await witness.saw("other", times=2)

    survivors = await termination.end(marked("run/c1"))

    assert survivors == []
    assert (mine.wait(PATIENCE_SECONDS), inner.wait(PATIENCE_SECONDS)) == (-signal.SIGTERM, -signal.SIGTERM)
    assert [other.poll() for other in others] == [None, None]


async def test_one_that_ignores_sigterm_is_killed_after_the_grace_and_not_before(spawn, witness):
    stubborn = spawn(ticker(witness.log, "tick", "stubborn"), "m1")
    await witness.saw("tick")

    began = time.monotonic()
    await termination.end(marked("m1"), grace_seconds=0.4)

    assert time.monotonic() - began >= 0.4
    assert stubborn.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    assert await witness.is_quiet()


async def test_a_stopped_process_hears_the_sigterm(spawn, witness):
    stopped = spawn(ticker(witness.log, "tick"), "m2")
    await witness.saw("tick")
    stopped.send_signal(signal.SIGSTOP)

    await termination.end(marked("m2"), grace_seconds=PATIENCE_SECONDS)

    assert stopped.wait(PATIENCE_SECONDS) == -signal.SIGTERM


async def test_the_grace_can_be_shortened_while_it_runs(spawn, witness):
    spawn(ticker(witness.log, "tick", "stubborn"), "m3")
    await witness.saw("tick")
    began = time.monotonic()

    await termination.end(marked("m3"), until=lambda: began + (600 if time.monotonic() < began + 0.3 else 0.3))

    assert time.monotonic() - began < PATIENCE_SECONDS


async def test_who_was_known_once_is_still_ours_when_its_parent_is_gone(spawn, witness):
    """A child that has dropped its mark and left its session, orphaned between two looks."""
    nested = f"import subprocess; subprocess.Popen({ticker(witness.log, 'orphan')!r}, env={{}}, start_new_session=True)"
    parent = spawn([sys.executable, "-I", "-S", "-c", nested + "; import time; time.sleep(600)"], "m4")
    await witness.saw("orphan")
    family = marked("m4")
    assert len(family.members()) == 2

    parent.kill()
    parent.wait()

    assert [member.pid for member in family.members()] == [witness.lines()[0].pid]
    await termination.end(family)
    assert await witness.is_quiet()


CHAIN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    with open(sys.argv[1], "a") as file:
        file.write(f"{time.time()} {os.getpid()} link\\n")
    time.sleep(0.002)
"""


async def test_no_look_misses_a_family_of_which_each_member_forks_and_dies_at_once(spawn, witness):
    """A look that finds nobody is what lets a receipt say *killed*: one that is made in passing finds nobody too."""
    spawn([sys.executable, "-I", "-S", "-c", CHAIN, witness.log], "m7")
    await witness.saw("link", times=5)

    found = [len(marked("m7").members()) for _ in range(50)]
    survivors = await termination.end(marked("m7"), grace_seconds=0)

    assert 0 not in found
    assert survivors == []
    assert await witness.is_quiet()


async def test_a_process_that_becomes_another_program_carries_its_mark_until_it_ends(monkeypatch):
    """Between the old program and the new one the system has no environment to show, and after the last one either."""
    monkeypatch.setenv("CHECKREIN_CALL", mark_of("m8"))
    command = [sys.executable, "-I", "-S", "-c", "import os; os.execv('/bin/sleep', ['sleep', '0.05'])"]

    for _ in range(20):
        seen = []
        with subprocess.Popen(command) as process:
            while process.poll() is None:
                seen.append(bool(table.marks(process.pid, frozenset({"CHECKREIN_CALL"}))))

        assert seen == sorted(seen, reverse=True), "a mark that was missing came back"


async def test_hold_freezes_everybody_and_go_on_continues_only_those_that_it_froze(spawn, witness):
    """D28: pause reaches the tool and does not kill it."""
    first = spawn(ticker(witness.log, "first"), "m5")
    second = spawn(ticker(witness.log, "second"), "m5")
    await witness.saw("first", "second")
    second.send_signal(signal.SIGSTOP)
    await until(lambda: table.row(second.pid).state == "T")  # type: ignore[union-attr]

    frozen = await termination.hold(marked("m5"))

    assert [one.pid for one in frozen] == [first.pid]
    assert await witness.is_quiet()
    await termination.resume(frozen)
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


async def test_a_thread_is_no_process_also_when_it_is_looked_up_by_its_own_number():
    """Threads have numbers of the same kind: a signal to one would hit its whole process, which may be this one."""
    number = await asyncio.to_thread(threading.get_native_id)

    assert os.path.exists(f"/proc/{number}/stat")
    assert table.row(number) is None
    assert table.row(os.getpid()) is not None


async def test_ending_nobody_is_quick():
    began = time.monotonic()

    assert await termination.end(marked("nobody has this mark")) == []

    assert time.monotonic() - began < within(2)


async def test_the_event_loop_goes_on_while_a_family_is_ended(spawn, witness: Witness):
    """Nothing here may block: a page is served and other runs go on meanwhile."""
    spawn(ticker(witness.log, "tick", "stubborn"), "m6")
    await witness.saw("tick")
    turns, began = 0, time.monotonic()
    ending = asyncio.create_task(
        termination.end(marked("m6"), until=lambda: began + (PATIENCE_SECONDS if turns < 100 else 0))
    )

    longest, last = 0.0, time.monotonic()
    while not ending.done():
        await asyncio.sleep(0.005)
        turns += 1
        longest, last = max(longest, time.monotonic() - last), time.monotonic()

    assert turns >= 100
    assert longest < within(0.5)
