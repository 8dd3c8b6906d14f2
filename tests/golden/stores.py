"""Makes the stores that new code must go on reading: `python -m tests.golden.record stores`.

They are made by processes that take themselves for one of another machine (`HOST`), so that nothing of the machine that
recorded them is in them, and their hashes are right because nothing was edited afterwards. What the tools had logged by
then is kept beside each store, as `<name>.txt`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from checkrein import Run, Runtime
from checkrein.control.halt import Halting
from checkrein.processes import identity
from tests.golden import agents
from tests.golden.agents import boss, clerk, gate, planner, program
from tests.golden.compare import STORES
from tests.golden.scenarios import ends, noted, settled, stage, until, until_status
from tests.support.patience import PATIENCE_SECONDS
from tests.support.snapshots import save_snapshot

HOST: Final = "golden-host"
BOOT: Final = "golden-boot"
ROOT: Final = Path(__file__).parents[2]

Make = Callable[[Path], Awaitable[None]]


def pretend() -> None:
    """From now on this process says that it lives on another machine."""
    identity._host = lambda: HOST  # type: ignore[assignment]
    identity._boot_id = lambda: BOOT  # type: ignore[assignment]


# -- processes that are killed


async def _killed(folder: Path, child: str, *words: str) -> None:
    """Run `child` of `CHILDREN` in a process of its own, and kill it when its tools have written all these words."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-m", "tests.golden.stores", child, str(folder)], env=environment)
    os.environ[agents.LOG] = str(folder / "log")
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            for word in words:
                await noted(word)
    finally:
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)


async def _fetching(runtime: Runtime) -> None:
    await ends(await runtime.start(clerk, "fetches", owner="ann"))


async def _sending(runtime: Runtime) -> None:
    sending = await runtime.start(clerk, "sends")
    await noted("send bob")
    drafting = await runtime.start(program, "waits")
    await ends(drafting)
    await ends(sending)


CHILDREN: Final[Mapping[str, Callable[[Runtime], Awaitable[None]]]] = {"fetching": _fetching, "sending": _sending}


async def _be_killed(child: str, folder: Path) -> None:
    async with stage(folder) as runtime:
        await CHILDREN[child](runtime)


# -- the stores


async def _save_snapshots(runtime: Runtime) -> None:
    for row in await runtime.runs():
        await save_snapshot(runtime.journal, await runtime.journal.load(row.id))


async def completed(folder: Path) -> None:
    """Three completed runs, one with a sub-run, and snapshots of their states."""
    async with stage(folder) as runtime:
        await ends(await runtime.start(clerk, "two tools", owner="ann", thread="golden"))
        await ends(await runtime.start(program, "everything"))
        gate("completes below").touch()
        await ends(await runtime.start(boss, "completes below"))
        await _save_snapshots(runtime)


async def paused_program(folder: Path) -> None:
    """A program that a person paused in its middle; it has one more tool to use. With a snapshot."""
    async with stage(folder) as runtime:
        run = await runtime.start(program, "waits")
        await noted("begin bob")
        await _pause_at_work(run, "waits")
        await _save_snapshots(runtime)


async def _pause_at_work(run: Run, opens: str) -> None:
    pausing = asyncio.create_task(run.pause(by="ann", reason="lunch", wait=PATIENCE_SECONDS))
    await until_status(run, "pausing")
    gate(opens).touch()
    settled(await pausing)


async def in_doubt(folder: Path) -> None:
    """Two runs, each with a call in doubt: a tool without an undo, and one with."""
    await _killed(folder, "sending", "send bob", "begin bob")
    async with stage(folder) as runtime:
        for row in await runtime.runs():
            await until(await runtime.get(row.id), lambda state: state.doubts)


async def cancelled(folder: Path) -> None:
    """Cancelled runs with their receipts: undone, left, with a sub-run, and one that was halted."""
    async with stage(folder) as runtime:
        run = await runtime.start(clerk, "cancelled")
        await noted("begin bob")
        settled(await run.cancel(by="ann", reason="wrong direction"))
        run = await runtime.start(clerk, "stubborn")
        await noted("crunch stubborn")
        settled(await run.cancel(by="ann"))
        run = await runtime.start(boss, "cancelled below")
        await noted("begin below cancelled below")
        settled(await run.cancel(by="ann"))
        run = await runtime.start(planner, "pays")
        await until(run, lambda state: state.approvals)
        halting = Halting(runtime.journal, identity.this_process())
        await halting.halt("agent", planner.name, by="operator", reason="enough", wait=PATIENCE_SECONDS)


async def killed(folder: Path) -> None:
    """A run whose process was killed while a tool was at work that may be tried again."""
    await _killed(folder, "fetching", "fetch fetches")


async def paused_in_a_text(folder: Path) -> None:
    """The built-in loop, paused by a person in the middle of a text."""
    async with stage(folder) as runtime:
        run = await runtime.start(clerk, "tells and drafts")
        await noted("waiting tells and drafts")
        settled(await run.pause(by="ann"))


async def paused_sub_runs(folder: Path) -> None:
    """A run and its sub-run, both paused by a person's pause of the upper one."""
    async with stage(folder) as runtime:
        run = await runtime.start(boss, "paused below")
        await noted("begin below paused below")
        (below,) = await runtime.journal.runs(root=run.id)
        pausing = asyncio.create_task(run.pause(by="ann", wait=PATIENCE_SECONDS))
        await until_status(await runtime.get(below.id), "pausing")
        gate("paused below").touch()
        settled(await pausing)


async def waiting(folder: Path) -> None:
    """A run that waits for a person's approval, put to rest by the end of its runtime."""
    async with stage(folder) as runtime:
        run = await runtime.start(clerk, "pays")
        await until(run, lambda state: state.approvals)


MAKE: Final[Mapping[str, Make]] = {
    make.__name__: make
    for make in (completed, paused_program, in_doubt, cancelled, killed, paused_in_a_text, paused_sub_runs, waiting)
}


async def _record(name: str, make: Make) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "log").touch()
        await make(Path(folder))
        with sqlite3.connect(f"{folder}/runs.db") as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        STORES.mkdir(exist_ok=True)
        shutil.copy(f"{folder}/runs.db", STORES / f"{name}.db")
        shutil.copy(f"{folder}/log", STORES / f"{name}.txt")


def record_stores() -> None:
    pretend()
    for name, make in MAKE.items():
        asyncio.run(_record(name, make))


# -- copies to work on


@asynccontextmanager
async def reopened(name: str, folder: Path) -> AsyncIterator[Runtime]:
    """The code of today on a copy of a store, with the log that its tools had kept."""
    copy(name, folder)
    async with stage(folder) as runtime, asyncio.timeout(PATIENCE_SECONDS):
        yield runtime


def copy(name: str, folder: Path) -> str:
    """A copy of a store and of its tools' log, and its address."""
    shutil.copy(STORES / f"{name}.db", folder / "runs.db")
    shutil.copy(STORES / f"{name}.txt", folder / "log")
    return f"sqlite:///{folder}/runs.db"


if __name__ == "__main__":
    pretend()
    asyncio.run(_be_killed(sys.argv[1], Path(sys.argv[2])))
