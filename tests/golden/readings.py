"""What is read from a store without changing it: the same bytes must always give the same state, effects and view."""

from __future__ import annotations

from pathlib import Path

import msgspec

from checkrein.control.viewer import look
from checkrein.journal import Journal, open_journal
from tests.golden.compare import pretty
from tests.golden.stores import copy


async def reading(name: str, folder: Path) -> str:
    """Everything that the store `name` says about its runs, read from a copy."""
    async with await open_journal(copy(name, folder)) as journal:
        runs = [await _run(journal, row.id) for row in reversed(await journal.runs())]
        fences = await journal.fences()
    return pretty({"runs": runs, "halted": fences})


async def _run(journal: Journal, run: str) -> object:
    records = await journal.read(run)
    state = await journal.load(run)
    streams = {record.event.call for record in records if record.event.__struct_config__.tag == "call.started"}  # type: ignore[attr-defined]
    chunks = {call: await journal.chunks(run, call) for call in sorted(streams)}
    lease = await journal.lease(run)
    return {
        "events": await journal.verify(run),
        "last_hash": records[-1].hash.hex(),
        "state": state,
        "effects": await journal.effects(run),
        "chunks": {call: found for call, found in chunks.items() if found},
        "view": msgspec.to_builtins(await look(journal, run, at=records[-1].event.at)),
        "owned_by": None if lease is None else lease.owner.host,
    }
