"""The folder that holds the files of calls while a runtime lives, and what is left of those that were killed."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from checkrein.runtime import files, table

_PREFIX: Final = "checkrein-calls-"
_NAME: Final = re.compile(re.escape(_PREFIX) + r"(\d+)-(\d+)-\w+")


def make_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for the calls of this process, named so that a later one can tell whether its owner still lives."""
    return tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-{table.birth_of_self():.0f}-")


def sweep() -> None:
    """Remove what killed runtimes of this user have left: scratch folders, and files that were never whole.

    Several may sweep at once, and others end meanwhile: what is gone already is no trouble.
    """
    for folder in _left_behind(Path(tempfile.gettempdir())):
        with suppress(FileNotFoundError):
            for call in folder.iterdir():
                files.discard(call)
            files.discard(folder)


def _left_behind(where: Path) -> Iterator[Path]:
    for entry in os.scandir(where):
        found = _NAME.fullmatch(entry.name)
        if found is None or not entry.is_dir(follow_symlinks=False):
            continue
        with suppress(FileNotFoundError):
            is_ours = entry.stat(follow_symlinks=False).st_uid == os.getuid()
            if is_ours and not _lives(int(found[1]), int(found[2])):
                yield Path(entry.path)


def _lives(pid: int, birth: int) -> bool:
    row = table.row(pid)
    return row is not None and row.lives and round(row.started) == birth
