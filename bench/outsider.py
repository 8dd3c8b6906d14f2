"""The other process of `verb_from_outside`: asks a run to pause and to resume, and reports when what happened.

python -m bench.outsider ADDRESS RUN SECONDS REST_SECONDS
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import AsyncIterator
from typing import Final

import anyio
import msgspec

from checkrein.core.commands import PauseRun, ResumeRun
from checkrein.core.decide import decide
from checkrein.core.enums import Status
from checkrein.core.events import VerbSettled
from checkrein.journal import Journal, Recorded, open_journal

PATIENCE_SECONDS: Final = 20.0
"""A verb that takes longer is a bug, not a slow one."""
LONGEST_PAUSE_SECONDS: Final = 0.03


class Asked(msgspec.Struct, frozen=True):
    """One verb, in seconds of the monotonic clock, which all processes of a host share."""

    id: str
    asked: float
    loaded: float
    accepted: float
    settled: float
    overslept: float
    """By how much the pause before it was longer than it should have been."""


async def ask(address: str, run: str, seconds: float, rest: float) -> list[Asked]:
    """One verb after the other, for so many seconds, with at least so long a `rest` before each."""
    done: list[Asked] = []
    async with await open_journal(address) as journal:
        follower = journal.follow(run)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with anyio.fail_after(PATIENCE_SECONDS + rest):
                done.append(await _ask_once(journal, run, f"verb-{len(done)}", follower, rest))
    return done


async def _ask_once(journal: Journal, run: str, id: str, follower: AsyncIterator[Recorded], rest: float) -> Asked:
    # At any moment of the other's work, not always at the same one.
    awake = time.monotonic() + (pause := rest + random.uniform(0, LONGEST_PAUSE_SECONDS))
    await anyio.sleep(pause)
    asked = time.monotonic()
    state = await journal.load(run)
    loaded = time.monotonic()
    kind = PauseRun if state.status is Status.RUNNING else ResumeRun
    verdict = decide(state, kind(id=id, at=time.time(), by="ann"))
    assert isinstance(verdict, tuple), verdict
    await journal.append(run, verdict, after=state.seq)
    accepted = time.monotonic()
    async for record in follower:
        if isinstance(record.event, VerbSettled) and record.event.accepted == id:
            break
    return Asked(id, asked, loaded, accepted, time.monotonic(), asked - awake)


async def main(address: str, run: str, seconds: str, rest: str) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(await ask(address, run, float(seconds), float(rest))))


if __name__ == "__main__":
    _, address, run, seconds, rest = sys.argv
    anyio.run(main, address, run, seconds, rest)
