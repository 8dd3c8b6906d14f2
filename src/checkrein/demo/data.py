"""The demo's data set: the customers of a small company, made up, and the same every time.

240 customers in eight countries, what each paid in 18 months, how often its people logged in, and the tickets they
wrote. About one customer in eight has begun to leave, and one can tell: revenue and log-ins fall, tickets get angrier.
Others have a bad month too, so that it takes more than one look. The truth itself is not in the database.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

NAME: Final = "churn.db"
SEED: Final = 20260630
CUSTOMERS: Final = 240
MONTHS: Final = tuple(f"{year}-{month:02}" for year in (2025, 2026) for month in range(1, 13))[:18]
"""January 2025 to June 2026. The next quarter is the third of 2026."""
NEXT_QUARTER: Final = "Q3"
COUNTRIES: Final = (
    "Germany",
    "France",
    "Netherlands",
    "Spain",
    "Poland",
    "Sweden",
    "Italy",
    "Portugal",
)

_PRICES: Final = {"Team": 19, "Business": 34, "Enterprise": 52}
# fmt: off
_FIRST: Final = (
    "Amber", "Birch", "Cobalt", "Delta", "Ember", "Fjord", "Garnet", "Harbour", "Indigo", "Juniper", "Kestrel",
    "Lantern", "Meridian", "Nimbus", "Orchard", "Pelican", "Quarry", "Ridge", "Saffron", "Timber", "Umbra",
    "Velvet", "Willow", "Zephyr",
)
_SECOND: Final = (
    "Freight", "Optics", "Foods", "Energy", "Textiles", "Robotics", "Books", "Travel", "Dental", "Analytics",
    "Ceramics", "Media", "Logistics", "Tools", "Insurance", "Games",
)
# fmt: on
_SUBJECTS: Final = {
    0: "How do I add a colleague?",
    1: "Export takes very long",
    2: "The sync failed again",
    3: "We are looking at other products",
}

SCHEMA: Final = """
CREATE TABLE customers (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, country TEXT NOT NULL, plan TEXT NOT NULL, seats INTEGER NOT NULL,
    renews TEXT NOT NULL  -- the month in which the contract ends unless it is renewed
);
CREATE TABLE revenue (customer TEXT, month TEXT, mrr INTEGER NOT NULL, PRIMARY KEY (customer, month)) WITHOUT ROWID;
CREATE TABLE logins (customer TEXT, month TEXT, count INTEGER NOT NULL, PRIMARY KEY (customer, month)) WITHOUT ROWID;
CREATE TABLE tickets (id INTEGER PRIMARY KEY, customer TEXT, month TEXT, subject TEXT, upset INTEGER NOT NULL);
CREATE INDEX tickets_of ON tickets (customer, month);
CREATE TABLE locks (name TEXT PRIMARY KEY, holder TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Customer:
    id: str
    name: str
    country: str
    plan: str
    seats: int
    renews: str
    leaves: bool
    """The truth, which the database does not tell."""
    revenue: tuple[int, ...]
    logins: tuple[int, ...]
    tickets: tuple[tuple[int, int], ...]
    """Number of the month, and how upset: 0 to 3."""


def make(folder: Path) -> Path:
    """The database in `folder`, made there unless it exists. It appears whole or not at all."""
    path = folder / NAME
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{NAME}.{secrets.token_hex(4)}"
    try:
        _write(part, customers())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


@contextmanager
def connect(folder: str | Path) -> Iterator[sqlite3.Connection]:
    """The database in `folder`; what the block wrote is committed if it did not raise. Closed on leaving."""
    with closing(sqlite3.connect(Path(folder) / NAME, timeout=10)) as database, database:
        database.row_factory = sqlite3.Row
        yield database


def customers(seed: int = SEED, count: int = CUSTOMERS) -> list[Customer]:
    """The customers themselves: the same for the same seed, on every machine."""
    random = Random(seed)
    names = [f"{first} {second}" for first in _FIRST for second in _SECOND]
    random.shuffle(names)
    return [_customer(random, number, names[number - 1]) for number in range(1, count + 1)]


def _customer(random: Random, number: int, name: str) -> Customer:
    plan = random.choices(list(_PRICES), weights=(5, 3, 2))[0]
    seats = random.randint(5, 120)
    leaves = random.random() < 0.13
    # One who leaves has been at it for three to five months; everybody else may have a single bad month.
    begins = len(MONTHS) - random.randint(3, 5) if leaves else len(MONTHS)
    bad_month = random.randrange(len(MONTHS) * 2)
    revenue, logins, tickets = [], [], []
    level, use = float(seats * _PRICES[plan]), 1.0
    for month in range(len(MONTHS)):
        level *= random.uniform(0.84, 0.98) if month >= begins else random.uniform(0.99, 1.02)
        use *= random.uniform(0.65, 1.0) if month >= begins else 1.0
        dip = 0.7 if month == bad_month else 1.0
        revenue.append(round(level * dip))
        logins.append(round(seats * 11 * use * dip * random.uniform(0.85, 1.15)))
        for _ in range(3):
            if random.random() < (0.35 if month >= begins else 0.12):
                tickets.append((month, random.randint(1, 3) if month >= begins else random.choice((0, 0, 0, 1, 1, 2))))
    year_and_month = random.choice(
        [*(f"2026-{month:02}" for month in range(7, 13)), *(f"2027-{m:02}" for m in range(1, 7))]
    )
    country = random.choices(COUNTRIES, weights=(8, 6, 5, 4, 4, 3, 3, 2))[0]
    return Customer(
        id=f"C-{number:03}",
        name=name,
        country=country,
        plan=plan,
        seats=seats,
        renews=year_and_month,
        leaves=leaves,
        revenue=tuple(revenue),
        logins=tuple(logins),
        tickets=tuple(tickets),
    )


def _write(path: Path, all_customers: list[Customer]) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(SCHEMA)
        for one in all_customers:
            row = (one.id, one.name, one.country, one.plan, one.seats, one.renews)
            database.execute("INSERT INTO customers VALUES (?, ?, ?, ?, ?, ?)", row)
            revenue = [(one.id, month, mrr) for month, mrr in zip(MONTHS, one.revenue, strict=True)]
            database.executemany("INSERT INTO revenue VALUES (?, ?, ?)", revenue)
            logins = [(one.id, month, count) for month, count in zip(MONTHS, one.logins, strict=True)]
            database.executemany("INSERT INTO logins VALUES (?, ?, ?)", logins)
            tickets = [(one.id, MONTHS[month], _SUBJECTS[upset], upset) for month, upset in one.tickets]
            database.executemany("INSERT INTO tickets (customer, month, subject, upset) VALUES (?, ?, ?, ?)", tickets)


# -- the log of the tools

LOG: Final = "witness.log"
"""The witness of what was really done, and when. Nothing of Checkrein writes to it or reads it."""


class Entry(NamedTuple):
    at: float
    """Seconds since the epoch, by the clock of whoever wrote it."""
    pid: int
    what: str


def note(data: str | Path, what: str) -> None:
    """Add a line to the log in the folder `data`. On return it is on the disk."""
    line = f"{time.time():.6f} {os.getpid()} {what}\n"
    descriptor = os.open(Path(data) / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, line.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def entries(data: str | Path) -> list[Entry]:
    """Everything in the log so far, in the order of its clock. A line that is just being written is left out."""
    try:
        text = (Path(data) / LOG).read_text()
    except FileNotFoundError:
        return []
    lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return sorted(_entry(line) for line in lines)


def _entry(line: str) -> Entry:
    at, pid, what = line.rstrip("\n").split(" ", 2)
    return Entry(float(at), int(pid), what)
