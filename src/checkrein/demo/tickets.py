"""The child process of `score_churn`: reads the tickets of one customer after the other and prints how upset they are.

python -m checkrein.demo.tickets DATA SECONDS_EACH      the ids of the customers come on standard input
"""

from __future__ import annotations

import sys
import time

from checkrein.demo.data import MONTHS, connect
from checkrein.demo.witness import note

EVERY = 40


def read_tickets(data: str, customers: list[str], seconds_each: float) -> None:
    with connect(data) as database:
        for count, customer in enumerate(customers, 1):
            sql = "SELECT coalesce(sum(upset), 0) FROM tickets WHERE customer = ? AND month >= ?"
            print(database.execute(sql, (customer, MONTHS[-4])).fetchone()[0], flush=True)
            time.sleep(seconds_each)
            if count % EVERY == 0:
                note(data, f"child: read tickets of {count}")


if __name__ == "__main__":
    read_tickets(sys.argv[1], sys.stdin.read().split(), float(sys.argv[2]))
