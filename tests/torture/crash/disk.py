"""What a disk may hold after a power cut, worked out from the log of everything that was done to it.

The rules, which are harsher than most real disks:

- What was written to a file before its last successful fsync is there.
- Of what was written after it, any subset is there, and any write may have reached the disk only in some of its
  512-byte sectors. Changes of size count as writes.
- Writes whose fsync *failed* may be lost for good, also when a later fsync succeeds (Linux drops such pages).
- Directory entries (created, renamed, unlinked) follow one of two rules. `ORDERED`, like a journaling file system: they
  become durable in order, and an fsync of any file takes every earlier one along. `STRICT`, the letter of POSIX: only
  an fsync of the directory makes them durable, until then each name may or may not have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from tests.torture.crash.shim import Kind, Op

SECTOR: Final = 512

KEEP_CHANCES: Final = (0.0, 0.1, 0.5, 0.9, 1.0)
"""How likely each unsynced change is to survive; one is drawn for every cut, so that extremes happen too."""


class Entries(StrEnum):
    """How directory entries become durable."""

    ORDERED = "ordered"
    STRICT = "strict"


class Change(NamedTuple):
    """A write, or with `data` None a new size."""

    offset: int
    data: bytes | None


class File:
    """One inode: what is certain, and what was done since."""

    def __init__(self, content: bytes = b"") -> None:
        self.certain = bytearray(content)
        self.open: list[Change] = []
        """Not synced yet."""
        self.doubtful: list[tuple[Change, bool]] = []
        """Since the first failed fsync: changes, and whether each was synced later. Empty when none ever failed."""

    def sync(self, succeeded: bool) -> None:
        if succeeded and not self.doubtful:
            for change in self.open:
                make(self.certain, change)
        else:
            self.doubtful += [(change, succeeded) for change in self.open]
        self.open.clear()

    def after_cut(self, dice: Random, chance: float) -> bytes:
        """One of the contents it may have."""
        content = bytearray(self.certain)
        for change, synced in [*self.doubtful, *((change, False) for change in self.open)]:
            if synced:
                make(content, change)
            elif dice.random() < chance:
                make(content, change, dice if dice.random() < 0.2 else None)
        return bytes(content)


def make(content: bytearray, change: Change, torn: Random | None = None) -> None:
    """Apply a change; with `torn`, only some of its sectors."""
    offset, data = change
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    content.extend(bytes(max(0, offset - len(content))))
    for start, end in _sectors(offset, len(data)) if torn else [(0, len(data))]:
        if torn is None or torn.random() < 0.5:
            content.extend(bytes(max(0, offset + start - len(content))))
            content[offset + start : offset + end] = data[start:end]


def _sectors(offset: int, size: int) -> list[tuple[int, int]]:
    edges = [0, *range(SECTOR - offset % SECTOR, size, SECTOR), size]
    return list(pairwise(edges))


Names = Mapping[str, File | None]


class Disk:
    """Follows a log, and can say at any moment what a power cut would leave."""

    def __init__(self, folder: Path, entries: Entries, before: Mapping[str, bytes] | None = None) -> None:
        """`before` is what was on the disk when the log began, all of it durable."""
        self._folder = str(folder)
        self._rule = entries
        self._certain: dict[str, File] = {name: File(data) for name, data in (before or {}).items()}
        self._now: dict[str, File] = dict(self._certain)
        self._open_entries: list[Names] = []
        self._files: dict[int, File | None] = {}
        """By handle; None for the directory itself."""

    # -- following the log

    def follow(self, op: Op) -> None:
        """Take in one call. Calls on other files than the disk's, such as the witness, must not be given."""
        match op.kind:
            case Kind.OPEN:
                self._open(op)
            case Kind.WRITE:
                self._file(op).open.append(Change(op.offset, op.data))
            case Kind.TRUNCATE if op.error == 0:
                self._file(op).open.append(Change(op.length, None))
            case Kind.ALLOCATE if op.error == 0:
                self._file(op).open.append(Change(op.length, b""))
            case Kind.SYNC:
                self._sync(op)
            case Kind.UNLINK:
                self._change({self._name(op.path): None})
            case Kind.RENAME:
                moved = self._now[self._name(op.path)]
                self._change({self._name(op.data.decode()): moved, self._name(op.path): None})
            case Kind.LINK:
                self._change({self._name(op.data.decode()): self._now[self._name(op.path)]})

    def _open(self, op: Op) -> None:
        if op.path == self._folder:
            self._files[op.handle] = None
            return
        name = self._name(op.path)
        if op.offset:
            self._change({name: File()})
        self._files[op.handle] = self._now[name]

    def _sync(self, op: Op) -> None:
        file = self._files[op.handle]
        if file is not None:
            file.sync(op.error == 0)
        if op.error == 0 and (file is None or self._rule is Entries.ORDERED):
            for names in self._open_entries:
                _rename(self._certain, names)
            self._open_entries.clear()

    def _change(self, names: Names) -> None:
        _rename(self._now, names)
        self._open_entries.append(names)

    def _file(self, op: Op) -> File:
        file = self._files[op.handle]
        assert file is not None, "a write to a directory"
        return file

    def _name(self, path: str) -> str:
        return path.removeprefix(self._folder + "/")

    # -- what is there

    def now(self) -> dict[str, bytes]:
        """What a reader sees as long as the power stays on."""
        return {name: self._current(file) for name, file in self._now.items()}

    @staticmethod
    def _current(file: File) -> bytes:
        content = bytearray(file.certain)
        for change in [*(change for change, _ in file.doubtful), *file.open]:
            make(content, change)
        return bytes(content)

    def after_cut(self, dice: Random) -> dict[str, bytes]:
        """One of the disks that a power cut at this moment may leave."""
        chance = dice.choice(KEEP_CHANCES)
        names = dict(self._certain)
        if self._rule is Entries.ORDERED:
            survivors = self._open_entries[: dice.randint(0, len(self._open_entries))]
        else:
            survivors = self._any_entries(dice)
        for change in survivors:
            _rename(names, change)
        return {name: file.after_cut(dice, chance) for name, file in names.items()}

    def _any_entries(self, dice: Random) -> list[Names]:
        """Each pending change or not; a later change of a name never without the earlier ones."""
        lost: set[str] = set()
        kept = []
        for names in self._open_entries:
            if lost.isdisjoint(names) and dice.random() < 0.5:
                kept.append(names)
            else:
                lost.update(names)
        return kept


def _rename(entries: dict[str, File], names: Names) -> None:
    for name, file in names.items():
        if file is None:
            entries.pop(name, None)
        else:
            entries[name] = file
