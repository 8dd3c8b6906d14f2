"""The files of a call: a scratch folder that vanishes, and files that are published only if the call succeeds.

A call has a folder of its own, made when it first asks for it. In it lie the scratch folder and a list of the files
that the call is writing elsewhere, each under a temporary name beside its goal. Both sides use nothing but that folder:
the tool, perhaps in a worker that is about to be killed, and whoever ends the call, perhaps another process after a
crash. Imports little: every worker starts with it.

The folder that holds the files of calls while a runtime lives, and what is left of those that were killed.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from checkrein.processes import table

_LIST: Final = "writes"
_SCRATCH: Final = "scratch"
_SUFFIX: Final = ".checkrein-part"


class CallFiles:
    """The tool's side."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def scratch(self) -> Path:
        """A folder for this call alone. It is removed when the call ends, however it ends."""
        folder = self._folder / _SCRATCH
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextmanager
    def write(self, path: str | os.PathLike[str], mode: str, **options: Any) -> Iterator[IO[Any]]:
        """Write a file that will appear at `path`, whole and durable, if and when the call succeeds.

        Until then `path` is as it was. If the block raises, or the call fails or is stopped, it stays so.
        """
        goal = Path(os.path.realpath(path))
        part = goal.with_name(f".{goal.name}.{secrets.token_hex(6)}{_SUFFIX}")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._note("begun", part, goal)  # before there is anything to clean up
        try:
            with open(part, mode.replace("w", "x"), **options) as file:
                yield file
                file.flush()
                with suppress(FileNotFoundError):
                    shutil.copymode(goal, part)
                os.fsync(file.fileno())
        except BaseException:
            with suppress(FileNotFoundError):
                part.unlink()
            raise
        self._note("whole", part, goal)

    def _note(self, state: str, part: Path, goal: Path) -> None:
        line = json.dumps([state, os.fspath(part), os.fspath(goal)]) + "\n"
        descriptor = os.open(self._folder / _LIST, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def publish(folder: Path) -> tuple[str, ...]:
    """The call has succeeded: move its files to where they belong, in the order they were written, and remove the rest.

    Returns where they are now, each once. Each file appears at once or not at all; several of them appear one after
    the other. Raises `OSError` when a file cannot be moved; those before it have been, the others are dropped.
    """
    published: dict[str, None] = {}
    if not folder.exists():
        return ()
    try:
        for state, part, goal in _listed(folder):
            if state == "whole":
                os.replace(part, goal)
                _sync_folder(goal.parent)
                published[os.fspath(goal)] = None
    finally:
        discard(folder)
    return tuple(published)


LARGEST_KEPT: Final = 2 << 20
"""In bytes: of a larger file no copy is kept."""


def content(path: str) -> bytes | None:
    """What is in a file that was just published; None for one that is too large, or gone already."""
    with suppress(OSError), open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        if os.fstat(file.fileno()).st_size <= LARGEST_KEPT:
            found = file.read(LARGEST_KEPT + 1)
            return found if len(found) <= LARGEST_KEPT else None
    return None


def discard(folder: Path) -> None:
    """The call is over and nothing of it is to remain: remove what it has not published, and its scratch folder.

    May be repeated, and is what a later process does about a call whose runtime died.
    """
    if not folder.exists():
        return
    for _, part, _ in _listed(folder):
        with suppress(FileNotFoundError):
            part.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def _listed(folder: Path) -> list[tuple[str, Path, Path]]:
    try:
        lines = (folder / _LIST).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    # A line without an end was being written when its writer was killed; the file it names was not begun yet.
    found = (json.loads(line) for line in lines if line.endswith(b"\n"))
    return [(state, Path(part), Path(goal)) for state, part, goal in found if part.endswith(_SUFFIX)]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
                discard(call)
            discard(folder)


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
