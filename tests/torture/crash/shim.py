"""The failing disk of `shim.c`, from Python: how it is built, armed, and what its log says."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Final, NamedTuple

SOURCE: Final = Path(__file__).with_name("shim.c")


class Mode(StrEnum):
    """What happens at the crash point; `shim.c` says which calls each of them counts."""

    RECORD = "record"
    RECORD_FILE = "record-file"
    RECORD_FOLDER = "record-folder"
    KILL = "kill"
    TORN = "torn"
    EIO = "eio"
    EIO_EVER = "eio-ever"
    ENOSPC = "enospc"
    ENOSPC_EVER = "enospc-ever"


DEADLY: Final = frozenset({Mode.KILL, Mode.TORN})
"""Modes in which the process does not survive its crash point."""

FAILING: Final = frozenset({Mode.EIO, Mode.EIO_EVER, Mode.ENOSPC, Mode.ENOSPC_EVER})
"""Modes in which it survives, and has to cope."""


class Kind(IntEnum):
    OPEN = 1
    WRITE = 2
    TRUNCATE = 3
    ALLOCATE = 4
    SYNC = 5
    UNLINK = 6
    RENAME = 7
    LINK = 8
    CLOSE = 9


class Op(NamedTuple):
    """One call on a watched file, in the order in which it happened."""

    kind: Kind
    handle: int
    """The open file it was made on; numbers are never used again."""
    offset: int
    """Of a write. Of an open: 1 when it created the file."""
    length: int
    error: int
    path: str
    data: bytes


class Folder(NamedTuple):
    """Where one crash happens: the disk, the client's list of acknowledgements, and the shim's log."""

    root: Path

    @property
    def disk(self) -> Path:
        return self.root / "disk"

    @property
    def database(self) -> Path:
        return self.disk / "runs.db"

    @property
    def witness(self) -> Path:
        return self.root / "witness"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def errors(self) -> Path:
        return self.root / "errors"

    def made(self) -> Folder:
        """Itself, with an empty disk."""
        self.disk.mkdir(parents=True)
        return self


def missing_compiler() -> str | None:
    """Why the shim cannot be built here, or None."""
    return None if shutil.which("gcc") else "gcc is not installed, so the failing disk (shim.c) cannot be built"


def build(into: Path) -> Path:
    """Compile the shim into a folder and return the library."""
    library = into / "shim.so"
    command = ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return library


def arm(folder: Folder, mode: Mode, *, point: int = 0, seed: int = 0) -> None:
    """Let the disk of this process fail from now on. The process must have been started with the shim preloaded."""
    os.environ.update(
        CRASH_MODE=mode,
        CRASH_DISK=str(folder.disk),
        CRASH_WITNESS=str(folder.witness),
        CRASH_LOG=str(folder.log),
        CRASH_POINT=str(point),
        CRASH_SEED=str(seed),
    )
    ctypes.CDLL(None).crash_arm()


_ENTRY: Final = struct.Struct("<IiqqiI")
_WITH_DATA: Final = frozenset({Kind.WRITE, Kind.RENAME, Kind.LINK})


def read_log(path: Path) -> list[Op]:
    """Everything the shim wrote down."""
    return list(_entries(path.read_bytes())) if path.exists() else []


def _entries(log: bytes) -> Iterator[Op]:
    at = 0
    while at < len(log):
        kind, handle, offset, length, error, path_length = _ENTRY.unpack_from(log, at)
        at += _ENTRY.size
        name = log[at : at + path_length].decode()
        at += path_length
        data = log[at : at + length] if kind in _WITH_DATA else b""
        at += len(data)
        yield Op(Kind(kind), handle, offset, length, error, name, data)


def struck(path: Path) -> Op | None:
    """The call at which the disk failed; None when the workload ended before its crash point."""
    return next(iter(read_log(path)), None)
