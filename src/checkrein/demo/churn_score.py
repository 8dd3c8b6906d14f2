"""How likely each customer is to leave: a long, blocking computation with a child process, as tools often are.

It goes through the customers one at a time. What it needs to know about their tickets a child process reads for it
meanwhile, as a tool might start a browser, a compiler or another program. Nothing here knows how to be stopped.

    python -m checkrein.demo.churn_score DATA SECONDS_EACH      the child; ids of customers come on standard input
"""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from checkrein.demo.data import MONTHS, NEXT_QUARTER, connect, note

SECONDS_EACH: Final = 0.05
"""Per customer, at pace 1."""
EVERY: Final = 20
"""It says how far it is after so many customers."""
AT_RISK: Final = 0.5
_TOP: Final = 12
CHILD: Final = "checkrein.demo.churn_score"
"""The module that the child process runs; whoever looks for it in the process table finds this in its command."""
_CHILD_EVERY: Final = 40
_SOURCE: Final = str(Path(__file__).parents[2])

_SIGNALS: Final = """
SELECT (SELECT avg(mrr) FROM revenue WHERE customer = :id AND month >= :recent) AS mrr,
       (SELECT avg(mrr) FROM revenue WHERE customer = :id AND month >= :earlier AND month < :before) AS mrr_before,
       (SELECT avg(count) FROM logins WHERE customer = :id AND month >= :recent) AS logins,
       (SELECT avg(count) FROM logins WHERE customer = :id AND month >= :earlier AND month < :before) AS logins_before
"""
_PERIODS: Final = {"recent": MONTHS[-2], "before": MONTHS[-6], "earlier": MONTHS[-9]}


def score_churn(data: str, country: str | None = None, quarter: str | None = None, pace: float = 1.0) -> Any:
    """Score how likely each customer is to leave next quarter. Takes some ten seconds."""
    scores = []
    with connect(data) as database:
        wanted = {"country": country, "quarter": quarter}
        sql = f"SELECT id, name, country, renews FROM customers WHERE {where()} ORDER BY id"
        customers = database.execute(sql, wanted).fetchall()
        child = _start_reader(data, [row["id"] for row in customers], pace)
        note(data, f"scoring begins; child pid {child.pid}")
        assert child.stdout is not None
        with child.stdout:
            for count, customer in enumerate(customers, 1):
                upset = int(child.stdout.readline())
                scores.append(_score(database, customer, upset))
                time.sleep(SECONDS_EACH * pace)
                if count % EVERY == 0 or count == len(customers):
                    note(data, f"scored {count} of {len(customers)}")
    child.wait()
    scores.sort(key=lambda one: (-one["risk"], one["id"]))
    at_risk = [one for one in scores if one["risk"] >= AT_RISK]
    return {
        "scored": len(scores),
        "at_risk": len(at_risk),
        "mrr_at_risk": sum(one["mrr"] for one in at_risk),
        "top": at_risk[:_TOP],
    }


def _start_reader(data: str, customers: list[str], pace: float) -> subprocess.Popen[str]:
    """The child process: prints, for each customer in turn, how upset its tickets are."""
    path = os.pathsep.join(filter(None, [_SOURCE, os.environ.get("PYTHONPATH")]))
    child = subprocess.Popen(
        [sys.executable, "-m", CHILD, data, str(SECONDS_EACH * pace)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert child.stdin is not None
    with child.stdin as file:
        file.write("\n".join(customers))
    return child


def _score(database: sqlite3.Connection, customer: sqlite3.Row, upset: int) -> dict[str, Any]:
    signals = database.execute(_SIGNALS, {"id": customer["id"], **_PERIODS}).fetchone()
    revenue = signals["mrr"] / signals["mrr_before"] - 1
    logins = signals["logins"] / signals["logins_before"] - 1
    renews = customer["renews"][5:] in ("07", "08", "09")
    # Weighed by hand: what falls counts, what grows does not excuse the rest.
    weight = -3.0 + 6 * max(0.0, -revenue) + 3 * max(0.0, -logins) + 0.25 * upset + (0.4 if renews else 0.0)
    return {
        "id": customer["id"],
        "name": customer["name"],
        "country": customer["country"],
        "mrr": round(signals["mrr"]),
        "risk": round(1 / (1 + math.exp(-weight)), 2),
        "why": _why(revenue, logins, upset, renews),
    }


def _why(revenue: float, logins: float, upset: int, renews: bool) -> str:
    reasons = [
        f"revenue {revenue:+.0%}" if revenue <= -0.1 else "",
        f"log-ins {logins:+.0%}" if logins <= -0.2 else "",
        "upset tickets" if upset >= 4 else "",
        f"contract ends in {NEXT_QUARTER}" if renews else "",
    ]
    return ", ".join(filter(None, reasons))


def where() -> str:
    """Which customers, in SQL: `:country` and `:quarter`, each None for all."""
    quarter = "'Q' || ((CAST(substr(renews, 6, 2) AS INTEGER) + 2) / 3)"
    return f"(:country IS NULL OR country = :country) AND (:quarter IS NULL OR {quarter} = :quarter)"


# -- the child process


def read_tickets(data: str, customers: list[str], seconds_each: float) -> None:
    """Read the tickets of one customer after the other and print how upset they are."""
    with connect(data) as database:
        for count, customer in enumerate(customers, 1):
            sql = "SELECT coalesce(sum(upset), 0) FROM tickets WHERE customer = ? AND month >= ?"
            print(database.execute(sql, (customer, MONTHS[-4])).fetchone()[0], flush=True)
            time.sleep(seconds_each)
            if count % _CHILD_EVERY == 0:
                note(data, f"child: read tickets of {count}")


if __name__ == "__main__":
    try:
        read_tickets(sys.argv[1], sys.stdin.read().split(), float(sys.argv[2]))
    except BrokenPipeError:
        os._exit(1)  # whoever read this has ended; a traceback would be told to nobody who could act on it
