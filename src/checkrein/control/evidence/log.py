"""The signed log of a store: statements about the heads of chains, each naming the one before it by its hash.

A head (run, seq, hash) fixes everything up to it: whoever holds a signed one can tell later whether the journal was
changed before that point, or cut off behind it. A head of heads says the same of many runs at once, by a Merkle root:
its leaves are kept beside it, and a bundle carries only the path from its own run to the root.

leaf = SHA-256(0 ‖ run ‖ 0 ‖ seq as 8 bytes ‖ hash)     node = SHA-256(1 ‖ left ‖ right), an odd one is passed up
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import sha256
from typing import Final, Literal, NamedTuple

import msgspec

from checkrein.control.evidence.keys import SigningKey, fingerprint, is_signed
from checkrein.journal.base import Journal
from checkrein.journal.evidence import SignedEntry

CONTEXT: Final = b"checkrein signed log 1\n"
"""Before what is signed, so that no signature is good for anything else."""
FIRST: Final = "0" * 64
"""What the first entry follows."""
OPERATIONS: Final = "/operations"
"""What the log calls the journal of operations, beside the runs: no run has this id."""
_TRIES: Final = 20

Kind = Literal["stop", "operation", "heads", "tombstone"]


class Leaf(NamedTuple):
    """The head of one chain."""

    run: str
    seq: int
    hash: str
    """In hexadecimal, as everywhere in evidence."""

    def digest(self) -> bytes:
        return sha256(
            b"\0" + self.run.encode() + b"\0" + self.seq.to_bytes(8, "big") + bytes.fromhex(self.hash)
        ).digest()


class Statement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is signed. Which fields it has depends on its kind."""

    number: int
    previous: str
    """The SHA-256 of the body of the entry before."""
    at: float
    """By the clock of whoever signs."""
    store_at: float
    kind: Kind
    run: str = ""
    seq: int = 0
    hash: str = ""
    what: str = ""
    """Of a stop: its verb. Of an operation: what was done. Of a tombstone: why."""
    by: str = ""
    root: str = ""
    count: int = 0

    @property
    def leaf(self) -> Leaf:
        return Leaf(self.run, self.seq, self.hash)


def hash_of(body: bytes) -> str:
    return sha256(body).hexdigest()


def merkle_root(leaves: Sequence[Leaf]) -> str:
    """Of any number of leaves, in the order given; of none, the hash of nothing."""
    level = [leaf.digest() for leaf in leaves] or [sha256().digest()]
    while len(level) > 1:
        level = _above(level)
    return level[0].hex()


def merkle_path(leaves: Sequence[Leaf], place: int) -> tuple[str, ...]:
    """What leads from one leaf to the root: each step `l` or `r`, the side on which it stands, and a hash."""
    level, path = [leaf.digest() for leaf in leaves], []
    while len(level) > 1:
        beside = place ^ 1
        if beside < len(level):
            path.append(("l" if beside < place else "r") + level[beside].hex())
        level, place = _above(level), place // 2
    return tuple(path)


def follow_path(leaf: Leaf, path: Iterable[str]) -> str:
    """The root to which a path leads from a leaf. Raises `ValueError` for what is no path."""
    at = leaf.digest()
    for step in path:
        beside = bytes.fromhex(step[1:])
        at = sha256(b"\1" + (beside + at if step[0] == "l" else at + beside)).digest()
    return at.hex()


def _above(level: list[bytes]) -> list[bytes]:
    pairs = [sha256(b"\1" + level[n] + level[n + 1]).digest() for n in range(0, len(level) - 1, 2)]
    return pairs + level[len(pairs) * 2 :]


