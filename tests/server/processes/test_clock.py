"""A real server whose wall clock is set by an hour, forward and then back, while a tool works.

Every process of the server reads its wall clock through a module that the interpreter loads first, and that adds what
the test has written to a file. The clocks that nobody can set are left alone. The witness is the process table.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.cli.shell import until
from tests.server.processes.serving import Place
from tests.support.witness import is_alive

HOUR = 3_600.0

SITE = """
import os, time

_real, _file = time.time, {file!r}

def _set_time():
    try:
        with open(_file) as file:
            return _real() + float(file.read() or 0)
    except OSError:
        return _real()

time.time = _set_time
"""


def set_clock(file: Path, seconds: float) -> None:
    draft = file.with_suffix(".new")
    draft.write_text(str(seconds))
    draft.rename(file)


def lease(store: Path) -> tuple[int, float, float]:
    """The epoch of the only run that is driven, until when its lease holds, and its deadline by the wall clock."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        found = db.execute("SELECT h.epoch, l.until, l.deadline FROM leases l JOIN heads h ON h.run = l.run").fetchone()
    return found or (0, 0.0, 0.0)


def test_a_tool_works_on_when_the_clock_is_set_by_an_hour_and_a_cancel_still_stops_it(
    place: Place, tmp_path: Path
) -> None:
    site, clock = tmp_path / "site", tmp_path / "clock"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE.format(file=str(clock)))
    place.shell.environment["PYTHONPATH"] = str(site)
    server = place.serve()
    run = server.client.start("cruncher")
    until(lambda: any(word.startswith("child") for word in place.shell.words()))
    child = int(next(word for word in place.shell.words() if word.startswith("child")).split()[1])
    store = place.shell.folder / ".checkrein" / "runs.db"
    epoch, _, wall = lease(store)

    for seconds in (HOUR, -HOUR):
        set_clock(clock, seconds)
        # Renewed by the clock as it was set, and once more: whoever gives the run up for it has done so by then.
        until(lambda by=seconds: abs(lease(store)[2] - wall - by) < HOUR / 2)  # type: ignore[misc]
        renewed = lease(store)[1]
        until(lambda since=renewed: lease(store)[1] > since)  # type: ignore[misc]
        assert is_alive(child)
        assert lease(store)[0] == epoch, "nobody has taken the run over"
        view = server.client.view(run)
        assert (view["status"], view["waiting"]) == ("running", []), view
        assert 0 <= view["elapsed_seconds"] < HOUR / 2

    server.client.verb(run, "cancel")

    until(lambda: server.client.status(run) == "cancelled")
    assert not is_alive(child)
    assert server.end() == 0
