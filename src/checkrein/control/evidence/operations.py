"""Halts and resets that touched a run, as its bundle has them: each to the byte as it is stored, with its link.

The journal of operations is one chain for the whole store, and most of it is about other people's runs. A bundle has
the records about its own, each with the hash of the record before it: so each shows by itself that it is as it was
hashed, and the signed statements about it, among the heads, show that this hash stood in that place of the chain.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from checkrein.core.events import RunCreated, RunFinished
from checkrein.errors import RunNotFound
from checkrein.journal.base import Journal, Operation, Recorded, RecordedOperation, Scope
from checkrein.journal.operations import GENESIS, HALTED, link

EARLIER_SECONDS: Final = 60.0
"""So far before a run was created an operation still counts as being after it: the clocks of host and store differ."""
_LINE: Final = re.compile(
    rb'\{"seq":([0-9]{1,18}),"previous":"([0-9a-f]{64})","hash":"([0-9a-f]{64})","operation":(.*)\}', re.DOTALL
)


class LinkedOperation(msgspec.Struct, frozen=True):
    """A record of the journal of operations, and the hash of the one before it."""

    record: RecordedOperation
    previous: bytes

    @property
    def seq(self) -> int:
        return self.record.seq

    @property
    def operation(self) -> Operation:
        return self.record.operation

    def line(self) -> bytes:
        """A line of JSON that has the stored bytes in it as they are."""
        one = self.record
        hashes = (self.previous.hex().encode(), one.hash.hex().encode())
        return b'{"seq":%d,"previous":"%s","hash":"%s","operation":%s}\n' % (one.seq, *hashes, one.body)


def read_line(line: bytes) -> LinkedOperation:
    """What `line` has written, without its newline. Raises `ValueError` for one that is not as it was."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError("it cannot be read")
    seq, body = int(match[1]), match[4]
    previous, claimed = (bytes.fromhex(match[group].decode()) for group in (2, 3))
    if link(previous, seq, body) != claimed:
        raise ValueError("it was changed: its hash does not fit")
    try:
        operation = msgspec.json.decode(body, type=Operation)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it cannot be read ({error})") from error
    return LinkedOperation(RecordedOperation(seq, operation, body, claimed), previous)


async def operations_on(journal: Journal, records: Sequence[Recorded]) -> tuple[LinkedOperation, ...]:
    """Of all operations those that touched the run of these records. Raises `StoreDamaged` for a broken chain."""
    await journal.verify_operations()
    created = records[0].event
    assert isinstance(created, RunCreated)
    finished = next((record.event.at for record in records if isinstance(record.event, RunFinished)), None)
    above = {created.run, created.root or created.run, *await _above(journal, created.parent)}
    wanted = {(Scope.ALL, ""), (Scope.AGENT, created.agent), (Scope.OWNER, created.owner)}
    wanted |= {(scope, run) for scope in (Scope.RUN, Scope.ROOT) for run in above}
    previous, found = GENESIS, list[LinkedOperation]()
    for record in await journal.operations():
        linked, previous = LinkedOperation(record, previous), record.hash
        if record.operation.store_at >= created.at - EARLIER_SECONDS:
            found.append(linked)
    return _touching(found, wanted, finished)


def _touching(
    found: Sequence[LinkedOperation], wanted: Collection[tuple[Scope, str]], finished_at: float | None
) -> tuple[LinkedOperation, ...]:
    """Those in its scopes, and after its end only what became of the halts that were in force then."""
    latched: set[tuple[Scope, str]] = set()
    touching: list[LinkedOperation] = []
    for one in found:
        scope, is_halt = (one.operation.scope, one.operation.name), one.operation.type == HALTED
        is_after = finished_at is not None and one.operation.store_at > finished_at + EARLIER_SECONDS
        if scope not in wanted or (is_after and scope not in latched):
            continue
        latched = latched | {scope} if is_halt else latched - {scope}
        touching.append(one)
    return tuple(touching)


async def _above(journal: Journal, parent: str | None) -> list[str]:
    found: list[str] = []
    while parent is not None and parent not in found:
        found.append(parent)
        try:
            parent = (await journal.load(parent)).parent
        except RunNotFound:  # it was deleted
            break
    return found
