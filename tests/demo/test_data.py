"""The data set of the demo: the same everywhere, and with something in it to find."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from checkrein.demo import data
from checkrein.demo.churn_score import score_churn

DUMP = "import sys; from pathlib import Path; from checkrein.demo import data; data.make(Path(sys.argv[1]))"
QUARTERS = {"Q3": ("07", "08", "09"), "Q4": ("10", "11", "12")}


def dump(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / data.NAME)) as database:
        return list(database.iterdump())


def test_the_data_set_is_the_same_in_every_process(tmp_path: Path) -> None:
    data.make(tmp_path / "here")
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", DUMP, str(tmp_path / seed)], env=environment, check=True)

    assert dump(tmp_path / "here") == dump(tmp_path / "1") == dump(tmp_path / "2")


def test_another_seed_makes_other_customers() -> None:
    assert data.customers(1) != data.customers(2)


def test_a_data_set_that_exists_is_left_alone(folder: Path) -> None:
    with data.connect(folder) as database:
        database.execute("DELETE FROM customers WHERE id <> 'C-001'")

    data.make(folder)

    with data.connect(folder) as database:
        assert database.execute("SELECT count(*) FROM customers").fetchone()[0] == 1


def test_a_data_set_that_could_not_be_made_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "SCHEMA", data.SCHEMA + "CREATE TABLE customers (again TEXT);")

    with pytest.raises(sqlite3.Error):
        data.make(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_every_customer_has_a_name_of_its_own_and_all_its_months(folder: Path) -> None:
    with data.connect(folder) as database:
        names = database.execute("SELECT count(DISTINCT name) FROM customers").fetchone()[0]
        months = {row[0] for row in database.execute("SELECT count(*) FROM revenue GROUP BY customer")}

    assert names == data.CUSTOMERS
    assert months == {18}


def test_the_scores_find_those_who_really_leave(folder: Path) -> None:
    leaving = {customer.name for customer in data.customers() if customer.leaves}

    scores = score_churn(str(folder), pace=0)

    found = {one["name"] for one in scores["top"]}
    assert scores["scored"] == data.CUSTOMERS
    assert 0.5 * len(leaving) <= scores["at_risk"] <= 1.5 * len(leaving)
    assert len(found & leaving) >= 0.8 * len(found)
    assert all("revenue -" in one["why"] or "log-ins -" in one["why"] for one in scores["top"])


@pytest.mark.parametrize("scope", [{"country": "Germany"}, {"quarter": "Q3"}, {"country": "Spain", "quarter": "Q4"}])
def test_the_scores_keep_to_the_customers_asked_for(folder: Path, scope: dict[str, str]) -> None:
    months = QUARTERS.get(scope.get("quarter", ""), ())
    wanted = {
        customer.id
        for customer in data.customers()
        if scope.get("country") in (None, customer.country) and (not months or customer.renews[5:] in months)
    }

    scores = score_churn(str(folder), pace=0, **scope)

    assert scores["scored"] == len(wanted) > 0
    assert {one["id"] for one in scores["top"]} <= wanted
