"""A process of `postgres_processes`, which appends when it is told to, and says how many appends it made in a second.

python -m bench.appender ADDRESS told|untold NUMBER, which goes on with each line of its standard input, until its end
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio import to_thread
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from bench.postgres_journal import pair, prepared
from bench.report import ROOT
from bench.workload import DrivenRun, begin
from checkrein.journal import open_journal
from checkrein.journal.postgres.writes import batch

WRITERS: Final = 20
EACH: Final = 20
"""How many appends each writer makes at a turn."""
PATIENCE_SECONDS: Final = 120.0


class Appender:
    """Such a process, as the one sees it that measures."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, BufferedByteReceiveStream(process.stdout)

    async def appends_per_second(self) -> float:
        await self._stdin.send(b"\n")
        with anyio.fail_after(PATIENCE_SECONDS):
            return float(await self._stdout.receive_until(b"\n", 100))


@asynccontextmanager
async def appender(address: str, way: str, number: int) -> AsyncIterator[Appender]:
    command = [sys.executable, "-m", "bench.appender", address, way, str(number)]
    async with await anyio.open_process(command, stdout=subprocess.PIPE, stderr=None, cwd=ROOT) as process:
        try:
            yield Appender(process)
        finally:
            process.kill()


def leave_untold() -> None:
    """The same statements, but what they would tell others is only put together."""
    for name in ("APPEND_EVENTS", "APPEND_TO_ONE"):
        statement = getattr(batch, name)
        assert "pg_notify(" in statement
        setattr(batch, name, statement.replace("pg_notify(", "concat("))


async def main(address: str, way: str, number: str) -> None:
    if way == "untold":
        leave_untold()
    async with await open_journal(address) as journal:
        await prepared(journal)
        runs = [await begin(journal, f"{way}-{number}-{writer}") for writer in range(WRITERS)]
        while await to_thread.run_sync(sys.stdin.readline):
            began = time.perf_counter()
            async with anyio.create_task_group() as tasks:
                for run in runs:
                    tasks.start_soon(_append, run)
            print(WRITERS * EACH / (time.perf_counter() - began), flush=True)


async def _append(run: DrivenRun) -> None:
    for _ in range(EACH):
        await run.append(*pair())


if __name__ == "__main__":
    _, address, way, number = sys.argv
    anyio.run(main, address, way, number)
