"""What a run that nobody drives waits for, by the roster of its store: an agent, a version, a slot."""

from __future__ import annotations

import pytest

from checkrein.control.worker_roster import WorkerRoster
from checkrein.core.enums import Verb
from checkrein.journal.base import Owner, Worker
from checkrein.journal.memory import MemoryJournal
from tests.journal.build import created, verb

pytestmark = pytest.mark.anyio

ONE = "r"


async def known_by(journal: MemoryJournal, version: str) -> None:
    """A run that nobody drives, and that was driven by this version."""
    await journal.create(created(ONE))
    lease = await journal.claim(ONE, Owner(process="before"), seconds=60, version=version)
    await journal.release(lease)


def worker(name: str, version: str = "", *, agent: str = "churn", slots: int = 0, free: int = 0) -> Worker:
    return Worker(
        name=name, owner=Owner(process=name), version=version, agents=(agent, "other"), slots=slots, free=free
    )


@pytest.mark.parametrize(
    ("version", "workers", "wanted"),
    [
        ("", [], "a worker with agent churn"),
        ("v2", [], "a worker with agent churn (version v2)"),
        ("v2", [worker("a", "v2", agent="mail")], "a worker with agent churn (version v2)"),
        ("v2", [worker("a", "v2")], None),
        ("v2", [worker("a", "v1")], None),
        ("v2", [worker("a", "v2", slots=5, free=1)], None),
        ("v2", [worker("a", "v2", slots=5), worker("b", "v2", slots=5, free=2)], None),
        (
            "v2",
            [worker("a", "v2", slots=5), worker("b", "v1", slots=5, free=5)],
            "a free slot of a worker with agent churn (version v2)",
        ),
        ("v2", [worker("a", "v1", slots=5)], "a free slot of a worker with agent churn"),
        ("", [worker("a", slots=5)], "a free slot of a worker with agent churn"),
    ],
)
async def test_what_lacks_is_named(version: str, workers: list[Worker], wanted: str | None):
    journal = MemoryJournal()
    await known_by(journal, version)
    for one in workers:
        await journal.enlist(one, seconds=60)

    found = await WorkerRoster(journal).wanted([await journal.load(ONE)])

    assert found.get(ONE) == wanted


async def test_a_worker_that_is_not_seen_any_more_is_none():
    journal = MemoryJournal()
    await known_by(journal, "v2")
    await journal.enlist(worker("a", "v2"), seconds=0.0)

    found = await WorkerRoster(journal).wanted([await journal.load(ONE)])

    assert found == {ONE: "a worker with agent churn (version v2)"}


async def test_a_stop_waits_for_no_slot():
    journal = MemoryJournal()
    await known_by(journal, "v2")
    await journal.append(ONE, [verb(Verb.CANCEL)], after=1)
    await journal.enlist(worker("a", "v2", slots=5), seconds=60)

    assert await WorkerRoster(journal).wanted([await journal.load(ONE)]) == {}
