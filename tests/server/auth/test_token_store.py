"""Tokens, sessions and codes: kept as hashes, ended at once, good for what they were made for."""

from __future__ import annotations

import hmac
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from checkrein.errors import StoreNotOurs, StoreUnavailable, WrongInput
from checkrein.server.auth import token_store as keys_module
from checkrein.server.auth.principals import Principal, Role
from checkrein.server.auth.token_store import (
    CODE_SECONDS,
    KEEP_SECONDS,
    SESSION_SECONDS,
    USED_SECONDS,
    Keys,
    access_folder,
    is_equal,
)
from tests.server.auth.conftest import SERVER_TOKEN, Clock
from tests.support.patience import within


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(os.stat(path).st_mode):04o}"


# -- tokens


def test_a_token_lets_in_whom_it_was_made_for(keys: Keys, clock: Clock) -> None:
    token, secret = keys.create(
        role=Role.CONTROLLER,
        owner="ann",
        name="laptop",
        run="r-1",
        origins=("https://a.example",),
        expires_at=clock() + 9,
    )

    found = keys.find(secret)

    assert found is not None
    assert (found.name, found.role, found.owner, found.run) == ("laptop", Role.CONTROLLER, "ann", "r-1")
    assert (found.origins, found.expires_at) == (("https://a.example",), clock() + 9)
    assert token.id.startswith("t-")


def test_a_token_has_256_bits_and_says_what_it_is(keys: Keys) -> None:
    secrets = {keys.create(role=Role.VIEWER, owner="ann")[1] for _ in range(50)}

    assert len(secrets) == 50
    assert all(secret.startswith("ckr_") and len(secret) == 4 + 43 for secret in secrets)


def test_no_secret_is_in_the_file(keys: Keys, folder: Path) -> None:
    secrets = [keys.create(role=Role.OPERATOR)[1]]
    secrets.append(keys.new_code(secrets[0]))
    begun = keys.begin_session(secrets[0])
    assert begun is not None
    secrets.append(begun[0])

    kept = b"".join(path.read_bytes() for path in folder.iterdir())

    assert len(kept) > 1000
    for secret in secrets:
        assert secret.encode() not in kept
        assert secret[8:30].encode() not in kept


def test_a_wrong_token_lets_nobody_in(keys: Keys) -> None:
    _, secret = keys.create(role=Role.OPERATOR)

    for wrong in ("", "ckr_", secret[:-1], secret + "A", secret.upper(), "ckr_\udcff", "ckr_' OR 1=1 --"):
        assert keys.find(wrong) is None


def test_an_expired_token_lets_nobody_in(keys: Keys, clock: Clock) -> None:
    _, secret = keys.create(role=Role.OPERATOR, expires_at=clock() + 60)
    found = keys.find(secret)
    assert found is not None

    clock.pass_seconds(60)

    assert keys.find(secret) is None
    assert not keys.is_valid(found.key)


