"""Serialization: events, and snapshots of states, as bytes, and back.

An event is encoded once. The bytes are what is stored, hashed and streamed, so nothing here ever encodes an event that
came out of a journal again.

The hash chain of a run: whoever changes, drops, adds or reorders an event changes every hash after it.

hash(0) = SHA-256("checkrein run " ‖ run id)
hash(n) = SHA-256(hash(n - 1) ‖ n as 8 bytes, big endian ‖ body of event n)
"""

from __future__ import annotations

from functools import reduce
from hashlib import sha256
from operator import or_
from typing import Final

import msgspec

from checkrein.core.events import EVENTS, Event
from checkrein.core.evolve import FOLD_VERSION
from checkrein.core.state import State
from checkrein.errors import EventTooLarge, MisuseError, StoreDamaged, StoreTooNew
from checkrein.journal.base import Operation, RecordedOperation

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(reduce(or_, EVENTS))
_TAGS: Final = frozenset(str(kind.__struct_config__.tag) for kind in EVENTS)


LARGEST_EVENT: Final = 64 * 1024 * 1024
"""How many bytes an event may have in any journal: far more than a call may return, far less than SQLite takes."""


class _Tagged(msgspec.Struct):
    type: str


def encode(event: Event) -> bytes:
    """The bytes of `event`: JSON on one line."""
    return _ENCODER.encode(event)


def encode_checked(event: Event) -> bytes:
    """The bytes of `event`, which can be read again. Raises `MisuseError` for one that could not be.

    Raises `EventTooLarge` for one that no journal would ever take. What is recorded is there for good: an event that
    nobody can read would make its run unreadable.
    """
    try:
        body = _ENCODER.encode(event)
        if len(body) > LARGEST_EVENT:
            raise too_large(event, len(body))
        _DECODER.decode(body)
    except (msgspec.MsgspecError, RecursionError, ValueError, TypeError, OverflowError) as error:
        raise MisuseError(f"This {type(event).__name__} cannot be recorded: {error}. Nothing was taken.") from error
    return body


def is_too_large(event: Event) -> bool:
    """Whether no journal would ever take `event`."""
    return len(_ENCODER.encode(event)) > LARGEST_EVENT


def too_large(event: Event, size: int) -> EventTooLarge:
    kind = str(event.__struct_config__.tag)
    return EventTooLarge(
        f"This {kind} has {size} bytes; a journal takes at most {LARGEST_EVENT} in one event. Nothing was taken.",
        type=kind,
    )


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


def genesis(run: str) -> bytes:
    """What the first event follows. It binds the chain to its run: a chain cannot be passed off as another run's."""
    return sha256(b"checkrein run " + run.encode()).digest()


def link(previous: bytes, seq: int, body: bytes) -> bytes:
    """The hash of event `seq`."""
    return sha256(previous + seq.to_bytes(8, "big") + body).digest()


_OPERATION_DECODER: Final = msgspec.json.Decoder(Operation)


def decode_operation(seq: int, hash: bytes, body: bytes) -> RecordedOperation:
    """Raises `StoreDamaged`."""
    try:
        return RecordedOperation(seq, _OPERATION_DECODER.decode(body), body, hash)
    except msgspec.DecodeError as error:
        raise StoreDamaged(f"Operation {seq} of the journal cannot be read ({error}).") from error


_STATE_SHAPE: Final = msgspec.json.encode(msgspec.json.schema(State), order="sorted")
STATE_VERSION: Final = f"{FOLD_VERSION}-{sha256(_STATE_SHAPE).hexdigest()[:16]}"
"""Which shape of state this code reads. A snapshot of another shape is as good as none."""

_STATE_DECODER: Final = msgspec.json.Decoder(State)


def encode_state(state: State) -> bytes:
    """The bytes of a snapshot."""
    return _ENCODER.encode(state)


def decode_state(body: bytes) -> State | None:
    """The state in a snapshot; None for one that cannot be read, which is as good as none: the events tell the same."""
    try:
        return _STATE_DECODER.decode(body)
    except msgspec.DecodeError:
        return None
