"""How a run begins on a thread that is busy, when several begin one at the same moment in several processes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from checkrein.control.control import Control
from checkrein.control.start import StartRun, begin
from checkrein.core.enums import Verb
from checkrein.core.events import VerbAccepted
from checkrein.errors import Refused
from checkrein.journal import SqliteJournal
from checkrein.processes.identity import in_role, this_process
from checkrein.secrets import Secrets

pytestmark = pytest.mark.anyio


async def begin_on(journal: SqliteJournal, wanted: StartRun) -> tuple[str, bool]:
    control = Control(journal, in_role(this_process(), "control"))
    return await begin(journal, control, wanted, stop_when=None, secrets=Secrets.of(()), clock=time.time)


async def test_one_begins_and_the_others_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "runs.db")
    async with SqliteJournal(path) as one, SqliteJournal(path) as other:
        for number in range(20):
            wanted = StartRun(agent="a", goal="g", thread=f"t{number}", if_busy="refuse")

            answers = await asyncio.gather(*(begin_on(each, wanted) for each in (one, other)), return_exceptions=True)

            begun = [answer[0] for answer in answers if isinstance(answer, tuple)]
            refused = [answer for answer in answers if isinstance(answer, Refused)]
            assert begun == [row.id for row in await one.runs(thread=f"t{number}")]
            assert [(answer.code, answer.run) for answer in refused] == [("thread_busy", begun[0])]


async def test_one_begins_and_the_others_become_its_next_instruction(tmp_path: Path) -> None:
    path = str(tmp_path / "runs.db")
    async with SqliteJournal(path) as one, SqliteJournal(path) as other:
        wanted = [StartRun(agent="a", goal=f"goal {each}", thread="t", if_busy="redirect") for each in range(2)]

        answers = await asyncio.gather(begin_on(one, wanted[0]), begin_on(other, wanted[1]))

        (row,) = await one.runs(thread="t")
        assert sorted(answers) == [(row.id, False), (row.id, True)]
        asked = [record.event for record in await one.read(row.id) if isinstance(record.event, VerbAccepted)]
        assert [event.verb for event in asked] == [Verb.REDIRECT]
        assert {row.goal, asked[0].instruction} == {"goal 0", "goal 1"}
