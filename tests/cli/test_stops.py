"""`checkrein stops` on a store that somebody has changed behind the journal's back."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from checkrein.control.stops import all_stops
from checkrein.core.enums import Verb
from checkrein.journal import MemoryJournal, SqliteJournal
from tests.cli.shell import Shell
from tests.journal.build import driven, verb
from tests.support.questions import count_questions


def store_with_stops(path: Path) -> None:
    async def fill() -> None:
        async with SqliteJournal(str(path)) as journal:
            for run in ("r-honest", "r-changed"):
                await driven(journal, run)
                await journal.append(run, [verb(Verb.CANCEL, reason="it paid twice")], after=1)

    asyncio.run(fill())


def rewrite(path: Path, old: str, new: str) -> None:
    """Somebody with write access to the file."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "UPDATE events SET body = replace(CAST(body AS TEXT), ?, ?) "
            "WHERE seq = 2 AND run = (SELECT key FROM runs WHERE id = 'r-changed')",
            (old, new),
        )
        db.execute("UPDATE events SET body = CAST(body AS BLOB)")


def test_a_reason_that_was_tampered_with_is_not_told_as_if_it_were_true(shell: Shell) -> None:
    path = shell.folder / ".checkrein" / "runs.db"
    store_with_stops(path)
    before = shell.say("stops")
    rewrite(path, "it paid twice", "all was well!")

    told = shell.say("stops")
    as_json = shell.say("stops", "--json")

    assert (before.code, before.err, "NOT SURE" in before.out) == (0, "", False)
    assert told.code == as_json.code == shell.say("doctor").code == 1
    assert "problem: the record of run r-changed was tampered with or is damaged" in told.err
    assert "r-honest" not in told.err
    assert told.out.count("NOT SURE") == 1
    assert {stop["run"]: bool(stop["damage"]) for stop in as_json.json} == {"r-honest": False, "r-changed": True}


def test_an_event_that_cannot_be_read_any_more_hides_no_other_stop(shell: Shell) -> None:
    path = shell.folder / ".checkrein" / "runs.db"
    store_with_stops(path)
    rewrite(path, "{", "[")

    told = shell.say("stops")

    assert told.code == 1
    assert "r-changed" in told.err
    assert "r-honest" in told.out


@pytest.mark.anyio
async def test_runs_of_which_nothing_was_asked_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = MemoryJournal()
    for number in range(30):
        await driven(journal, f"r{number}", thread=f"t{number}")
    await journal.append("r7", [verb(Verb.CANCEL)], after=1)
    asked = count_questions(journal, monkeypatch)

    found = await all_stops(journal)

    assert [stop.run for stop in found.stops] == ["r7"]
    assert (asked["read"], asked["verify"]) == (1, 1)
