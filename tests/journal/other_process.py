"""What a second process does in tests: `python -m tests.journal.other_process <what> <database> [number]`.

It says `ready` on its standard output when it has begun.
"""

from __future__ import annotations

import asyncio
import fcntl
import sys
import time
from itertools import count

from checkrein.journal import Journal, SqliteJournal
from tests.journal.build import driven, outcome


async def busy(journal: Journal, writers: int) -> None:
    """Commit back to back, for ever."""

    async def write(number: int) -> None:
        run = f"busy-{number}"
        await driven(journal, run)
        for seq in count(1):
            await journal.append(run, [outcome(id=f"{run}-{seq}")], after=seq, epoch=1)
            if seq == 20:
                print("ready", flush=True)

    await asyncio.gather(*(write(number) for number in range(writers)))


async def talk(journal: Journal, events: int) -> None:
    """Append to the run `talk`, one event every few milliseconds, each with the time it was asked for."""
    await driven(journal, "talk")
    print("ready", flush=True)
    for seq in range(1, events + 1):
        await asyncio.sleep(0.005)
        await journal.append("talk", [outcome(at=time.time())], after=seq, epoch=1)


async def fill(journal: Journal, events: int) -> None:
    """Append to the run `shared` as one of several, each as fast as it can."""
    print("ready", flush=True)
    for _ in range(events):
        await journal.append("shared", [outcome(id=f"{time.time_ns()}-{id(journal)}")], after=1, epoch=1)


async def flag(journal: Journal, seconds: int) -> None:
    """Keep a flag up, as a process that was frozen in a hurry would."""
    with open(f"{sys.argv[2]}-verbs", "r+") as flags:  # noqa: ASYNC230
        fcntl.flock(flags, fcntl.LOCK_SH)
        print("ready", flush=True)
        await asyncio.sleep(seconds)


async def main(what: str, database: str, number: int) -> None:
    journal = SqliteJournal(database)
    async with journal:
        await {"busy": busy, "talk": talk, "fill": fill, "flag": flag}[what](journal, number)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
