"""Folders for stores whose disk is not what is tested: in memory where possible, since a real fsync only costs time."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def folder_in_memory(prefix: str) -> Iterator[Path]:
    memory = Path("/dev/shm")
    where = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=where)).resolve()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
