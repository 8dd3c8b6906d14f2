"""Parameters of a statement in PostgreSQL's binary form, arrays above all.

The driver finds out for every list what is in it, piece by piece; for an append that takes longer than all else that is
done for it here. The arrays say what is in them, and hold no NULL.
"""

from __future__ import annotations

import struct
from itertools import chain, repeat
from typing import Any, Final

from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

_LENGTH: Final = struct.Struct(">i")


integer: Final = struct.Struct(">q").pack
"""A bigint."""
number: Final = struct.Struct(">d").pack
"""A double precision."""
boolean: Final = struct.Struct(">?").pack


class Integers(list[int]):
    """A bigint[]."""


class Numbers(list[float]):
    """A double precision[]."""


class Texts(list[str]):
    """A text[]."""


class Blobs(list[bytes]):
    """A bytea[]."""


class _ArrayDumper(Dumper):
    format = Format.BINARY
    element = 0
    """The type of what is in it, by its number in PostgreSQL."""

    def dump(self, obj: Any) -> bytes:
        if not obj:
            return struct.pack(">iii", 0, 0, self.element)
        return struct.pack(">iiiii", 1, 0, self.element, len(obj), 1) + self.items(obj)

    def items(self, obj: Any) -> bytes:
        return b"".join(chain.from_iterable(zip(map(_LENGTH.pack, map(len, obj)), obj, strict=True)))


class _IntegersDumper(_ArrayDumper):
    oid, element = 1016, 20

    def items(self, obj: Any) -> bytes:
        return struct.pack(">" + "iq" * len(obj), *chain.from_iterable(zip(repeat(8), obj)))


class _NumbersDumper(_ArrayDumper):
    oid, element = 1022, 701

    def items(self, obj: Any) -> bytes:
        return struct.pack(">" + "id" * len(obj), *chain.from_iterable(zip(repeat(8), obj)))


class _TextsDumper(_ArrayDumper):
    oid, element = 1009, 25

    def items(self, obj: Any) -> bytes:
        return super().items([one.encode() for one in obj])


class _BlobsDumper(_ArrayDumper):
    oid, element = 1001, 17


def register(adapters: AdaptersMap) -> None:
    """Have a connection take these as parameters."""
    adapters.register_dumper(Integers, _IntegersDumper)
    adapters.register_dumper(Numbers, _NumbersDumper)
    adapters.register_dumper(Texts, _TextsDumper)
    adapters.register_dumper(Blobs, _BlobsDumper)
