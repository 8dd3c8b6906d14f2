"""The server of the storms: the real `checkrein serve`, which may be killed and frozen, and comes back.

The witnesses are the log that the tools write, line by line, and the process table.
"""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import struct
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.cli.shell import PROGRAM
from tests.server.processes.client import TOKEN, Answer, Client
from tests.support.patience import PATIENCE_SECONDS

CAST = Path(__file__).parent / "cast.py"
CLOCK = Path(__file__).parent / "clock.c"
LOOK_SECONDS = 0.25
BACK_SECONDS = 60.0
"""How long a front that was killed may take to answer again, on an idle machine."""


class NotAnswered(Exception):
    """A request that the front has not answered in its time."""


class House:
    """One server on one store, for as many storms as one likes. Every method may be called from any thread."""

    def __init__(self, folder: Path, *, with_clock: bool = False) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.log.touch()
        self.output = folder / "output"
        self._clock = folder / "clock"
        self._with_clock = with_clock
        shutil.copy(CAST, folder / "cast.py")
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("CHECKREIN")},
            "CHECKREIN_TOKEN": TOKEN,
            "WITNESS": str(self.log),
        }
        if with_clock:
            self._clock.write_bytes(bytes(8))
            library = folder / "clock.so"
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(CLOCK)], check=True)
            self._environment |= {"LD_PRELOAD": str(library), "STORM_CLOCK": str(self._clock)}
        self.wrong: list[str] = []
        """What is wrong with the server itself."""
        self.killed: set[int] = set()
        """The processes that storms have killed."""
        self._lock = threading.Lock()
        self._port = 0
        self._start()
        self.client = Client(self._port)
        self.ready_seconds = 0.0
        """For how long, altogether, some driver was ready."""
        self._is_over = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()

    def _start(self) -> None:
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [*PROGRAM, "serve", "cast.py", "--port", str(self._port), "--drivers", "2"],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not (found := _ports(self._process.pid)):
            assert time.monotonic() < give_up, self.said()
            assert self._process.poll() is None, self.said()
            time.sleep(0.02)
        self._port = found[0]

    def _look(self) -> None:
        before = time.monotonic()
        while not self._is_over.wait(LOOK_SECONDS):
            now = time.monotonic()
            self._look_after()
            with suppress(OSError, http.client.HTTPException, AssertionError):
                if self.client.get("/healthz")["status"] == "ok":
                    self.ready_seconds += min(now - before, 2 * LOOK_SECONDS)
            before = now

    def _look_after(self) -> None:
        with self._lock:
            if (code := self._process.poll()) is not None:
                self.wrong.append(f"the server has ended by itself with {code}: {self.said()}")
                self._start()

    # -- what people do

    def start(self, agent: str, goal: str, key: str) -> Answer:
        """The run with this key in its goal. A start has no id by which a repeat is known: where its answer was lost,
        the run is looked for, and started again only if there is none."""
        body = {"agent": agent, "goal": goal}
        while True:
            try:
                return self.client.ask("POST", "/api/runs", body)
            except (OSError, http.client.HTTPException):
                found = self.ask("GET", f"/api/runs?search={key}")
                if found.status == 200 and found.body["runs"]:
                    return Answer(201, found.body["runs"][0], found.seconds)

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """An answer, also where the front was killed in between: then it is asked again when it is back. Whatever is
        asked this way may be asked twice."""
        began = time.monotonic()
        while True:
            try:
                return self.client.ask(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() - began > BACK_SECONDS + PATIENCE_SECONDS:
                    raise NotAnswered(f"{method} {path}: {error!r}") from error
                time.sleep(0.1)

    def command(self, *words: str) -> int:
        """A command in a terminal on the same store; its exit code."""
        done = subprocess.run(
            [*PROGRAM, *words],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=BACK_SECONDS + PATIENCE_SECONDS,
        )
        return done.returncode

    # -- what happens to it

    def drivers(self) -> list[int]:
        try:
            children = psutil.Process(self._process.pid).children()
        except psutil.Error:
            return []
        return [one.pid for one in children if "driver_main" in " ".join(_line(one))]

    def kill_front(self) -> None:
        with self._lock:
            self._process.kill()
            self._process.wait()
            self._start()

    def jump(self, seconds: int) -> None:
        """Have the wall clock of every process of the server jump to so many seconds beside the true time."""
        with self._clock.open("r+b", buffering=0) as clock:
            clock.write(struct.pack("q", seconds))

    @property
    def has_clock(self) -> bool:
        return self._with_clock

    # -- what is known of it from outside

    def said(self) -> str:
        return self.output.read_text(errors="replace")[-4000:]

    def written(self) -> int:
        """How much the tools have written so far."""
        return self.log.stat().st_size

    def lines(self, key: str, since: int = 0) -> list[tuple[int, str]]:
        """What was written about the calls of one run: which call, and which word; from this place in the log."""
        with self.log.open("rb") as log:
            log.seek(since)
            found = [line.decode().split(" ", 1) for line in log if line.startswith(f"{key}.".encode())]
        return [(int(name.rpartition(".")[2]), word.strip()) for name, word in found]

    def left(self) -> list[str]:
        """Every process that comes from here, by its environment or by what it was started with."""
        mark, found = str(self.log), []
        for one in psutil.process_iter():
            line = _line(one)
            environment: dict[str, str] = {}
            with suppress(psutil.Error):
                environment = one.environ()
            if one.pid != os.getpid() and (environment.get("WITNESS") == mark or any(mark in word for word in line)):
                found.append(f"{one.pid} {' '.join(line)[:200]}")
        return found

    # -- the end

    def end(self) -> int:
        """Shut it down in order; its exit code."""
        self._is_over.set()
        self._looking.join()
        self._process.terminate()
        return self._process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """Leave nothing, however it went."""
        self._is_over.set()
        self._looking.join()
        for line in self.left():
            with suppress(OSError):
                os.kill(int(line.split()[0]), signal.SIGKILL)
        self._process.kill()
        self._process.wait()


def _ports(pid: int) -> list[int]:
    try:
        return [one.laddr.port for one in psutil.Process(pid).net_connections() if one.status == psutil.CONN_LISTEN]
    except psutil.Error:
        return []


def _line(process: psutil.Process) -> list[str]:
    try:
        return [] if process.status() == psutil.STATUS_ZOMBIE else process.cmdline()
    except psutil.Error:
        return []
