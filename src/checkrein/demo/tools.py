"""The demo's tools: plain functions on a real database and real files, with what a runtime must know about each.

They also work without any runtime: the naive half of the tour calls the very same functions. `data` is the folder of
the data set. `pace` stretches what would otherwise be over before anybody could stop it; 0 does not wait at all.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final

from checkrein.agents.tool import tool
from checkrein.calls.current import Call, current_call
from checkrein.demo.churn_score import score_churn as _score_churn
from checkrein.demo.churn_score import where
from checkrein.demo.data import MONTHS, connect, note
from checkrein.errors import MisuseError

OUTBOX: Final = "outbox"
SENT: Final = "sent"
MEMO: Final = "memo.md"
_PAGE: Final = 60


@tool(effect="none", idempotent=True)
def fetch_customers(data: str, country: str | None = None, quarter: str | None = None, pace: float = 1.0) -> Any:
    """Fetch the customer list, of one country or with contracts that end in one quarter (Q1 to Q4) if given."""
    countries: dict[str, int] = {}
    count = 0
    with connect(data) as database:
        sql = f"SELECT country FROM customers WHERE {where()} ORDER BY id LIMIT {_PAGE} OFFSET :offset"
        while page := database.execute(sql, {"country": country, "quarter": quarter, "offset": count}).fetchall():
            for row in page:
                countries[row["country"]] = countries.get(row["country"], 0) + 1
            count += len(page)
            time.sleep(0.25 * pace)
    note(data, f"fetched {count} customers")
    return {"customers": count, "countries": countries}


@tool(effect="none", idempotent=True)
def join_mrr(data: str, pace: float = 1.0) -> Any:
    """Join the customer list against the table of monthly recurring revenue (MRR)."""
    totals = {}
    with connect(data) as database:
        for month in MONTHS:
            sql = "SELECT sum(mrr) AS mrr FROM customers JOIN revenue ON customer = id WHERE month = ?"
            totals[month] = int(database.execute(sql, (month,)).fetchone()["mrr"])
            time.sleep(0.06 * pace)
    note(data, f"joined {len(totals)} months of revenue")
    return {"months": len(totals), "first": totals[MONTHS[0]], "last": totals[MONTHS[-1]]}


score_churn = tool(effect="none", idempotent=True, on_pause="hold")(_score_churn)


# -- the lock, held by a run from the moment it reads revenue


def release_lock(call: Any) -> None:
    """Undo of `take_lock`. Releasing what is not held, or held by somebody else, changes nothing."""
    if _release(call.arguments["data"], call.key):
        note(call.arguments["data"], "undo: lock released")


@tool(undo=release_lock, idempotent=True, changes="the lock on the revenue table")
def take_lock(data: str) -> str:
    """Lock the revenue table, so that nobody changes it while it is being analysed."""
    key = _key()
    with connect(data) as database:
        taken = database.execute("INSERT OR IGNORE INTO locks VALUES ('revenue', ?)", (key,)).rowcount
        holder = database.execute("SELECT holder FROM locks WHERE name = 'revenue'").fetchone()["holder"]
    if holder != key:
        raise RuntimeError(f"the revenue table is locked by {holder}; finish or cancel that run first")
    if taken:
        note(data, "lock taken")
    return key


@tool(effect="none", idempotent=True)
def unlock(data: str, lock: str) -> str:
    """Release the lock on the revenue table, at the end."""
    if _release(data, lock):
        note(data, "lock released")
    return "released"


def _release(data: str, key: str) -> bool:
    with connect(data) as database:
        return database.execute("DELETE FROM locks WHERE holder = ?", (key,)).rowcount > 0


def locks(data: str | Path) -> int:
    """How many locks are held."""
    with connect(data) as database:
        return int(database.execute("SELECT count(*) FROM locks").fetchone()[0])


# -- the e-mail, first a draft


def discard_draft(call: Any) -> None:
    """Undo of `create_draft`. Known by the key of its call, so it works whether or not the call came to answer."""
    draft = _draft(call.arguments["data"], _draft_name(call.key))
    if draft.exists():
        draft.unlink()
        note(call.arguments["data"], "undo: draft discarded")


@tool(undo=discard_draft, changes="the e-mail draft")
def create_draft(data: str, to: str, subject: str) -> str:
    """Begin an e-mail: a draft without text yet, in the outbox."""
    name = _draft_name(_key())
    draft = _draft(data, name)
    draft.parent.mkdir(exist_ok=True)
    draft.write_text(f"To: {to}\nSubject: {subject}\n\n")
    note(data, "draft made")
    return name


@tool(effect="irreversible", changes="the e-mail to {to}")
def send_email(data: str, to: str, draft: str, text: str) -> str:
    """Send a draft with this text to whom it is addressed. It cannot be called back."""
    source, sent = _draft(data, draft), Path(data) / SENT / f"{draft}.eml"
    begun = source.read_text()
    if not begun.startswith(f"To: {to}\n"):
        raise ValueError(f"the draft {draft} is not addressed to {to}")  # what was consented to is what is sent
    sent.parent.mkdir(exist_ok=True)
    sent.write_text(begun + text + "\n")
    source.unlink()
    note(data, "E-MAIL SENT")
    return "sent"


def _draft(data: str, name: str) -> Path:
    return Path(data) / OUTBOX / f"{name}.eml"


def _draft_name(key: str) -> str:
    return f"draft-{sha256(key.encode()).hexdigest()[:8]}"


# -- the memo


@tool(effect="reversible", changes="the memo")
def write_memo(
    data: str,
    summary: str,
    customers: list[str],
    advice: list[str],
    country: str | None = None,
    quarter: str | None = None,
) -> str:
    """Write the summary memo: a few sentences, the customers it is about by id, and what to do."""
    about = ", ".join(filter(None, [country, quarter and f"contracts that end in {quarter}"])) or "all customers"
    lines = [
        f"# Customers who may leave ({about})",
        "",
        summary,
        "",
        "| Customer | Country | Pays a month |",
        "| --- | --- | --- |",
    ]
    with connect(data) as database:
        sql = "SELECT name, country, mrr FROM customers JOIN revenue ON customer = id WHERE id = ? AND month = ?"
        for one in customers:
            row = database.execute(sql, (one, MONTHS[-1])).fetchone()
            lines.append(f"| {row['name']} | {row['country']} | {row['mrr']:,} € |")
    lines += ["", "## What to do", "", *(f"- {line}" for line in advice), ""]
    with _published(Path(data) / MEMO) as file:
        file.write("\n".join(lines))
    note(data, "memo written")
    return MEMO


@contextmanager
def _published(path: Path) -> Iterator[IO[str]]:
    """A file that appears whole, and only if the call succeeds; what is written is meant to stay."""
    call = _call()
    if call is None:
        with path.open("w") as file:
            yield file
        return
    with call.write(path) as file:
        yield file
    call.settle()


# -- with or without a runtime


def _call() -> Call | None:
    try:
        return current_call()
    except MisuseError:
        return None


def _key() -> str:
    """Names this call for good. Nobody but a runtime can say that a second attempt is the same call."""
    call = _call()
    return uuid.uuid4().hex if call is None else call.key


TOOLS: Final = (
    fetch_customers,
    take_lock,
    join_mrr,
    create_draft,
    score_churn,
    write_memo,
    send_email,
    unlock,
)
