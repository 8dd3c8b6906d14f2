"""A zip file of which every byte is determined by the names and the contents of its parts, in their order.

Nothing is compressed, no time and no attribute varies: the same parts give the same bytes on every machine, for ever,
and whoever reads the parts can make the file again and compare. So a changed byte shows wherever it is, also in those
fields of the format that no reader looks at. Any program that knows zip files can open it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final
from zlib import crc32

_LOCAL: Final = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL: Final = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END: Final = struct.Struct("<4sHHHHIIH")
_VERSION: Final = 20
_DATE: Final = 0x21
"""1 January 1980, the first day that the format knows."""
_MODE: Final = 0o100644 << 16
LARGEST: Final = 0xFFFF_FFFE
"""In bytes, of the whole file: beyond that the format is another one."""


class NotAnArchive(ValueError):
    """These bytes were not made by `pack`."""


def pack(parts: Mapping[str, bytes]) -> bytes:
    """The file. Raises `ValueError` for parts that are too large for it."""
    bodies: list[bytes] = []
    directory: list[bytes] = []
    offset = 0
    for name, body in parts.items():
        named, checksum, size = name.encode("ascii"), crc32(body), len(body)
        local = _LOCAL.pack(b"PK\3\4", _VERSION, 0, 0, 0, _DATE, checksum, size, size, len(named), 0) + named
        fields = (3 << 8 | _VERSION, _VERSION, 0, 0, 0, _DATE, checksum, size, size, len(named), 0, 0, 0, 0, _MODE)
        directory.append(_CENTRAL.pack(b"PK\1\2", *fields, offset) + named)
        bodies += [local, body]
        offset += len(local) + size
        if offset > LARGEST:
            raise ValueError(f"what is to be packed is larger than {LARGEST} bytes")
    central = b"".join(directory)
    end = _END.pack(b"PK\5\6", 0, 0, len(directory), len(directory), len(central), offset, 0)
    return b"".join((*bodies, central, end))


def unpack(data: bytes) -> dict[str, bytes]:
    """The parts. Raises `NotAnArchive` unless `data` is, to the byte, what `pack` makes of them."""
    parts: dict[str, bytes] = {}
    offset = 0
    while data[offset : offset + 4] == b"PK\3\4":
        if len(data) < offset + _LOCAL.size:
            raise NotAnArchive("it ends in the middle of a part")
        *_, size, _, name_size, _ = _LOCAL.unpack_from(data, offset)
        begin = offset + _LOCAL.size + name_size
        try:
            name = data[offset + _LOCAL.size : begin].decode("ascii")
        except UnicodeDecodeError:
            raise NotAnArchive("a part has a name that none has") from None
        if name in parts:
            raise NotAnArchive(f"{name} is in it twice")
        parts[name] = data[begin : begin + size]
        offset = begin + size
    if not parts:
        raise NotAnArchive("it is not a zip file")
    if pack(parts) != data:
        raise NotAnArchive("something between its parts was changed, or it was packed by another program")
    return parts
