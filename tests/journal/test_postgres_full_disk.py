"""A server whose disk is really full, to the last byte: that of its tables, and that of everything.

Where only the tables are out of room, the server goes on and says so. Where it cannot write its log it ends itself, and
is away until somebody has made room and started it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from checkrein.core.enums import Verb
from checkrein.errors import StoreFull, StoreUnavailable
from checkrein.journal import Chunk, Journal
from checkrein.journal.postgres import PostgresJournal
from tests.journal.build import ALICE, created, driven, outcome, permit, verb
from tests.journal.conftest import PostgresStore
from tests.support.patience import PATIENCE_SECONDS
from tests.support.postgres import running
from tests.support.small_disk import fill, small_disk

pytestmark = pytest.mark.anyio


@pytest.fixture
def disk() -> Iterator[Path]:
    """Where the tables are kept."""
    with small_disk(12) as disk:
        yield disk


@pytest.fixture
async def store(disk: Path) -> AsyncIterator[PostgresStore]:
    with running(tables_in=disk) as cluster:
        yield PostgresStore(cluster)


async def until_full(journal: Journal, run: str, seq: int) -> int:
    """Append until the disk is full; the run's last seq that was acknowledged."""
    for number in range(5_000):
        try:
            event = outcome(f"{run}-{number}", "x" * 5_000)
            seq = (await journal.append(run, [event], after=seq, epoch=1)).events[-1].seq
        except StoreFull:
            return seq
    raise AssertionError("the disk was never full")


async def test_a_full_disk_is_said_in_one_sentence_and_all_goes_on_when_there_is_room(store: PostgresStore, disk: Path):
    journal = store.open()
    await driven(journal)
    ballast = fill(disk)
    seq = await until_full(journal, "r", 1)

    with pytest.raises(StoreFull) as refused:
        await journal.append("r", [permit(key="k" * 9_000)], after=seq, epoch=1)
    with pytest.raises(StoreFull):
        await journal.write_chunks({"r": [Chunk(f"c{number}", 0, "text" * 500) for number in range(100)]})
    assert str(refused.value).startswith(f"The disk of the server with {store.address} is full: ")
    assert str(refused.value).count(".") == store.address.count(".") + 1, "one sentence"
    assert (await journal.load("r")).seq == await journal.verify("r") == seq
    assert await journal.renew(ALICE, seconds=60) == {"r"}

    ballast.unlink()
    await journal.append("r", [permit(), outcome()], after=seq, epoch=1)
    await journal.append("r", [verb(Verb.CANCEL)], after=seq + 2)
    await journal.create(created("s"))
    assert await journal.verify("r") == seq + 3
    await store.close()


@pytest.mark.torture
async def test_a_server_that_has_ended_itself_for_want_of_room_has_lost_nothing_when_it_is_back():
    with small_disk(90) as disk, running(within=disk, max_wal_size="32MB", min_wal_size="32MB") as cluster:
        store = PostgresStore(cluster)
        journal = PostgresJournal(store.address, patience=1.0)
        await driven(journal)
        ballast = fill(disk)
        seq, sentence = await until_refused(journal, 1)

        ballast.unlink()
        cluster.start_again()
        kept = await goes_on(journal)

        assert kept in (seq, seq + 1), "what was acknowledged, and perhaps the one whose answer was lost"
        assert await journal.verify("r") == kept + 1
        assert "\n" not in sentence
        await journal.close()


async def goes_on(journal: Journal) -> int:
    """Append once more, as soon as that is possible; how many events were there before."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            try:
                kept = len(await journal.read("r"))
                await journal.append("r", [outcome()], after=kept, epoch=1)
                return kept
            except (StoreFull, StoreUnavailable):
                await anyio.sleep(0.1)


async def until_refused(journal: Journal, seq: int) -> tuple[int, str]:
    """Append until the server takes no more; the last seq that was acknowledged, and what was said."""
    for number in range(20_000):
        try:
            seq = (await journal.append("r", [outcome(f"c{number}", "x" * 5_000)], after=seq, epoch=1)).events[-1].seq
        except (StoreFull, StoreUnavailable) as error:
            return seq, str(error)
    raise AssertionError("the disk was never full")
