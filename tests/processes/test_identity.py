"""Who is dead is known or it is not; it is never guessed."""

from __future__ import annotations

import os
import subprocess
import sys

from msgspec.structs import replace

from checkrein.journal.base import Owner
from checkrein.processes import table
from checkrein.processes.identity import is_known_dead, this_process


def owner_of(process: subprocess.Popen[bytes]) -> Owner:
    found = table.row(process.pid)
    assert found is not None
    return replace(this_process(), pid=process.pid, started=found.started)


def test_this_process_is_the_same_owner_every_time_and_alive():
    owner = this_process()

    assert owner == this_process()
    assert (owner.pid, owner.host != "", owner.boot_id != "") == (os.getpid(), True, True)
    assert not is_known_dead(owner)


def test_a_fork_is_another_owner():
    reader, writer = os.pipe()
    mine = this_process().process
    if (child := os.fork()) == 0:
        os.write(writer, b"other" if this_process().process != mine else b"same")
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(reader, 16) == b"other"
    os.close(reader)
    os.close(writer)


def test_a_process_is_known_dead_as_soon_as_it_is_killed_also_as_a_zombie():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    owner = owner_of(process)
    assert not is_known_dead(owner)

    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    assert is_known_dead(owner)
    process.wait()
    assert is_known_dead(owner)


def test_a_pid_that_was_given_to_somebody_else_does_not_bring_its_former_owner_back():
    assert is_known_dead(replace(this_process(), started=this_process().started - 5))


def test_a_restart_of_the_host_ends_everything_on_it():
    assert is_known_dead(replace(this_process(), boot_id="another boot"))


def test_nothing_is_known_about_another_host_or_an_owner_without_a_name():
    assert not is_known_dead(replace(this_process(), host="elsewhere", boot_id="another boot", pid=1))
    assert not is_known_dead(Owner(process="p"))
    assert not is_known_dead(replace(this_process(), pid=0))
