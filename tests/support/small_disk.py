"""A small disk in memory, which can be filled to the last byte: for tables of a PostgreSQL server, or for all of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path]:
    """Where it is mounted. Whoever may not mount one skips the test."""
    # Not below pytest's own folder: whoever the server runs as has to come through.
    folder = tempfile.mkdtemp(prefix="checkrein-disk-")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=711", "tmpfs", folder]
    try:
        if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("a small disk can be mounted only by root")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)
    finally:
        os.rmdir(folder)


def fill(disk: Path) -> Path:
    """A file that takes all the room that is left; without it there is room again."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    return ballast
