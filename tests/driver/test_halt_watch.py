"""What a driver makes of halts and resets that were recorded, and of the flags of its host."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from checkrein.driver.halt_watch import HaltWatch
from checkrein.journal import MemoryJournal
from checkrein.journal.base import Fence, Scope
from checkrein.processes import halt_flags
from checkrein.processes.halt_flags import Flag, Flags
from tests.support.small_disk import fill, small_disk

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(halt_flags.VARIABLE, str(tmp_path / "halts"))
    return f"sqlite:///{tmp_path}/runs.db"


async def recorded(journal: MemoryJournal, *, at: float = 0.0) -> str:
    """A halt of everything, in the store; the id under which it has it."""
    await journal.fence(Fence(scope=Scope.ALL, by="ada", at=at))
    return (await journal.operations())[-1].operation.id


async def reset(journal: MemoryJournal, *, at: float) -> None:
    await journal.unfence(Scope.ALL, by="olga", reason="", host="elsewhere", at=at, runs=[])


@pytest.mark.parametrize("ahead", [-86_400.0, 0.0, 86_400.0])
async def test_a_reset_elsewhere_takes_down_the_flag_of_its_halt_whatever_the_clocks_say(store: str, ahead: float):
    journal, now = MemoryJournal(), time.time()
    watch = HaltWatch(journal, Flags(store))
    halt_flags.put_up(store, Flag("all", "", "ada", at=now + ahead, id=await recorded(journal)))
    await watch.look()

    await reset(journal, at=now)
    await watch.look()

    assert halt_flags.read(store) == ()


@pytest.mark.parametrize("ahead", [-86_400.0, 0.0, 86_400.0])
async def test_a_flag_that_the_store_does_not_know_outlives_every_reset_of_earlier_halts(store: str, ahead: float):
    """It was put up while the store was away, perhaps after the reset that is only read now."""
    journal, now = MemoryJournal(), time.time()
    watch = HaltWatch(journal, Flags(store))
    await recorded(journal)
    await watch.look()
    await reset(journal, at=now)
    halt_flags.put_up(store, Flag("all", "", "ada", at=now + ahead, id="not recorded"))

    await watch.look()

    assert [flag.id for flag in halt_flags.read(store)] == ["not recorded"]
    halt_flags.is_recorded(halt_flags.read(store)[0], await recorded(journal))
    await reset(journal, at=now)
    await watch.look()
    assert halt_flags.read(store) == ()


async def test_a_host_that_was_down_takes_the_flag_down_when_it_reads_of_the_reset(store: str):
    journal = MemoryJournal()
    halt_flags.put_up(store, Flag("all", "", "ada", at=time.time(), id=await recorded(journal)))
    await reset(journal, at=time.time())

    await HaltWatch(journal, Flags(store)).look()

    assert halt_flags.read(store) == ()


def test_on_a_full_disk_a_flag_without_words_halts(store: str, monkeypatch: pytest.MonkeyPatch):
    with small_disk(1) as disk:
        monkeypatch.setenv(halt_flags.VARIABLE, str(disk))
        flags = Flags(store)
        fill(disk)

        found = halt_flags.put_up(store, Flag("agent", "churn", "ada", "x" * 2000))

        assert Path(found.path).stat().st_size == 0
        assert flags.covers(runs=["r"], agent="churn", owner="olga")
        assert not flags.covers(runs=["r"], agent="other", owner="olga")
        assert [one.name for one in disk.iterdir() if ".new-" in one.name] == []


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", ".", "all", "x" * 200, "ä\n\x1b[31m", "agent.churn", " "])
def test_an_agent_of_any_name_has_a_flag_of_its_own(store: str, name: str):
    flags = Flags(store)
    halt_flags.put_up(store, Flag("agent", name, "ada"))

    assert flags.covers(runs=["r"], agent=name, owner="o")
    assert not flags.covers(runs=["r"], agent="somebody", owner=name)
    assert [(one.scope, one.name) for one in halt_flags.read(store)] == [("agent", name)]
    assert halt_flags.take_down(store, "agent", name)
    assert not flags.covers(runs=["r"], agent=name, owner="o")