async def sign(
    journal: Journal,
    key: SigningKey,
    kind: Kind,
    *,
    at: float,
    leaf: Leaf | None = None,
    leaves: Sequence[Leaf] = (),
    what: str = "",
    by: str = "",
    add: Callable[[SignedEntry], Awaitable[bool]] | None = None,
) -> SignedEntry:
    """Append a statement to the log of the store, after whatever others have appended meanwhile.

    `add` does it together with something else; False means that somebody was faster.
    """
    for _ in range(_TRIES):
        last = await journal.evidence.last_signed()
        statement = Statement(
            number=1 if last is None else last.number + 1,
            previous=FIRST if last is None else hash_of(last.body),
            at=at,
            store_at=journal.now(),
            kind=kind,
            run="" if leaf is None else leaf.run,
            seq=0 if leaf is None else leaf.seq,
            hash="" if leaf is None else leaf.hash,
            what=what,
            by=by,
            root=merkle_root(leaves) if kind == "heads" else "",
            count=len(leaves),
        )
        body = msgspec.json.encode(statement)
        entry = SignedEntry(
            number=statement.number,
            run=statement.run,
            body=body,
            key=key.public,
            signature=key.sign(CONTEXT + body),
            leaves=msgspec.json.encode(leaves) if leaves else b"",
        )
        if await (journal.evidence.add_signed if add is None else add)(entry):
            return entry
    raise RuntimeError("others sign faster than this process can follow")


# -- as it is published, and as it is part of a bundle


class PublishedEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A line of a file of heads, or of `heads.jsonl` in a bundle."""

    body: str
    """To the byte what was signed."""
    key: str
    signature: str
    leaves: tuple[Leaf, ...] = ()
    """In a file of heads: all that a root is made of."""
    leaf: Leaf | None = None
    """In a bundle: the head of its run in a head of heads, and …"""
    path: tuple[str, ...] = ()
    """… the path from there to the root."""

    @property
    def public(self) -> bytes:
        return bytes.fromhex(self.key)

    def statement(self) -> Statement:
        """Raises `ValueError` for one that does not say what is signed, or whose signature or root does not fit."""
        try:
            said = msgspec.json.decode(self.body, type=Statement)
            public, signature = bytes.fromhex(self.key), bytes.fromhex(self.signature)
        except (msgspec.MsgspecError, ValueError) as error:
            raise ValueError(f"it cannot be read ({error})") from error
        if not is_signed(CONTEXT + self.body.encode(), signature, public):
            raise ValueError(f"its signature by {fingerprint(public)} does not fit")
        if self.leaves and (merkle_root(self.leaves), len(self.leaves)) != (said.root, said.count):
            raise ValueError("its leaves do not lead to its root")
        if self.leaf is not None and follow_path(self.leaf, self.path) != said.root:
            raise ValueError("its path does not lead to its root")
        return said

    def claims(self, said: Statement) -> tuple[Leaf, ...]:
        """The heads that it vouches for."""
        if said.kind == "heads":
            return self.leaves or ((self.leaf,) if self.leaf is not None else ())
        return (said.leaf,) if said.run else ()


def published(entry: SignedEntry) -> PublishedEntry:
    """An entry with all its leaves."""
    leaves = msgspec.json.decode(entry.leaves, type=tuple[Leaf, ...]) if entry.leaves else ()
    return _published(entry, leaves=leaves)


def about(entry: SignedEntry, run: str) -> PublishedEntry | None:
    """An entry as a bundle of `run` has it; None where it says nothing about it."""
    if entry.run == run:
        return _published(entry)
    leaves = msgspec.json.decode(entry.leaves, type=tuple[Leaf, ...]) if entry.leaves else ()
    place = next((place for place, leaf in enumerate(leaves) if leaf.run == run), None)
    return None if place is None else _published(entry, leaf=leaves[place], path=merkle_path(leaves, place))


def _published(
    entry: SignedEntry, leaves: tuple[Leaf, ...] = (), leaf: Leaf | None = None, path: tuple[str, ...] = ()
) -> PublishedEntry:
    return PublishedEntry(
        body=entry.body.decode(),
        key=entry.key.hex(),
        signature=entry.signature.hex(),
        leaves=leaves,
        leaf=leaf,
        path=path,
    )
