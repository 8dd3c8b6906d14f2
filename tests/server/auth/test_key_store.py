"""Keys wherever they are kept: one suite over the file beside a store and the tables in one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from checkrein.errors import StoreForbidden
from checkrein.journal.postgres import PostgresJournal, schema
from checkrein.server.auth import postgres_keys
from checkrein.server.auth.key_store import FileKeyStore, KeyStore, key_store
from checkrein.server.auth.postgres_keys import PostgresKeyStore
from checkrein.server.auth.principals import Role
from checkrein.server.auth.token_store import CODE_SECONDS, OPERATOR, SESSION_SECONDS, USED_SECONDS, Keys
from tests.server.auth.conftest import SERVER_TOKEN, Clock
from tests.support.patience import PATIENCE_SECONDS
from tests.support.postgres import Cluster

pytestmark = pytest.mark.anyio


class Stores:
    """The same keys, as several servers have them open."""

    def __init__(self, kind: str, folder: Path, cluster: Cluster, clock: Clock) -> None:
        self._kind = kind
        self._folder = folder
        self._clock = clock
        self._stack = AsyncExitStack()
        self.schema = cluster.new_schema()
        self.address = cluster.address(self.schema)
        self._cluster = cluster

    async def open(self) -> KeyStore:
        if self._kind == "file":
            keys = Keys(self._folder, now=self._clock)
            self._stack.callback(keys.close)
            opened: KeyStore = FileKeyStore(keys)
        else:
            opened = await self.open_as(self.address)
        opened.trust(SERVER_TOKEN, OPERATOR)
        return opened

    async def open_as(self, address: str) -> KeyStore:
        journal = await self.journal(address)
        return key_store(address, lambda: journal)

    async def journal(self, address: str = "") -> PostgresJournal:
        journal = await asyncio.to_thread(PostgresJournal, address or self.address, clock=self._clock)
        return await self._stack.enter_async_context(journal)

    async def close(self) -> None:
        await self._stack.aclose()
        self._cluster.drop(self.schema)


@pytest.fixture(params=["file", "postgres"])
async def stores(
    request: pytest.FixtureRequest, folder: Path, postgres: Cluster, clock: Clock
) -> AsyncIterator[Stores]:
    made = Stores(request.param, folder, postgres, clock)
    yield made
    await made.close()


@pytest.fixture
async def in_postgres(folder: Path, postgres: Cluster, clock: Clock) -> AsyncIterator[Stores]:
    made = Stores("postgres", folder, postgres, clock)
    yield made
    await made.close()


async def test_a_token_lets_in_whom_it_was_made_for_at_every_server(stores: Stores, clock: Clock) -> None:
    here, there = await stores.open(), await stores.open()

    token, secret = await here.create(
        role=Role.CONTROLLER,
        owner="ann\0 ü",
        name="laptop",
        run="r-1",
        origins=("https://a.example",),
        expires_at=clock() + 9,
        created_by="bob",
    )
    found = await there.find(secret)

    assert found is not None
    assert (found.name, found.role, found.owner, found.run) == ("laptop", Role.CONTROLLER, "ann\0 ü", "r-1")
    assert (found.origins, found.expires_at) == (("https://a.example",), clock() + 9)
    (listed,) = await there.tokens()
    assert (listed.id, listed.created_by, listed.revoked_at) == (token.id, "bob", None)
    assert await there.find_session(secret) is None
    assert await there.find(secret + "x") is None
    assert await there.find("somebody-else's-token-of-some-other-kind") is None


async def test_what_is_revoked_at_one_server_is_revoked_at_all_of_them_at_once(stores: Stores) -> None:
    """P7"""
    here, there = await stores.open(), await stores.open()
    token, secret = await here.create(role=Role.VIEWER, owner="ann")
    found = await there.find(secret)
    assert found is not None
    assert await there.valid({found.key}) == {found.key}

    revoked = await here.revoke(token.id)

    assert revoked is not None
    assert revoked.revoked_at is not None
    assert await here.find(secret) is None
    await until_says(None, lambda: there.find(secret))
    assert await there.valid({found.key}) == frozenset()
    assert await here.revoke("t-nobody") is None
    assert await here.revoke("t-\0") is None


async def test_a_code_of_one_server_opens_one_session_at_another(stores: Stores, clock: Clock) -> None:
    here, there = await stores.open(), await stores.open()
    code = await here.new_code(SERVER_TOKEN)

    got = [one for one in await asyncio.gather(*(keys.redeem(code) for keys in (here, there) * 4)) if one is not None]

    assert len(got) == 1
    session, ends = got[0]
    assert ends == clock() + SESSION_SECONDS
    for keys in (here, there):
        found = await keys.find_session(session)
        assert found is not None
        assert (found.name, found.expires_at) == ("operator", ends)
        assert await keys.find(session) is None
    assert await here.redeem(code) is None
    assert await here.redeem("ckc_nobody's") is None


async def test_a_code_that_is_too_old_opens_nothing(stores: Stores, clock: Clock) -> None:
    keys = await stores.open()
    code = await keys.new_code(SERVER_TOKEN)

    clock.pass_seconds(CODE_SECONDS)

    assert await keys.redeem(code) is None


async def test_a_session_that_is_ended_at_one_server_is_over_at_all_of_them(stores: Stores) -> None:
    here, there = await stores.open(), await stores.open()
    session, _ = await here.begin_session(SERVER_TOKEN) or ("", 0)
    assert await there.find_session(session) is not None

    await here.end_session(session)

    assert await here.find_session(session) is None
    await until_says(None, lambda: there.find_session(session))


async def test_a_session_ends_with_the_token_that_it_was_opened_with(stores: Stores, clock: Clock) -> None:
    here, there = await stores.open(), await stores.open()
    token, secret = await here.create(role=Role.VIEWER, owner="ann", expires_at=clock() + 60)
    session, ends = await there.begin_session(secret) or ("", 0)
    assert ends == clock() + 60
    assert await here.find_session(session) is not None

    clock.pass_seconds(60)
    assert await here.find_session(session) is None, "it has expired"
    clock.pass_seconds(-60)
    await here.revoke(token.id)

    assert await here.find_session(session) is None
    await until_says(None, lambda: there.find_session(session))
    assert await there.begin_session(secret) is None


async def test_a_token_that_was_given_out_ends_with_the_one_of_whoever_gave_it(stores: Stores) -> None:
    here, there = await stores.open(), await stores.open()
    parent, secret = await here.create(role=Role.CONTROLLER, owner="ann")
    session, _ = await here.begin_session(secret) or ("", 0)
    giver, operator = await here.find_session(session), await here.find(SERVER_TOKEN)
    assert giver is not None
    assert operator is not None
    _, child = await here.create(role=Role.VIEWER, owner="ann", run="r-1", parent=giver.key)
    _, of_operator = await here.create(role=Role.VIEWER, owner="ann", run="r-1", parent=operator.key)
    assert await there.find(child) is not None
    assert await there.find(of_operator) is not None

    await here.revoke(parent.id)

    await until_says(None, lambda: there.find(child))
    assert await there.find(of_operator) is not None
    there.trust("another-token-of-the-server-" + "y" * 30, OPERATOR)
    assert await there.find(of_operator) is None


async def test_tokens_for_one_run_or_for_other_pages_open_no_session(stores: Stores) -> None:
    keys = await stores.open()
    _, for_run = await keys.create(role=Role.VIEWER, owner="ann", run="r-1")
    _, for_pages = await keys.create(role=Role.VIEWER, owner="ann", origins=("https://a.example",))

    for secret in (for_run, for_pages, "ckr_nobody's"):
        assert await keys.begin_session(secret) is None
        assert await keys.redeem(await keys.new_code(secret)) is None


async def test_pages_of_an_origin_that_a_token_names_are_known_and_no_others(stores: Stores, clock: Clock) -> None:
    here, there = await stores.open(), await stores.open()
    assert not await there.allows_origin("https://a.example")

    token, _ = await here.create(role=Role.VIEWER, run="r-1", origins=("https://a.example", "https://b.example"))

    assert await there.allows_origin("https://a.example")
    assert await there.allows_origin("https://b.example")
    assert not await there.allows_origin("https://c.example")
    await here.revoke(token.id)
    await until_says(False, lambda: there.allows_origin("https://a.example"))


async def test_when_a_token_was_last_used_is_noted_now_and_then(stores: Stores, clock: Clock) -> None:
    keys = await stores.open()
    _, secret = await keys.create(role=Role.VIEWER, owner="ann")

    async def used_at() -> float | None:
        return (await keys.tokens())[0].used_at

    for expected in (clock(), clock() + USED_SECONDS):
        clock.time = expected
        await keys.find(secret)
        await until_says(expected, used_at)
        clock.pass_seconds(USED_SECONDS / 2)
        await keys.find(secret)


async def test_many_keys_are_asked_about_in_one_question(in_postgres: Stores) -> None:
    """W14"""
    keys, journal = await in_postgres.open(), await in_postgres.journal()
    made = [(await keys.create(role=Role.VIEWER, owner="ann"))[1] for _ in range(50)]
    asked: list[Any] = []
    fresh = PostgresKeyStore(lambda: journal)
    ask = journal.ask

    def counted(question: Any) -> Any:
        asked.append(question)
        return ask(question)

    journal.ask = counted  # type: ignore[method-assign]
    found = {principal.key for secret in made if (principal := await keys.find(secret)) is not None}

    assert await fresh.valid({*found, "00" * 32}) == found
    assert len(asked) == 1
    assert await fresh.valid(found) == found
    assert len(asked) == 1, "what was found is remembered"


async def test_what_was_found_is_remembered_for_some_seconds_only(
    in_postgres: Stores, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who writes the tables by hand tells nobody."""
    monkeypatch.setattr(postgres_keys, "REMEMBER_SECONDS", 0.5)
    keys = await in_postgres.open()
    _, secret = await keys.create(role=Role.VIEWER, owner="ann")
    assert await keys.find(secret) is not None

    with postgres.connect() as db:
        db.execute(f"UPDATE {in_postgres.schema}.tokens SET revoked_at = 1".encode())

    await until_says(None, lambda: keys.find(secret))