def test_what_another_process_revokes_is_revoked_at_once(keys: Keys, folder: Path) -> None:
    token, secret = keys.create(role=Role.CONTROLLER, owner="ann")
    begun = keys.begin_session(secret)
    assert begun is not None
    one, other = keys.find(secret), keys.find_session(begun[0])
    assert one is not None
    assert other is not None

    program = (
        "import sys, pathlib; from checkrein.server.auth.token_store import Keys;"
        "print(Keys(pathlib.Path(sys.argv[1])).revoke(sys.argv[2]).id)"
    )
    done = subprocess.run([sys.executable, "-c", program, folder, token.id], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == token.id
    assert keys.find(secret) is None
    assert keys.find_session(begun[0]) is None, "its session ended with it"
    assert not keys.is_valid(one.key)
    assert not keys.is_valid(other.key)


def test_revoking_what_there_is_not_says_so(keys: Keys) -> None:
    assert keys.revoke("t-nothing") is None


def test_last_used_is_coarse(keys: Keys, clock: Clock) -> None:
    _, secret = keys.create(role=Role.VIEWER, owner="ann")
    assert keys.tokens()[0].used_at is None
    first = clock()
    keys.find(secret)
    clock.pass_seconds(USED_SECONDS - 1)
    keys.find(secret)
    assert keys.tokens()[0].used_at == first

    clock.pass_seconds(1)
    keys.find(secret)

    assert keys.tokens()[0].used_at == clock()


def test_a_token_is_looked_up_while_another_process_writes(keys: Keys, folder: Path) -> None:
    """A look-up waits for no writer, and noting the use gives way."""
    _, secret = keys.create(role=Role.VIEWER, owner="ann")
    writer = sqlite3.connect(folder / "keys.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")

    found: list[Principal | None] = []
    looking = threading.Thread(target=lambda: found.append(keys.find(secret)))
    looking.start()
    looking.join(timeout=within(3))

    assert found, "it waited for the writer"
    assert found[0] is not None
    assert keys.tokens()[0].used_at is None
    writer.close()


def test_tokens_that_ended_long_ago_are_forgotten(keys: Keys, clock: Clock) -> None:
    keys.create(role=Role.VIEWER, owner="a", expires_at=clock() + 1)
    keys.revoke(keys.create(role=Role.VIEWER, owner="b")[0].id)
    keys.create(role=Role.VIEWER, owner="c")

    clock.pass_seconds(KEEP_SECONDS + 2)
    keys.create(role=Role.VIEWER, owner="d")

    assert sorted(token.owner for token in keys.tokens()) == ["c", "d"]


# -- the server's own


def test_the_servers_own_token_needs_no_file(keys: Keys) -> None:
    """D16: with a broken disk whoever started the server can still stop what it runs."""
    _, secret = keys.create(role=Role.OPERATOR)
    keys.close()

    found = keys.find(SERVER_TOKEN)

    assert found is not None
    assert found.role is Role.OPERATOR
    assert keys.is_valid(found.key)
    with pytest.raises(StoreUnavailable):
        keys.find(secret)


def test_its_sessions_outlive_a_restart_and_end_with_the_token(keys: Keys, folder: Path, clock: Clock) -> None:
    begun = keys.begin_session(SERVER_TOKEN)
    assert begun is not None
    keys.close()
    principal = Principal(name="operator", role=Role.OPERATOR)

    again, other = Keys(folder, now=clock), Keys(folder, now=clock)
    again.trust(SERVER_TOKEN, principal)
    other.trust("another token that is long enough", principal)

    assert again.find_session(begun[0]) is not None
    assert other.find_session(begun[0]) is None
    again.close()
    other.close()


# -- sessions and codes


def test_a_session_ends_by_itself_and_never_outlives_its_token(keys: Keys, clock: Clock) -> None:
    long, short = keys.create(role=Role.OPERATOR)[1], keys.create(role=Role.OPERATOR, expires_at=clock() + 60)[1]

    one, other = keys.begin_session(long), keys.begin_session(short)

    assert one is not None
    assert other is not None
    assert one[1] == clock() + SESSION_SECONDS
    assert other[1] == clock() + 60
    clock.pass_seconds(60)
    assert keys.find_session(one[0]) is not None
    assert keys.find_session(other[0]) is None
    clock.pass_seconds(SESSION_SECONDS)
    assert keys.find_session(one[0]) is None


def test_a_session_is_no_token_and_a_token_no_session(keys: Keys) -> None:
    secret = keys.create(role=Role.OPERATOR)[1]
    begun = keys.begin_session(secret)
    assert begun is not None

    assert keys.find(begun[0]) is None
    assert keys.find_session(secret) is None
    assert keys.begin_session(begun[0]) is None, "a session cannot renew itself"
    assert keys.redeem(keys.new_code(begun[0])) is None


def test_a_session_that_was_ended_is_over(keys: Keys) -> None:
    one, other = keys.begin_session(SERVER_TOKEN), keys.begin_session(SERVER_TOKEN)
    assert one is not None
    assert other is not None

    keys.end_session(one[0])

    assert keys.find_session(one[0]) is None
    assert keys.find_session(other[0]) is not None


def test_a_code_is_good_once(keys: Keys) -> None:
    code = keys.new_code(SERVER_TOKEN)

    first, second = keys.redeem(code), keys.redeem(code)

    assert first is not None
    assert second is None
    assert keys.find(code) is None
    assert keys.find_session(code) is None


def test_of_many_who_redeem_one_code_at_the_same_time_one_gets_in(keys: Keys, folder: Path, clock: Clock) -> None:
    opened = [Keys(folder, now=clock) for _ in range(8)]
    for one in opened:
        one.trust(SERVER_TOKEN, Principal(name="operator", role=Role.OPERATOR))
    for _ in range(5):
        code = keys.new_code(SERVER_TOKEN)
        got: list[Any] = []
        ready = threading.Barrier(len(opened))

        def redeem(one: Keys, code: str = code, got: list[Any] = got, ready: threading.Barrier = ready) -> None:
            ready.wait()
            got.append(one.redeem(code))

        racers = [threading.Thread(target=redeem, args=(one,)) for one in opened]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()

        assert len(got) == len(opened)
        assert sum(session is not None for session in got) == 1
    for one in opened:
        one.close()


def test_a_code_is_short_lived_and_ends_with_its_token(keys: Keys, clock: Clock) -> None:
    token, secret = keys.create(role=Role.OPERATOR)
    late, early = keys.new_code(secret), keys.new_code(secret)

    keys.revoke(token.id)
    assert keys.redeem(early) is None
    late = keys.new_code(SERVER_TOKEN)
    clock.pass_seconds(CODE_SECONDS)

    assert keys.redeem(late) is None


def test_secrets_are_compared_in_constant_time(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way in goes through the one comparison that does not tell where two differ."""
    _, secret = keys.create(role=Role.OPERATOR)
    begun, code = keys.begin_session(secret), keys.new_code(secret)
    assert begun is not None
    monkeypatch.setattr(keys_module, "is_equal", lambda one, other: False)

    assert keys.find(secret) is None
    assert keys.find(SERVER_TOKEN) is None
    assert keys.find_session(begun[0]) is None
    assert keys.redeem(code) is None


def test_the_comparison_is_that_of_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        asked.append((one, other))
        return True

    monkeypatch.setattr(hmac, "compare_digest", compare)

    assert is_equal(b"one", b"other")
    assert asked == [(b"one", b"other")]


# -- origins


def test_an_origin_is_known_by_good_tokens_that_name_it(keys: Keys, clock: Clock) -> None:
    token, _ = keys.create(role=Role.VIEWER, run="r-1", origins=("https://a.example",), expires_at=clock() + 60)

    assert keys.allows_origin("https://a.example")
    assert not keys.allows_origin("https://a.example.com")
    assert not keys.allows_origin("http://a.example")
    keys.revoke(token.id)
    assert not keys.allows_origin("https://a.example")


# -- the file


def test_the_folder_and_the_files_are_for_their_owner_only(folder: Path) -> None:
    before = os.umask(0)
    try:
        opened = Keys(folder)
        opened.create(role=Role.OPERATOR)
    finally:
        os.umask(before)

    assert mode(folder) == "0700"
    assert {path.name: mode(path) for path in folder.iterdir()} == {
        "keys.db": "0600",
        "keys.db-wal": "0600",
        "keys.db-shm": "0600",
    }
    opened.close()


@pytest.mark.parametrize("wrong", [0o750, 0o755, 0o777, 0o711])
def test_a_folder_that_is_open_to_others_is_refused_with_the_remedy(folder: Path, wrong: int) -> None:
    folder.mkdir()
    folder.chmod(wrong)

    with pytest.raises(WrongInput, match=r"open to other users .*chmod 700 ") as refused:
        Keys(folder)

    assert refused.value.code == "not_private"


@pytest.mark.parametrize("wrong", [0o640, 0o604, 0o660, 0o666])
def test_a_file_that_is_open_to_others_is_refused_with_the_remedy(folder: Path, wrong: int) -> None:
    Keys(folder).close()
    (folder / "keys.db").chmod(wrong)

    with pytest.raises(WrongInput, match=r"open to other users .*chmod 600 "):
        Keys(folder)


def test_a_link_in_place_of_the_file_or_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    Keys(tmp_path / "other").close()
    folder.mkdir(mode=0o700)
    (folder / "keys.db").symlink_to(tmp_path / "other" / "keys.db")
    (tmp_path / "linked").symlink_to(tmp_path / "other")

    for wrong in (folder, tmp_path / "linked"):
        with pytest.raises(WrongInput, match=r"is not a "):
            Keys(wrong)


def test_somebody_elses_database_is_left_as_it_is(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    with sqlite3.connect(folder / "keys.db") as other:
        other.execute("CREATE TABLE recipes (name)")
    other.close()
    (folder / "keys.db").chmod(0o600)

    with pytest.raises(StoreNotOurs):
        Keys(folder)


def test_keys_lie_beside_the_journal() -> None:
    assert access_folder("sqlite:///.checkrein/runs.db") == Path(".checkrein/runs.db.access")
    assert access_folder("sqlite:////var/lib/runs.db") == Path("/var/lib/runs.db.access")
    assert access_folder("memory:") == Path(".checkrein/access")


def test_without_a_folder_keys_live_in_memory(clock: Clock) -> None:
    opened = Keys(now=clock)
    token, secret = opened.create(role=Role.VIEWER, run="r-1", owner="ann")

    assert opened.find(secret) is not None
    opened.revoke(token.id)
    assert opened.find(secret) is None
    opened.close()


def test_keys_that_were_written_before_tokens_had_parents_are_still_good(folder: Path, keys: Keys) -> None:
    secret = keys.create(role=Role.VIEWER, owner="ann")[1]
    keys.close()
    with closing(sqlite3.connect(folder / "keys.db")) as db:
        db.execute("ALTER TABLE tokens DROP COLUMN parent")
        db.commit()

    with closing(Keys(folder)) as again:
        found = again.find(secret)

        assert found is not None
        assert found.owner == "ann"
        assert again.create(role=Role.VIEWER, run="r-1", parent=found.key)[0].run == "r-1"
