"""Events as bytes, and back.

An event is encoded once. The bytes are what is stored, hashed and streamed, so nothing here ever encodes an event that
came out of a journal again.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Final

import msgspec

from checkrein.core.events import EVENTS, Event
from checkrein.errors import MisuseError, StoreDamaged, StoreTooNew

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(reduce(or_, EVENTS))
_TAGS: Final = frozenset(str(kind.__struct_config__.tag) for kind in EVENTS)


class _Tagged(msgspec.Struct):
    type: str


def encode(event: Event) -> bytes:
    """The bytes of `event`: JSON on one line."""
    return _ENCODER.encode(event)


def encode_checked(event: Event) -> bytes:
    """The bytes of `event`, which can be read again. Raises `MisuseError` for one that could not be.

    What is recorded is there for good: an event that nobody can read would make its run unreadable.
    """
    try:
        body = _ENCODER.encode(event)
        _DECODER.decode(body)
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError, OverflowError) as error:
        raise MisuseError(f"This {type(event).__name__} cannot be recorded: {error}. Nothing was taken.") from error
    return body


def decode(body: bytes) -> Event:
    """The event in `body`. Raises `StoreTooNew` for one of a kind not known here, `StoreDamaged` for anything else."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unreadable(body, error) from error


def _unreadable(body: bytes, error: Exception) -> StoreDamaged | StoreTooNew:
    try:
        kind = msgspec.json.decode(body, type=_Tagged).type
    except (msgspec.DecodeError, RecursionError):
        return StoreDamaged(f"An event in the journal cannot be read ({error}); restore the journal from a backup.")
    if kind in _TAGS:
        return StoreDamaged(
            f"A {kind} event in the journal is not whole ({error}); restore it from a backup.", type=kind
        )
    return StoreTooNew(
        f"The journal holds {kind} events, which this version does not know; use a later one.", type=kind
    )