async def test_a_server_whose_connection_was_cut_looks_at_its_keys_anew(in_postgres: Stores, postgres: Cluster) -> None:
    """What was revoked meanwhile, nobody told it."""
    keys = await in_postgres.open()
    _, secret = await keys.create(role=Role.VIEWER, owner="ann")
    assert await keys.find(secret) is not None

    with postgres.connect() as db:
        db.execute(f"UPDATE {in_postgres.schema}.tokens SET revoked_at = 1".encode())
    postgres.terminate_backends()

    await until_says(None, lambda: keys.find(secret))


async def test_the_servers_own_token_is_known_while_the_store_is_away(in_postgres: Stores) -> None:
    """P6"""
    keys = await in_postgres.open()
    journal = keys._journal  # type: ignore[attr-defined]
    await journal.close()

    assert await keys.find(SERVER_TOKEN) is not None


async def test_only_hashes_are_kept(in_postgres: Stores, postgres: Cluster) -> None:
    keys = await in_postgres.open()
    _, secret = await keys.create(role=Role.VIEWER, owner="ann")
    code = await keys.new_code(secret)
    session, _ = await keys.begin_session(secret) or ("", 0)

    with postgres.connect() as db:
        rows = [
            db.execute(f"SELECT * FROM {in_postgres.schema}.{table}".encode()).fetchall()
            for table in ("tokens", "sessions", "codes")
        ]

    assert all(rows)
    for one in (secret, code, session, SERVER_TOKEN):
        assert one not in str(rows)


async def test_a_front_keeps_keys_and_a_worker_may_not_even_see_them(in_postgres: Stores, postgres: Cluster) -> None:
    schema.init(in_postgres.address)
    schema.make_roles(in_postgres.address)
    address = {
        role: postgres.address(in_postgres.schema, postgres.login(in_postgres.schema, role))
        for role in ("front", "worker", "operator")
    }
    front = await in_postgres.open_as(address["front"])
    token, secret = await front.create(role=Role.VIEWER, owner="ann")
    session, _ = await front.begin_session(secret) or ("", 0)
    assert await front.find_session(session) is not None
    await front.end_session(session)
    assert await front.redeem(await front.new_code(secret)) is not None
    assert await front.revoke(token.id) is not None

    for role in ("worker", "operator"):
        other = await in_postgres.open_as(address[role])
        for asked in (other.tokens(), other.find(secret), other.create(role=Role.OPERATOR)):
            with pytest.raises(StoreForbidden, match=f"does not let this user .*GRANT {in_postgres.schema}_front"):
                await asked


async def until_says(expected: Any, ask: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await ask() != expected:
            await asyncio.sleep(0.01)
