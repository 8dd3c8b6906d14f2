"""A store beside files of somebody else: nothing is written through a link, and whoever starts a server is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from checkrein.errors import StoreUnavailable
from checkrein.journal import open_journal
from checkrein.journal.sqlite.database import NOT_WRITABLE, shared_folder
from checkrein.journal.sqlite.disk_reserve import SIZE, Reserve
from checkrein.journal.sqlite.write_lock import WriteLock


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    file = tmp_path / "precious"
    file.write_text("mine")
    return file


def test_the_reserve_is_not_written_through_a_link(tmp_path: Path, precious: Path) -> None:
    journal = tmp_path / "runs.db"
    (tmp_path / "runs.db-reserve").symlink_to(precious)

    assert not Reserve(str(journal)).is_at_hand()

    assert precious.read_text() == "mine"
    assert Reserve(str(journal)).is_at_hand(), "the link was taken away, and there is room"
    assert precious.read_text() == "mine"


def test_a_link_to_a_large_file_is_no_reserve(tmp_path: Path, precious: Path) -> None:
    precious.write_bytes(b"x" * SIZE)
    (tmp_path / "runs.db-reserve").symlink_to(precious)

    assert not Reserve(str(tmp_path / "runs.db")).is_at_hand()


def test_the_file_of_flags_is_not_made_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "runs.db-verbs").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic links"):
        WriteLock(str(tmp_path / "runs.db"), 1.0)

    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.anyio
async def test_a_store_with_a_planted_link_is_not_opened_and_says_why(tmp_path: Path, precious: Path) -> None:
    (tmp_path / "runs.db-verbs").symlink_to(precious)

    with pytest.raises(StoreUnavailable, match="symbolic links"):
        await (await open_journal(f"sqlite:///{tmp_path}/runs.db")).__aenter__()

    assert precious.read_text() == "mine"


def test_a_folder_that_others_may_write_is_named_with_its_remedy(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    os.chmod(shared, 0o1777)

    told = shared_folder(shared / "runs.db")

    assert told is not None
    assert f"chmod go-w {shared}" in told
    os.chmod(shared, 0o755)
    assert shared_folder(shared / "runs.db") is None
    assert shared_folder(tmp_path / "not" / "there" / "runs.db") is None


@pytest.mark.anyio
async def test_a_place_that_may_not_be_written_is_named_with_a_remedy() -> None:
    with pytest.raises(StoreUnavailable, match=r"may not be written by you \(.*--store") as refused:
        await open_journal("sqlite:////sys/checkrein/runs.db")

    assert refused.value.code == NOT_WRITABLE


@pytest.mark.anyio
async def test_the_usual_folder_of_a_store_is_kept_out_of_repositories(tmp_path: Path) -> None:
    async with await open_journal(f"sqlite:///{tmp_path}/.checkrein/runs.db"):
        pass
    async with await open_journal(f"sqlite:///{tmp_path}/mine/runs.db"):
        pass

    assert (tmp_path / ".checkrein" / ".gitignore").read_text() == "*\n"
    assert not (tmp_path / "mine" / ".gitignore").exists(), "what somebody else has named is theirs"
