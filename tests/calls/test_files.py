"""What a killed runtime leaves in the temporary folder is removed by the next one; what a living one uses is not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkrein.calls import files
from checkrein.calls.files import make_folder, sweep

LEAVES = """
import os, sys
from pathlib import Path
from checkrein.calls.files import CallFiles
from checkrein.calls.files import make_folder
folder = make_folder()
call = CallFiles(Path(folder.name) / "c1")
(call.scratch() / "note").write_text("half")
block = call.write(sys.argv[1], "w")
block.__enter__().write("half")
os.kill(os.getpid(), 9)
"""


def test_what_a_killed_runtime_left_is_removed_and_what_a_living_one_uses_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D4 D5"""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    goal = tmp_path / "goals" / "memo.txt"
    goal.parent.mkdir()
    subprocess.run([sys.executable, "-c", LEAVES, str(goal)], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert len(list(tmp_path.glob("checkrein-calls-*"))) == 1
    assert len(os.listdir(goal.parent)) == 1, "a file that was never whole"
    mine = make_folder()

    sweep()

    assert [str(one) for one in tmp_path.glob("checkrein-calls-*")] == [mine.name]
    assert os.listdir(goal.parent) == []
    mine.cleanup()


def test_what_vanishes_while_it_is_swept_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several runtimes begin and end at once."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scandir = os.scandir

    def seen_too_late(where: Path) -> Iterator[os.DirEntry[str]]:
        entries = list(scandir(where))
        for entry in entries[:1]:
            os.rmdir(entry.path)
        return iter(entries)

    def lives_no_more(pid: int, birth: int) -> bool:
        for entry in tmp_path.iterdir():
            entry.rmdir()
        return False

    for name in ("checkrein-calls-1-1-a", "checkrein-calls-1-1-b"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(os, "scandir", seen_too_late)
    monkeypatch.setattr(files, "_lives", lives_no_more)

    sweep()

    assert not list(scandir(tmp_path))
