"""The tour shows what it says it shows, and says so when it does not."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from checkrein.core.enums import EffectState, Status, Verb
from checkrein.core.receipts import ChangedEffect, Receipt
from checkrein.core.state import State
from checkrein.demo.churn_score import score_churn
from checkrein.demo.data import Entry
from examples.tour.acts import ROOT, Half
from examples.tour.columns import Column, Line, side_by_side
from examples.tour.crash import Crash
from examples.tour.tour import ONCE, claims, summary
from tests.demo.looking import log, until


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[str], list[str]]:
    """What it answered, what it showed, and what was left of it in the process table and on the disk."""
    folder = tmp_path_factory.mktemp("tour")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "examples.tour", "--fast"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stderr == ""
    left = [str(path) for path in folder.iterdir()]
    for process in psutil.process_iter(["cmdline"]):
        left += [part for part in process.info["cmdline"] or [] if str(folder) in part]
    return done.returncode, done.stdout.splitlines(), left


def test_the_tour_is_true(shown: tuple[int, list[str], list[str]]) -> None:
    """D2 D26 D30 D33: every claim of it is checked against the tools' own log."""
    status, lines, _ = shown

    assert status == 0, "\n".join(lines)
    assert not any("NOT TRUE" in line for line in lines)


def test_its_last_line_counts_zeros_for_checkrein_and_none_for_the_naive_loop(
    shown: tuple[int, list[str], list[str]],
) -> None:
    found = re.fullmatch(
        r"after Stop: naive (\d+) ticks, (\d+) child alive, (\d+) e-mail; Checkrein (\d+), (\d+), (\d+)", shown[1][-1]
    )

    assert found is not None, shown[1][-1]
    counts = [int(count) for count in found.groups()]
    assert all(counts[:3])
    assert counts[3:] == [0, 0, 0]


def test_it_fits_in_80_columns(shown: tuple[int, list[str], list[str]]) -> None:
    assert [line for line in shown[1] if len(line) > 80] == []


def test_nothing_of_it_is_left(shown: tuple[int, list[str], list[str]]) -> None:
    """D4"""
    assert shown[2] == []


def test_the_e_mail_is_marked_as_sent_after_stop_in_the_left_column_only(
    shown: tuple[int, list[str], list[str]],
) -> None:
    rows = [line.split("|") for line in shown[1] if "|" in line]

    left, right = [row[0] for row in rows], [row[1] for row in rows]

    assert any(cell.startswith("!") and "E-MAIL SENT" in cell for cell in left)
    assert not any(cell.strip().startswith("!") for cell in right)
    assert any("undo: draft discarded" in cell for cell in right)


@pytest.mark.anyio
async def test_in_an_async_loop_the_tool_goes_on_after_its_task_is_cancelled_too(folder: Path) -> None:
    """What the tour says in passing about the naive loop."""
    task = asyncio.create_task(asyncio.to_thread(score_churn, str(folder), pace=0.05))
    await until(lambda: "scored 20 of 240" in log(folder))

    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    await until(lambda: "scored 240 of 240" in log(folder))


# -- its own judgement


def half(*after: str, children: int = 0) -> Half:
    receipt = Receipt(
        verb=Verb.CANCEL,
        run="r",
        status=Status.CANCELLED,
        seq=1,
        by="you",
        effects=tuple(
            ChangedEffect(id=what, what=what, now=EffectState.UNDONE) for what in ("create_draft", "take_lock")
        ),
    )
    return Half(10.0, 10.5, tuple(Entry(11.0, 1, what) for what in after), children, receipt=receipt)


NAIVE = half("scored 80 of 240", "E-MAIL SENT", children=1)
CHECKREIN = half("undo: draft discarded")
CRASH = Crash(0, 0, Counter(ONCE), State(run="r", agent="churn", goal="", thread="r", status=Status.COMPLETED))


def untrue(naive: Half = NAIVE, checkrein: Half = CHECKREIN, crash: Crash = CRASH) -> list[str]:
    return [claim for claim, is_true in claims(naive, checkrein, crash) if not is_true]


def test_a_tour_in_which_all_went_as_claimed_has_nothing_to_take_back() -> None:
    assert untrue() == []
    assert summary(NAIVE, CHECKREIN) == "after Stop: naive 1 ticks, 1 child alive, 1 e-mail; Checkrein 0, 0, 0"


@pytest.mark.parametrize(
    ("naive", "checkrein", "crash"),
    [
        (half("E-MAIL SENT", children=1), CHECKREIN, CRASH),
        (half("scored 80 of 240", "E-MAIL SENT"), CHECKREIN, CRASH),
        (half("scored 80 of 240", children=1), CHECKREIN, CRASH),
        (NAIVE, half("scored 80 of 240"), CRASH),
        (NAIVE, half("memo written"), CRASH),
        (NAIVE, half(children=1), CRASH),
        (NAIVE, replace(CHECKREIN, drafts=1), CRASH),
        (NAIVE, replace(CHECKREIN, locks=1), CRASH),
        (NAIVE, CHECKREIN, replace(CRASH, ticks_while_paused=1)),
        (NAIVE, CHECKREIN, replace(CRASH, children_left=1)),
        (NAIVE, CHECKREIN, replace(CRASH, times=Counter([*ONCE, "draft made"]))),
        (NAIVE, CHECKREIN, replace(CRASH, state=State(run="r", agent="churn", goal="", thread="r"))),
    ],
)
def test_a_claim_that_is_not_true_is_noticed(naive: Half, checkrein: Half, crash: Crash) -> None:
    assert len(untrue(naive, checkrein, crash)) == 1


def test_columns_meet_at_stop_and_mark_work_after_it() -> None:
    left = Column("LEFT", [Line(-1.0, "before"), Line(0.5, "late work", is_work=True)], ends="(ended)")
    right = Column("RIGHT", [Line(0.1, "undo: draft discarded")], ends="(nothing more)")

    rows = [row.split("|") for row in side_by_side(left, right)]

    stop = next(number for number, row in enumerate(rows) if "Stop" in row[0])
    assert "Stop" in rows[stop][1]
    assert rows[stop - 1][0].strip() == "-1.00 s before"
    assert rows[stop + 1][0].startswith("! +0.50 s late work")
    assert rows[stop + 1][1] == "   +0.10 s undo: draft discarded"
