"""What a second process does in tests: `python -m tests.journal.other_process <what> <address> [number]`.

It says `ready` on its standard output when it has begun.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import time
from itertools import count

from checkrein.control.live_text import LiveText
from checkrein.core.enums import CallKind
from checkrein.errors import Fenced
from checkrein.journal import Journal, Lease, open_journal
from tests.journal.build import driven, outcome, permit


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


async def stream(journal: Journal, runs: int) -> None:
    """Have the model of each of the runs `s-0`, `s-1` and so on say the time, fifty times a second, for ever."""
    text = LiveText(journal)
    for run in range(runs):
        lease = await driven(journal, f"s-{run}", thread=f"t-{run}")
        await journal.append(f"s-{run}", [permit("m1", 1, CallKind.MODEL)], after=1, epoch=lease.epoch)
    print("ready", flush=True)
    offset = 0
    while True:
        token = f"{time.time():.6f} "
        for run in range(runs):
            text.hear(f"s-{run}", "m1", offset, token)
        offset += len(token)
        await asyncio.sleep(0.02)


async def on_demand(journal: Journal, events: int) -> None:
    """Append to the run `on-demand`, one event for each line of the standard input."""
    await driven(journal, "on-demand")
    print("ready", flush=True)
    for seq in range(1, events + 1):
        await asyncio.to_thread(sys.stdin.readline)
        await journal.append("on-demand", [outcome()], after=seq, epoch=1)


async def fill(journal: Journal, events: int) -> None:
    """Append to the run `shared` as one of several, each as fast as it can."""
    print("ready", flush=True)
    for _ in range(events):
        await journal.append("shared", [outcome(id=f"{time.time_ns()}-{id(journal)}")], after=1, epoch=1)


async def permits(journal: Journal, writers: int) -> None:
    """Begin calls back to back in so many runs, until all of them are fenced; then say so, and go on when told to."""
    leases = [await driven(journal, f"p-{os.getpid()}-{number}", thread=f"t-{number}") for number in range(writers)]

    async def write(lease: Lease) -> None:
        for seq in count(len(await journal.read(lease.run))):
            try:
                await journal.append(lease.run, [permit(f"c{seq}", lease.epoch)], after=seq, epoch=lease.epoch)
            except Fenced:
                return

    print("ready", flush=True)
    while True:
        await asyncio.gather(*(write(lease) for lease in leases))
        print("fenced", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


async def flag(journal: Journal, seconds: int) -> None:
    """Keep a flag up, as a process that was frozen in a hurry would."""
    with open(f"{sys.argv[2]}-verbs", "r+") as flags:  # noqa: ASYNC230
        fcntl.flock(flags, fcntl.LOCK_SH)
        print("ready", flush=True)
        await asyncio.sleep(seconds)


async def main(what: str, database: str, number: int) -> None:
    known = {
        "busy": busy,
        "talk": talk,
        "stream": stream,
        "on_demand": on_demand,
        "fill": fill,
        "flag": flag,
        "permits": permits,
    }
    async with await open_journal(database) as journal:
        await known[what](journal, number)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
