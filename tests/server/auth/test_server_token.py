"""The server's own token: given, or made and kept where nobody else can read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from checkrein.errors import WrongInput
from checkrein.server.auth.halt_token import halt_token
from checkrein.server.auth.token_store import VARIABLE, server_token
from checkrein.server.processes.front import ServerAccess

SERVERS_OWN = "ckr_" + "s" * 40


@pytest.fixture
def store(folder: Path) -> str:
    return f"sqlite:///{str(folder).removesuffix('.access')}"


def test_it_is_made_once_and_kept_in_a_file_for_its_owner_only(store: str, folder: Path) -> None:
    before = os.umask(0)
    try:
        first, second = server_token(store, None, {}), server_token(store, None, {})
    finally:
        os.umask(before)

    assert first == second
    assert first.startswith("ckr_")
    assert stat.S_IMODE((folder / "server-token").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(path.name for path in folder.iterdir()) == ["server-token"]


def test_one_that_is_given_is_used_and_not_kept(store: str, folder: Path) -> None:
    given = "g" * 40

    assert server_token(store, None, {"CHECKREIN_TOKEN": given}) == given
    assert not folder.exists()


@pytest.mark.parametrize(
    "weak", ["hunter2", "x" * 31, "correct horse battery staple and more words", "ü" * 40, "a" * 40 + "\n"]
)
def test_one_that_could_be_guessed_or_not_be_sent_is_refused(store: str, folder: Path, weak: str) -> None:
    with pytest.raises(WrongInput, match="32 or more characters") as refused:
        server_token(store, None, {"CHECKREIN_TOKEN": weak})

    assert refused.value.code == "weak_token"
    assert weak not in refused.value.message


@pytest.mark.parametrize("wrong", [0o640, 0o604, 0o644, 0o620, 0o666])
def test_a_file_that_others_may_read_or_write_is_refused_with_the_remedy(store: str, folder: Path, wrong: int) -> None:
    token = server_token(store, None, {})
    (folder / "server-token").chmod(wrong)

    with pytest.raises(WrongInput, match=r"open to other users \(mode 0\d+\).*`chmod 600 .*remove it") as refused:
        server_token(store, None, {})

    assert token not in refused.value.message


def test_a_link_is_not_followed(store: str, folder: Path, tmp_path: Path) -> None:
    server_token(store, None, {})
    (folder / "server-token").rename(tmp_path / "elsewhere")
    (folder / "server-token").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(WrongInput) as refused:
        server_token(store, None, {})

    assert refused.value.code == "not_private"


def test_an_empty_file_is_refused(store: str, folder: Path) -> None:
    server_token(store, None, {})
    (folder / "server-token").write_text("\n")

    with pytest.raises(WrongInput, match="server-token"):
        server_token(store, None, {})


def test_a_store_that_may_not_be_written_is_said_in_a_sentence_with_a_remedy() -> None:
    with pytest.raises(WrongInput, match=r"may not be written by you \(.*--store") as refused:
        ServerAccess("sqlite:////sys/checkrein/runs.db", "127.0.0.1")

    assert refused.value.code == "store_not_writable"


def test_keys_that_are_made_before_the_store_are_kept_out_of_repositories_too(tmp_path: Path) -> None:
    ServerAccess(f"sqlite:///{tmp_path}/.checkrein/runs.db", "127.0.0.1")

    assert (tmp_path / ".checkrein" / ".gitignore").read_text() == "*\n"


def test_whoever_starts_a_server_is_told_of_a_weak_place_and_of_a_token_that_nobody_knows_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    assert ServerAccess(store, "127.0.0.1").warnings == []

    tmp_path.chmod(0o777)
    monkeypatch.setenv(VARIABLE, "q7Jb2dX0mPzKc5vR9tLw3nYh8sGf1aEu6iOo4kBxZyD")

    folder, token = ServerAccess(store, "127.0.0.1").warnings
    assert f"chmod go-w {tmp_path}" in folder
    assert "does not begin with ckr_" in token


# -- a store that several servers share


@pytest.mark.parametrize("store", ["postgresql://me:hunter2@db.example/runs", "postgres://db.example/runs"])
def test_servers_over_a_store_that_is_not_a_file_need_a_token_that_all_of_them_are_given(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W13: one that a server makes for itself is unknown to the next."""
    monkeypatch.delenv(VARIABLE, raising=False)

    with pytest.raises(WrongInput, match=r"set CHECKREIN_TOKEN, or name its file with --token-file") as refused:
        ServerAccess(store, "127.0.0.1")

    assert refused.value.code == "token_missing"
    assert "hunter2" not in refused.value.message
    assert server_token(store, None, {VARIABLE: "g" * 40}) == "g" * 40


def test_a_token_may_be_in_a_file_as_secrets_are_mounted(store: str, folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text(f"{'f' * 40}\n")
    kept.chmod(0o440)
    given = tmp_path / "given"
    given.symlink_to(kept)

    assert server_token(store, given, {VARIABLE: "g" * 40}) == "f" * 40
    assert server_token("postgresql://db.example/runs", given, {}) == "f" * 40
    assert not folder.exists()


@pytest.mark.parametrize(
    ("mode", "text", "code"),
    [(0o444, "f" * 40, "not_private"), (0o602, "f" * 40, "not_private"), (0o600, "short", "weak_token")],
)
def test_a_file_that_everybody_reads_or_that_holds_no_token_is_refused(
    store: str, tmp_path: Path, mode: int, text: str, code: str
) -> None:
    given = tmp_path / "given"
    given.write_text(text)
    given.chmod(mode)

    with pytest.raises(WrongInput) as refused:
        server_token(store, given, {})

    assert refused.value.code == code
    assert text not in refused.value.message


@pytest.mark.parametrize("there", ["nothing", "a folder", "bytes"])
def test_a_file_of_a_token_that_cannot_be_read_is_said(store: str, tmp_path: Path, there: str) -> None:
    given = tmp_path / "given"
    if there == "a folder":
        given.mkdir()
    elif there == "bytes":
        given.write_bytes(b"\xff" * 40)
        given.chmod(0o600)

    with pytest.raises(WrongInput, match=r"The token cannot be read from .*given") as refused:
        server_token(store, given, {})

    assert refused.value.code == "token_missing"


@pytest.mark.parametrize(
    "weak", ["hunter2", "g" * 40, "ckr_short", "ckr_" + "ü" * 40, SERVERS_OWN, "ckr_" + "a" * 40 + "\n"]
)
def test_a_halt_token_that_would_protect_nothing_is_refused(weak: str) -> None:
    """Guessed, not known for a secret by its prefix, or the same that operators halt with."""
    with pytest.raises(WrongInput, match="CHECKREIN_HALT_TOKEN") as refused:
        halt_token(SERVERS_OWN, {"CHECKREIN_HALT_TOKEN": weak})

    assert refused.value.code == "weak_token"
    assert weak not in refused.value.message
    assert (halt_token(SERVERS_OWN, {}), halt_token("", {"CHECKREIN_HALT_TOKEN": SERVERS_OWN})) == ("", SERVERS_OWN)
