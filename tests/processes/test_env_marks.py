"""Every process of a call carries its mark, whoever starts it and however; outside a call nothing changes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from checkrein.processes import env_marks
from checkrein.processes.env_marks import Mark

SHOW = [sys.executable, "-I", "-S", "-c", "import os; print(os.environ.get('CHECKREIN_CALL'), os.environ.get('OWN'))"]


@pytest.fixture
def mark() -> Iterator[Mark]:
    env_marks.install()
    mark = Mark("runtime-1", "run/c1#1")
    token = env_marks.current.set(mark)
    yield mark
    env_marks.current.reset(token)
    env_marks.remove()


def shown(**options: object) -> str:
    return subprocess.run(SHOW, capture_output=True, text=True, check=True, **options).stdout.strip()  # type: ignore[call-overload,no-any-return]


def test_a_child_carries_the_mark_of_its_call(mark):
    """D2, D4: a tool's children can be found and ended."""
    assert shown() == "run/c1#1 None"
    assert mark.has_started_any


def test_no_process_of_a_call_is_given_a_token_of_ours(mark, monkeypatch):
    monkeypatch.setenv("CHECKREIN_TOKEN", "right-to-stop-and-approve")
    monkeypatch.setenv("SERVICE_TOKEN", "theirs")
    look = "import os; print(os.environ.get('CHECKREIN_TOKEN'), os.environ.get('SERVICE_TOKEN'))"
    command = [sys.executable, "-I", "-S", "-c", look]

    seen = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    given = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ)).stdout.split()

    assert seen == given == ["None", "theirs"]


@pytest.mark.parametrize("env", [{"OWN": "mine"}, {b"OWN": b"mine"}, dict(os.environ, OWN="mine")])
def test_also_with_an_environment_of_its_own_which_it_keeps(mark, env):
    before = dict(env)

    assert shown(env=env) == "run/c1#1 mine"
    assert env == before


def test_also_when_the_environment_is_passed_by_position(mark):
    process = subprocess.Popen(SHOW, -1, None, None, subprocess.PIPE, None, None, True, False, None, {"OWN": "mine"})

    assert process.communicate()[0].strip() == b"run/c1#1 mine"


@pytest.mark.anyio
async def test_also_when_asyncio_starts_it(mark):
    process = await asyncio.create_subprocess_exec(*SHOW, stdout=subprocess.PIPE, env={"OWN": "mine"})

    assert (await process.communicate())[0].strip() == b"run/c1#1 mine"
    assert mark.has_started_any
    assert mark.children == []  # asyncio asks for its status, we do not


def test_marks_of_runtimes_around_are_kept(mark, monkeypatch):
    monkeypatch.setenv("CHECKREIN_CALL", "outer/c9")

    assert shown() == "outer/c9,run/c1#1 None"
    assert shown(env={}) == "outer/c9,run/c1#1 None"


def test_outside_a_call_nothing_changes(mark):
    env_marks.current.set(None)

    assert shown() == "None None"
    assert shown(env={"OWN": "mine"}) == "None mine"


def test_installing_twice_changes_nothing_and_removing_restores_the_original():
    original = subprocess.Popen.__init__
    env_marks.install()
    once = subprocess.Popen.__init__
    env_marks.install()

    assert subprocess.Popen.__init__ is once is not original
    env_marks.remove()
    env_marks.remove()
    assert subprocess.Popen.__init__ is original


def test_a_call_that_is_over_starts_no_more_processes(mark):
    """D26: a tool that was let go cannot surprise anybody with a new process."""
    mark.is_closed = True

    with pytest.raises(PermissionError, match="is over"):
        subprocess.run(["true"], check=True)


def test_the_children_of_a_call_that_have_ended_are_not_kept(mark):
    for _ in range(5):
        subprocess.run(["true"], check=True)

    assert len(mark.children) == 1


@pytest.mark.parametrize("bad", ["", "a,b", "a\0b"])
def test_a_mark_that_could_not_be_found_again_is_refused(bad):
    with pytest.raises(ValueError, match="cannot be a mark"):
        env_marks.chain(None, bad)
