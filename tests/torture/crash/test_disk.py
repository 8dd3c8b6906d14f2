"""The model of a power cut says neither too much nor too little."""

from __future__ import annotations

from errno import EIO
from pathlib import Path
from random import Random

from tests.torture.crash.disk import Disk, Entries
from tests.torture.crash.shim import Kind, Op

FOLDER = Path("/disk")
FILE, DIRECTORY = 1, 2


def opened(handle: int, path: str, created: bool = False) -> Op:
    return Op(Kind.OPEN, handle, int(created), 0, 0, path, b"")


def written(offset: int, data: bytes) -> Op:
    return Op(Kind.WRITE, FILE, offset, len(data), 0, "", data)


def synced(handle: int = FILE, error: int = 0) -> Op:
    return Op(Kind.SYNC, handle, 0, 0, error, "", b"")


def unlinked(path: str) -> Op:
    return Op(Kind.UNLINK, 0, 0, 0, 0, path, b"")


def possible(entries: Entries, *ops: Op, before: dict[str, bytes] | None = None) -> list[dict[str, bytes]]:
    """What two hundred power cuts after these calls leave behind, without repeats."""
    disk = Disk(FOLDER, entries, before)
    for op in ops:
        disk.follow(op)
    found: list[dict[str, bytes]] = []
    for seed in range(200):
        left = disk.after_cut(Random(seed))
        if left not in found:
            found.append(left)
    return found


def test_what_was_synced_is_there():
    ops = [opened(FILE, "/disk/a"), written(0, b"new"), synced()]

    assert possible(Entries.STRICT, *ops, before={"a": b"old"}) == [{"a": b"new"}]


def test_what_was_not_synced_may_be_there_or_not_in_any_combination():
    ops = [opened(FILE, "/disk/a"), written(0, b"X"), written(1, b"Y")]

    left = possible(Entries.STRICT, *ops, before={"a": b"ab"})

    assert sorted(disk["a"] for disk in left) == [b"XY", b"Xb", b"aY", b"ab"]


def test_a_write_may_be_torn_between_sectors_but_not_within_one():
    ops = [opened(FILE, "/disk/a"), written(0, b"x" * 1024)]

    left = possible(Entries.STRICT, *ops, before={"a": bytes(1024)})

    assert {disk["a"] for disk in left} == {a + b for a in (bytes(512), b"x" * 512) for b in (bytes(512), b"x" * 512)}


def test_a_write_whose_fsync_failed_may_be_lost_although_a_later_fsync_succeeds():
    ops = [opened(FILE, "/disk/a"), written(0, b"X"), synced(error=EIO), written(1, b"Y"), synced()]

    left = possible(Entries.STRICT, *ops, before={"a": b"ab"})

    assert sorted(disk["a"] for disk in left) == [b"XY", b"aY"]


def test_a_new_file_needs_a_sync_of_its_directory_by_the_strict_rule():
    ops = [opened(FILE, "/disk/a", created=True), written(0, b"X"), synced()]

    assert {} in possible(Entries.STRICT, *ops)
    assert possible(Entries.STRICT, *ops, opened(DIRECTORY, "/disk"), synced(DIRECTORY)) == [{"a": b"X"}]
    assert possible(Entries.ORDERED, *ops) == [{"a": b"X"}]


def test_an_unlinked_file_may_come_back_until_the_directory_is_synced():
    ops = [unlinked("/disk/a"), opened(DIRECTORY, "/disk")]

    assert len(possible(Entries.STRICT, *ops, before={"a": b"old"})) == 2
    assert possible(Entries.STRICT, *ops, synced(DIRECTORY), before={"a": b"old"}) == [{}]
