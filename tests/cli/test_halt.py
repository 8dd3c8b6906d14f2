"""`checkrein halt`, `reset` and `halts`: out of band, in three steps, each in force by itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from checkrein.journal import open_journal
from checkrein.processes import halt_flags
from tests.cli.shell import Shell
from tests.journal.build import created
from tests.support.patience import PATIENCE_SECONDS, within

pytestmark = pytest.mark.anyio


def checkrein(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from checkrein.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, **(env or {})},
    )


@pytest.fixture
async def place(store: str) -> str:
    """A store with one run of agent churn, which olga owns."""
    async with await open_journal(store) as journal:
        await journal.create(created("r", agent="churn", owner="olga"))
    return store


async def operations(store: str) -> list[tuple[str, str, str, str, str]]:
    async with await open_journal(store) as journal:
        return [
            (one.operation.type, one.operation.scope.value, one.operation.name, one.operation.by, one.operation.reason)
            for one in await journal.operations()
        ]


async def test_a_halt_is_flagged_fenced_and_ends_what_lives_and_a_reset_lifts_it(place: str):
    """D35: one command, three lines, and a trace of both."""
    halted = checkrein("halt", "agent", "churn", "--reason", "runaway", "--by", "ada", "--store", place)

    assert halted.returncode == 0, halted.stderr
    assert [line.split(":")[0] for line in halted.stdout.splitlines()] == ["Flag", "Fence", "Ended"]
    assert "Ended: 1 run " in halted.stdout
    assert [(flag.scope, flag.name, flag.by) for flag in halt_flags.read(place)] == [("agent", "churn", "ada")]
    listed = json.loads(checkrein("halts", "--json", "--store", place).stdout)
    assert (listed["scope"], listed["name"], listed["by"], listed["reason"]) == ("agent", "churn", "ada", "runaway")

    lifted = checkrein("reset", "agent", "churn", "--by", "olga", "--reason", "mended", "--store", place)

    assert lifted.returncode == 0, lifted.stderr
    assert halt_flags.read(place) == ()
    assert "Nothing is halted" in checkrein("halts", "--store", place).stderr
    assert await operations(place) == [
        ("halt.latched", "agent", "churn", "ada", "runaway"),
        ("halt.lifted", "agent", "churn", "olga", "mended"),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["everything"], "one of run, agent, owner, all"),
        (["all", "churn"], "takes no name"),
        (["agent"], "Say which agent"),
        (["run", "r-unknown"], "There is no run r-unknown"),
        (["agent", "x", "--resaon", "typo"], "nrecognized arguments"),
    ],
)
async def test_what_cannot_be_meant_is_one_sentence_and_nothing_is_latched(place: str, arguments: list[str], said: str):
    refused = checkrein("halt", *arguments, "--store", place)

    assert refused.returncode == 2
    assert said in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert halt_flags.read(place) == ()
    assert await operations(place) == []


async def test_an_agent_never_seen_is_latched_with_a_warning(place: str):
    halted = checkrein("halt", "agent", "chrun", "--store", place)

    assert halted.returncode == 0
    assert "No run of agent chrun was ever seen" in halted.stdout
    assert [one[:3] for one in await operations(place)] == [("halt.latched", "agent", "chrun")]


async def test_a_second_halt_keeps_the_words_of_the_first(place: str):
    checkrein("halt", "all", "--reason", "first", "--by", "ada", "--store", place)

    again = checkrein("halt", "all", "--reason", "second", "--by", "bob", "--store", place)

    assert again.returncode == 0
    assert "the first one's words stay" in again.stdout
    (listed,) = [json.loads(line) for line in checkrein("halts", "--json", "--store", place).stdout.splitlines()]
    assert (listed["by"], listed["reason"]) == ("ada", "first")
    assert [one[3] for one in await operations(place)] == ["ada", "bob"]


def test_with_the_store_away_the_flag_holds_and_the_sentence_says_what_does_not():
    away = "postgresql://nobody@127.0.0.1:9/away?schema=checkrein"

    halted = checkrein("halt", "all", "--store", away, "--json")

    first, second = (json.loads(line) for line in halted.stdout.splitlines())
    assert halted.returncode == 6
    assert (first["step"], first["done"]) == ("flag", True)
    assert (second["step"], second["done"]) == ("fence", False)
    assert "on this host only" in second["message"]
    assert "On other hosts nothing is in force" in second["message"]
    assert [flag.scope for flag in halt_flags.read(away)] == ["all"]
    halt_flags.take_down(away, "all", "")


HEAVY = ("asyncio", "msgspec", "click", "anyio", "typer", "pydantic")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_the_fence_needs_no_event_loop_and_nothing_that_takes_long_to_import(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
):
    """What was imported by the time that the fence is in, as Python itself tells it (`-X importtime`)."""
    if kind == "postgres":
        cluster = request.getfixturevalue("postgres")
        store = cluster.address(cluster.new_schema())
    else:
        store = f"sqlite:///{tmp_path}/runs.db"
    async with await open_journal(store):
        pass
    script = (
        "import os, sys, time; from checkrein.cli import halt; from checkrein.journal import operations\n"
        "asked = operations.request(operations.HALTED, 'all', '', by='a', reason='b', at=1.0)\n"
        f"halt._fence({store!r}, asked)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], time.process_time())"
    )

    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )

    assert done.returncode == 0, done.stderr[-2000:]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    # Psycopg has an asynchronous half, which imports asyncio; no loop is made by that.
    heavy = [name for name in HEAVY if name in imported and (kind, name) != ("postgres", "asyncio")]
    assert heavy == []
    assert await operations(store) == [("halt.latched", "all", "", "a", "b")]


def test_a_flag_is_up_within_a_tenth_of_a_second(tmp_path: Path):
    """Measured in a process of its own, without what starting Python takes."""
    script = (
        "import time; began = time.perf_counter()\n"
        "from checkrein.processes import halt_flags\n"
        f"halt_flags.put_up('sqlite:///{tmp_path}/x.db', halt_flags.Flag('all', ''))\n"
        "print(time.perf_counter() - began)"
    )

    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert float(said) < within(0.1)
    assert [flag.scope for flag in halt_flags.read(f"sqlite:///{tmp_path}/x.db")] == ["all"]


def test_an_empty_file_of_the_right_name_halts(tmp_path: Path):
    """A torn or empty flag fails closed: its name alone counts."""
    store = f"sqlite:///{tmp_path}/x.db"
    flags = halt_flags.Flags(store)
    assert not flags.covers(runs=["r"], agent="churn", owner="olga")
    folder = Path(halt_flags.own_folder())
    folder.mkdir(parents=True, exist_ok=True)

    (folder / halt_flags.file_name(halt_flags.store_key(store), "agent", "churn")).touch()

    assert flags.covers(runs=["r"], agent="churn", owner="olga")
    assert not flags.covers(runs=["r"], agent="other", owner="olga")
    assert halt_flags.take_down(store, "agent", "churn")
    assert not flags.covers(runs=["r"], agent="churn", owner="olga")


def test_ps_says_what_is_halted_beside_the_runs_until_it_is_reset(shell: Shell):
    """On standard error, so that what reads the list is not disturbed; also where only a flag of this host halts."""
    store = f"sqlite:///{shell.folder}/runs.db"
    shell.environment |= {"CHECKREIN_STORE": store, halt_flags.VARIABLE: str(shell.folder / "halts")}
    asyncio.run(_with_run(store))

    shell.say("halt", "agent", "mailer", "--reason", "wrong people", "--by", "olga")
    listed, as_json = shell.say("ps"), shell.say("ps", "--json")

    assert re.fullmatch(
        r"HALTED: agent mailer, by olga since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d: wrong people\n", listed.err
    ), listed.err
    assert "churn" in listed.out
    assert [one["run"] for one in as_json.json] == ["r"]
    shell.say("reset", "agent", "mailer")
    assert shell.say("ps").err == ""

    with patch.dict(os.environ, shell.environment):
        halt_flags.put_up(store, halt_flags.Flag("all", "", "ada", "by hand", 1.0))
    assert shell.say("ps").err.startswith("HALTED: everything, by ada since 1970-01-01")


async def _with_run(store: str) -> None:
    async with await open_journal(store) as journal:
        await journal.create(created("r", agent="churn", owner="olga"))
