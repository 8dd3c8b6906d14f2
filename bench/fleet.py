"""Several machines on one: a PostgreSQL server, workers on hosts of their own, and fronts, each a process of its own.

A worker gets a host name and a pid namespace of its own (`unshare`), so that nobody takes its processes for those of
this host; where that is not allowed it shares this one.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import anyio.to_thread
import psutil

from bench.harness import Room
from bench.processor import Used, postmaster
from bench.report import ROOT
from bench.verbs_under_load import TOKEN, ask, server_port
from tests.support.postgres import Cluster, running

AGENTS: Final = ROOT / "bench" / "fleet_agents.py"
PROGRAM: Final = "from checkrein.cli import main; main()"
PATIENCE_SECONDS: Final = 180.0
AT_ONCE: Final = 8

_numbers = count(1)


class Noted(NamedTuple):
    """What a tool wrote down itself."""

    what: str
    about: str
    at: float
    host: str


class Process:
    """A worker or a front, with everything it has started."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen
        self.pid = popen.pid
        self.port = 0
        """Where a front answers."""

    def used(self) -> Used:
        return Used(self.pid)

    def memory(self) -> int:
        """Bytes that belong to these processes alone."""
        root = psutil.Process(self.pid)
        return sum(one.memory_full_info().uss for one in (root, *root.children(recursive=True)))

    def kill(self) -> None:
        """As when a machine goes away: nothing of it has time for anything."""
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.pid)
            family = [root, *root.children(recursive=True)]
            for signal_number in (signal.SIGSTOP, signal.SIGKILL):
                for one in family:
                    with suppress(psutil.NoSuchProcess):
                        one.send_signal(signal_number)
        self.popen.wait()


class Fleet:
    """Give the context manager `fleet`."""

    def __init__(self, room: Room, cluster: Cluster, stack: ExitStack) -> None:
        self._stack = stack
        self.cluster = cluster
        self.store = cluster.address()
        self.log = room.folder / "log-of-the-tools"
        self.gate = room.folder / "gate"
        self.log.touch()
        self._environment = {
            **os.environ,
            "CHECKREIN_TOKEN": TOKEN,
            "CHECKREIN_STORE": self.store,
            "BENCH_LOG": str(self.log),
            "BENCH_GATE": str(self.gate),
            "PYTHONPATH": str(ROOT),
        }

    async def worker(self, *options: str) -> Process:
        """Returns when it is at work."""
        name = f"host-{next(_numbers)}"
        command = [sys.executable, "-c", PROGRAM, "worker", str(AGENTS), "--name", name, *options]
        return await anyio.to_thread.run_sync(self._start_worker, _on_a_host_of_its_own(name, command), name)

    async def front(self) -> Process:
        process = self._start([sys.executable, "-c", PROGRAM, "serve", "--port", "0"])
        process.port = await anyio.to_thread.run_sync(server_port, process.popen)
        return process

    def server(self) -> Used:
        """What the database uses from now on."""
        return Used(postmaster(self.cluster))

    def _start_worker(self, command: Sequence[str], name: str) -> Process:
        health = Path(tempfile.mkdtemp(dir=self.log.parent)) / "health"
        process = self._start([*command, "--health-file", str(health)])
        _until(health.exists, f"{name} to be at work")
        return process

    def _start(self, command: Sequence[str]) -> Process:
        process = Process(subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=subprocess.PIPE, text=True))
        self._stack.callback(process.kill)
        return process

    # -- runs

    async def begin(self, front: Process, agent: str, goals: Sequence[str]) -> list[str]:
        """Runs, begun some at a time."""
        limiter = anyio.CapacityLimiter(AT_ONCE)

        async def begin(goal: str) -> str:
            body = {"agent": agent, "goal": goal}
            answer = await anyio.to_thread.run_sync(ask, front.port, "/api/runs", body, limiter=limiter)
            return str(answer["id"])

        return list(await asyncio.gather(*map(begin, goals)))

    def notes(self, what: str) -> dict[str, Noted]:
        """What tools have noted, by what it is about; the latest of each."""
        lines = (line.split(" ") for line in self.log.read_text().splitlines())
        return {about: Noted(kind, about, float(at), host) for kind, about, at, host in lines if kind == what}

    async def until_noted(self, what: str, names: Sequence[str], since: float = 0.0) -> dict[str, Noted]:
        """Until there is a note of this kind about each of them, made since then."""

        def has_all() -> bool:
            notes = self.notes(what)
            return all(name in notes and notes[name].at > since for name in names)

        await anyio.to_thread.run_sync(_until, has_all, f"all to have {what}")
        return self.notes(what)

    def counted(self, query: str) -> int:
        with self.cluster.connect() as db:
            row = db.execute(query.encode()).fetchone()
        assert row is not None
        return int(str(row[0]))

    async def until_counted(self, query: str, least: int) -> None:
        """Until the store has so many of something."""
        await anyio.to_thread.run_sync(_until, lambda: self.counted(query) >= least, query)


@asynccontextmanager
async def fleet(room: Room, **settings: Any) -> AsyncIterator[Fleet]:
    """A server and nobody else yet. What is started ends with it."""
    async with AsyncExitStack() as outer:
        cluster = outer.enter_context(running(within=room.folder, **settings))
        stack = ExitStack()
        outer.push_async_callback(anyio.to_thread.run_sync, stack.close)
        yield Fleet(room, cluster, stack)


def _until(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > until:
            raise RuntimeError(f"waited {PATIENCE_SECONDS:.0f} s for {what}")
        time.sleep(0.02)


def _on_a_host_of_its_own(name: str, command: Sequence[str]) -> list[str]:
    if not has_hosts():
        return list(command)
    inner = f'hostname {re.escape(name)} && exec "$@"'
    return ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", inner, "sh", *command]


@cache
def has_hosts() -> bool:
    """Whether a process may be given a host name and a pid namespace here."""
    asked = ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "hostname", "a-host"]
    try:
        return subprocess.run(asked, capture_output=True).returncode == 0
    except OSError:
        return False
