"""Power cuts: at a moment of a recorded life, build a disk as it may be left behind, and look at what is on it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.torture.crash.disk import Disk, Entries
from tests.torture.crash.shim import Folder, Kind, Op, read_log
from tests.torture.crash.witness import Promise, parse

Examine = Callable[[Path, Sequence[Promise]], list[str]]
"""Looks at a database, given what was promised by then, and says what is wrong."""


class Cut(NamedTuple):
    """The power goes after the first `at` calls of the log. Everything else follows from the seed."""

    at: int
    entries: Entries
    seed: int


class Left(NamedTuple):
    """What a cut left: how much had been promised, and what is wrong."""

    cut: Cut
    promised: int
    wrong: list[str]


class Recording:
    """The life of one process, as its disk and its witness saw it."""

    def __init__(
        self, folder: Folder, before: Mapping[str, bytes] | None = None, promised: Sequence[Promise] = ()
    ) -> None:
        """`before` is what was on the disk when it began, and `promised` what had been promised by then."""
        self.folder = folder
        self.before = dict(before or {})
        self.promised = list(promised)
        self.ops = read_log(folder.log)
        self._witnessed = frozenset(self._handles_of_the_witness())

    def _handles_of_the_witness(self) -> Iterator[int]:
        return (op.handle for op in self.ops if op.kind is Kind.OPEN and op.path == str(self.folder.witness))

    def is_of_the_witness(self, op: Op) -> bool:
        return op.handle in self._witnessed

    def cuts(self, count: int, seed: int) -> list[Cut]:
        """Moments in the order of the log: half of them anywhere, half just after an acknowledgement."""
        dice = Random(seed)
        acknowledged = [at for at, op in enumerate(self.ops, 1) if self.is_of_the_witness(op) and op.data]
        anywhere = range(len(self.ops) + 1)
        moments = [dice.choice(acknowledged or anywhere if dice.random() < 0.5 else anywhere) for _ in range(count)]
        return [Cut(at, dice.choice(list(Entries)), dice.getrandbits(32)) for at in sorted(moments)]

    def disk_at(self, at: int, entries: Entries) -> Disk:
        return next(disk for _, disk, _ in self.walk([Cut(at, entries, 0)]))

    def walk(self, cuts: Sequence[Cut]) -> Iterator[tuple[Cut, Disk, bytes]]:
        """The disk and the witness at each cut; the cuts are in the order of the log."""
        disks = {rule: Disk(self.folder.disk, rule, self.before) for rule in Entries}
        witness, done = b"", 0
        for cut in cuts:
            for op in self.ops[done : cut.at]:
                if not self.is_of_the_witness(op):
                    for disk in disks.values():
                        disk.follow(op)
                elif op.kind is Kind.WRITE:
                    witness += op.data
            done = cut.at
            yield cut, disks[cut.entries], witness


def cut_power(recording: Recording, cuts: Sequence[Cut], examine: Examine, scratch: Path) -> list[Left]:
    """Make every cut and examine what it leaves."""
    results = []
    for cut, disk, witness in recording.walk(cuts):
        promises = [*recording.promised, *parse(witness)]
        with tempfile.TemporaryDirectory(dir=scratch) as name:
            folder = Folder(Path(name)).made()
            lay_out(disk.after_cut(Random(cut.seed)), folder)
            results.append(Left(cut, len(promises), examine(folder.database, promises)))
    return results


def lay_out(files: Mapping[str, bytes], folder: Folder) -> None:
    """Put files on the disk of a folder."""
    for name, content in files.items():
        (folder.disk / name).write_bytes(content)
