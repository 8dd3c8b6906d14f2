"""The server's own token: given, or made and kept where nobody else can read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from checkrein.errors import WrongInput
from checkrein.server.auth.server_token import server_token


def test_it_is_made_once_and_kept_in_a_file_for_its_owner_only(folder: Path) -> None:
    before = os.umask(0)
    try:
        first, second = server_token(folder, {}), server_token(folder, {})
    finally:
        os.umask(before)

    assert first == second
    assert first.startswith("ckr_")
    assert stat.S_IMODE((folder / "server-token").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(path.name for path in folder.iterdir()) == ["server-token"]


def test_one_that_is_given_is_used_and_not_kept(folder: Path) -> None:
    given = "g" * 40

    assert server_token(folder, {"CHECKREIN_TOKEN": given}) == given
    assert not folder.exists()


@pytest.mark.parametrize(
    "weak", ["hunter2", "x" * 31, "correct horse battery staple and more words", "ü" * 40, "a" * 40 + "\n"]
)
def test_one_that_could_be_guessed_or_not_be_sent_is_refused(folder: Path, weak: str) -> None:
    with pytest.raises(WrongInput, match="32 or more characters") as refused:
        server_token(folder, {"CHECKREIN_TOKEN": weak})

    assert refused.value.code == "weak_token"
    assert weak not in refused.value.message


@pytest.mark.parametrize("wrong", [0o640, 0o604, 0o644, 0o620, 0o666])
def test_a_file_that_others_may_read_or_write_is_refused_with_the_remedy(folder: Path, wrong: int) -> None:
    token = server_token(folder, {})
    (folder / "server-token").chmod(wrong)

    with pytest.raises(WrongInput, match=r"open to other users \(mode 0\d+\).*`chmod 600 .*remove it") as refused:
        server_token(folder, {})

    assert token not in refused.value.message


def test_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    server_token(folder, {})
    (folder / "server-token").rename(tmp_path / "elsewhere")
    (folder / "server-token").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(WrongInput) as refused:
        server_token(folder, {})

    assert refused.value.code == "not_private"


def test_an_empty_file_is_refused(folder: Path) -> None:
    server_token(folder, {})
    (folder / "server-token").write_text("\n")

    with pytest.raises(WrongInput, match="server-token"):
        server_token(folder, {})
