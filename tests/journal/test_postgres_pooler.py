"""A real PgBouncer in transaction mode before the server: it is noticed, nothing breaks, and there is a way past it.

The contract is kept through it: what is imported here runs once more, on a store behind the pooler.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest

from checkrein.core.enums import Verb
from checkrein.journal import Journal, open_journal
from checkrein.journal.postgres import PostgresJournal, reads
from tests.journal.build import driven, verb
from tests.journal.conftest import PostgresStore
from tests.journal.test_contract_appends import test_a_repeat_returns_what_was_recorded_the_first_time  # noqa: F401
from tests.journal.test_contract_fences import (  # noqa: F401
    test_a_cancel_fences_every_descendant_and_nobody_else,
    test_a_fence_of_another_journal_on_the_same_store_counts_at_once,
    test_a_halt_stays_latched_until_it_is_lifted,
    test_a_halt_stops_every_call_in_its_scope_undos_too,
    test_an_undo_follows_a_cancel,
    test_no_permit_follows_a_cancel,
    test_no_sub_run_is_created_below_a_cancelled_run,
)
from tests.journal.test_contract_owners import (  # noqa: F401
    test_a_run_with_a_living_owner_is_not_given_to_another,
    test_a_stale_owner_is_refused_facts_and_all,
    test_renewal_prolongs_the_leases_that_nobody_else_has_claimed_and_says_which,
)
from tests.journal.test_contract_several import (  # noqa: F401
    test_claims_at_the_same_time_get_everything_once,
    test_several_states_are_those_that_are_loaded_one_by_one,
    test_the_text_of_several_calls_is_that_of_each,
)
from tests.journal.test_sqlite_processes import delays_of_following, nearly_all
from tests.support.patience import PATIENCE_SECONDS, within
from tests.support.pgbouncer import Pooler, pooled
from tests.support.postgres import Cluster

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def pooler(postgres: Cluster) -> Iterator[Pooler]:
    with pooled(postgres) as pooler:
        yield pooler


class PooledStore(PostgresStore):
    def __init__(self, pooler: Pooler) -> None:
        super().__init__(pooler.cluster)
        self.direct, self.address = self.address, pooler.address(self.schema)


@pytest.fixture
async def store(pooler: Pooler) -> AsyncIterator[PooledStore]:
    store = PooledStore(pooler)
    yield store
    await store.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When it was looked for changes: by the clock of the machine, in the thread that does it."""
    looks: list[float] = []
    changed = reads.changed

    def counted(*args: object) -> dict[str, int]:
        looks.append(time.monotonic())
        return changed(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(reads, "changed", counted)
    return looks


async def until_known_deaf(journal: Journal) -> None:
    assert isinstance(journal, PostgresJournal)
    with anyio.fail_after(PATIENCE_SECONDS):
        while not journal._listener._is_deaf:
            await anyio.sleep(0.01)


async def test_a_pooler_is_noticed_said_once_and_a_verb_is_heard_by_looking(
    store: PooledStore, looks: list[float], caplog: pytest.LogCaptureFixture
):
    """Also where the pool is idle, so that it gives everybody the same connection to the server."""
    caplog.set_level(logging.WARNING)
    journal = store.open()
    await driven(journal)
    follower = journal.follow("r", after=1)
    other, cancel = await open_journal(store.direct), verb(Verb.CANCEL)

    await until_known_deaf(journal)
    await other.append("r", [cancel], after=1)

    with anyio.fail_after(PATIENCE_SECONDS):
        assert (await anext(follower)).event == cancel
        seen = len(looks)
        while len(looks) < seen + 8:
            await anyio.sleep(0.05)
    assert looks[seen + 7] - looks[seen] >= 6.5 * 0.25, "four times a second, and not all the time"
    assert caplog.text.count("--listen-store") == 1
    await follower.aclose()
    await other.close()


async def test_past_the_pooler_verbs_are_heard_at_once_and_nothing_is_looked_for(
    store: PooledStore, looks: list[float], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING)

    async with await open_journal(store.address, listen=store.direct) as journal:
        delays = await delays_of_following(journal, store.address)

    assert nearly_all(delays) < within(150)
    assert len(looks) <= 2, "when it begins, and not again"
    assert "--listen-store" not in caplog.text


async def test_what_others_hear_by_a_pooled_connection_is_not_kept_for_ever(store: PooledStore):
    """A pooler hands a connection that listens on to whoever comes next: its driver would pile notifications up."""
    journal = store.open()
    assert isinstance(journal, PostgresJournal)
    await driven(journal)
    with store.cluster.connect() as db:
        for number in range(50):
            db.execute("SELECT pg_notify(%s, %s)", (f"checkrein_{store.schema}", f"somebody r{number}"))
            await journal.effects("r")

    assert journal._reader._session is not None
    assert journal._writer._at is not None
    for session in (journal._reader._session, journal._writer._at.session):
        assert not session.connection._notifies_backlog
