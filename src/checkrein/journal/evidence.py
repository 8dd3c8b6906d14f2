"""What a store keeps for evidence, beside the events: text that was withheld, and a log of signed records.

Withheld text is nobody's to read but operators', and part of a bundle where one asks for it. It is not part of the
chain: its hash and length are, in `watcher.flagged`.

The signed log is one list for the whole store. Each entry names the one before it by its hash, so that none can be left
out, put in or exchanged without its neighbours showing it. What an entry says is the affair of whoever signs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import msgspec


class Withheld(msgspec.Struct, frozen=True, gc=False):
    """Text that a watcher kept from being shown.

    `call` is as `stream_of` names it, `flag` is the id of the `watcher.flagged`, and `offset` that of its first
    character in the text of the call.
    """

    call: str
    flag: str
    offset: int
    text: str


class SignedEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One entry of the signed log, as it is kept: `body` is what was signed, `key` the public key that fits."""

    number: int
    run: str = ""
    """The run that it is about; empty: several, or none."""
    body: bytes
    key: bytes
    signature: bytes
    leaves: bytes = b""
    """Of a head of heads: what its root is made of."""


class EvidenceTables(ABC):
    """The part of a journal that keeps evidence."""

    @abstractmethod
    async def write_withheld(self, run: str, withheld: Withheld) -> None:
        """Keep what was withheld. Writing it again changes nothing; that of a run that is not there is dropped.

        Raises `StoreFull` and `StoreUnavailable`.
        """

    @abstractmethod
    async def withheld(self, run: str) -> tuple[Withheld, ...]:
        """All that was withheld in a run, by call and offset. Raises `RunNotFound`, and `StoreForbidden` where whoever
        opened the store may not read it."""

    @abstractmethod
    async def add_signed(self, entry: SignedEntry) -> bool:
        """Append to the signed log, durably. False, and nothing is done, where its number is not the next one."""

    @abstractmethod
    async def signed(
        self, *, run: str | None = None, after: int = 0, limit: int | None = None
    ) -> tuple[SignedEntry, ...]:
        """The entries of the signed log with a number above `after`, in order; only those about `run` where given."""

    @abstractmethod
    async def last_signed(self) -> SignedEntry | None:
        """The newest entry of the signed log."""

    @abstractmethod
    async def delete_run(self, run: str, tombstone: SignedEntry) -> bool:
        """Delete a run whole, and append what is left of it to the signed log: both, or neither.

        Its events, text, files and withheld text go, and what is derived from them. False, and nothing is done, where
        the number of the tombstone is not the next one.

        Raises `RunNotFound`, and `Refused` where it is not finished, a run below it is not, somebody holds a lease on
        it, or it has the newest event of a store that would give its place to another one.
        """

    @abstractmethod
    async def scrub(self) -> str:
        """After deletions: overwrite the copies of what was deleted that the store still keeps, as far as it can.

        Where copies may be left; empty: nowhere in the files of this store.
        """


class MemoryEvidence(EvidenceTables):
    """In dictionaries. `has` and `check` know which runs there are, `delete` takes one out or raises why not."""

    def __init__(
        self, has: Callable[[str], bool], check: Callable[[str], object], delete: Callable[[str], None]
    ) -> None:
        self._has = has
        self._check = check
        self._delete = delete
        self._withheld: dict[str, dict[str, Withheld]] = {}
        self._signed: list[SignedEntry] = []

    async def write_withheld(self, run: str, withheld: Withheld) -> None:
        if self._has(run):
            self._withheld.setdefault(run, {}).setdefault(withheld.flag, withheld)

    async def withheld(self, run: str) -> tuple[Withheld, ...]:
        self._check(run)
        return tuple(sorted(self._withheld.get(run, {}).values(), key=lambda one: (one.call, one.offset)))

    async def add_signed(self, entry: SignedEntry) -> bool:
        if entry.number != len(self._signed) + 1:
            return False
        self._signed.append(entry)
        return True

    async def signed(
        self, *, run: str | None = None, after: int = 0, limit: int | None = None
    ) -> tuple[SignedEntry, ...]:
        found = [entry for entry in self._signed[after:] if run is None or entry.run == run]
        return tuple(found[:limit])

    async def last_signed(self) -> SignedEntry | None:
        return self._signed[-1] if self._signed else None

    async def delete_run(self, run: str, tombstone: SignedEntry) -> bool:
        self._check(run)
        if tombstone.number != len(self._signed) + 1:
            return False
        self._delete(run)
        self._withheld.pop(run, None)
        return await self.add_signed(tombstone)

    async def scrub(self) -> str:
        return ""
