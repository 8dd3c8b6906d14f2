"""`checkrein serve --reload`: new code for the drivers when a file of the agents has changed.

The files are looked at, not the system's notices of changes: those differ from system to system. New code is loaded
once in a process of its own before any driver is ended for it. What cannot be loaded is said, and the old code goes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from checkrein.agents.loader import agents_in, local_files
from checkrein.asyncutil import kill
from checkrein.errors import CheckreinError, WrongInput

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.5
LOAD_SECONDS: Final = 60.0
"""How long new code may take to be loaded before it counts as broken."""

Looks = Mapping[Path, tuple[int, int]]
"""When each file was written, and how long it is."""


class Drivers(Protocol):
    def restart(self) -> None:
        """Have every driver pause its runs durably and end, and another one started in its place."""


class Reloader:
    """Watches the files of the agents that `said` means. `tell` is told a sentence for whoever sits there."""

    def __init__(
        self,
        said: str,
        tell: Callable[[str], None],
        *,
        without: frozenset[str] = frozenset(),
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """`without` are the variables of the environment that are not for the code of an agent."""
        self._said = said
        self._tell = tell
        self._without = without
        self._look_seconds = look_seconds
        self._files = self._known()

    async def watch(self, drivers: Drivers) -> None:
        """Until it is cancelled."""
        seen = self._looks()
        while True:
            await asyncio.sleep(self._look_seconds)
            now = self._looks()
            if now == seen:
                continue
            changed = sorted(path for path in {*seen, *now} if seen.get(path) != now.get(path))
            # An editor may write a file in several steps, and several files: all of it counts as one change.
            while (later := await self._later()) != now:
                now = later
            seen = now
            await self._renew(changed, drivers)
            self._files |= self._known()
            seen = {**self._looks(), **seen}

    async def _later(self) -> Looks:
        await asyncio.sleep(self._look_seconds)
        return self._looks()

    async def _renew(self, changed: list[Path], drivers: Drivers) -> None:
        names = _named(changed)
        broken = await why_broken(self._said, without=self._without)
        if broken is not None:
            _log.warning("changed code cannot be loaded: %s", broken)
            self._tell(f"{names} has changed and cannot be loaded, so the old code goes on. {broken}")
            return
        _log.info("the drivers are started again with changed code", extra={"files": names})
        self._tell(f"{names} has changed: what is at work is paused, and goes on with the new code.")
        drivers.restart()

    def _known(self) -> set[Path]:
        try:
            return local_files(self._said)
        except WrongInput as error:
            _log.info("the files of the agents are not known: %s", error)
            return set()

    def _looks(self) -> Looks:
        looks: dict[Path, tuple[int, int]] = {}
        for path in self._files:
            with suppress(OSError):  # gone, for the moment or for good: that it looks otherwise is what counts
                found = path.stat()
                looks[path] = (found.st_mtime_ns, found.st_size)
        return looks


def _named(files: list[Path]) -> str:
    return ", ".join(os.path.relpath(path) for path in files[:3]) + (", …" if len(files) > 3 else "")


async def why_broken(said: str, *, without: frozenset[str] = frozenset()) -> str | None:
    """What is wrong with the agents as they are now; None where they can be loaded. They are, in another process."""
    ours, theirs = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-c",
            "import sys; from checkrein.cli.reload import main; main(sys.argv[1], int(sys.argv[2]))",
            said,
            str(theirs),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name not in without},
            pass_fds=[theirs],
        )
    finally:
        os.close(theirs)
    try:
        async with asyncio.timeout(LOAD_SECONDS):
            code = await process.wait()
    except TimeoutError:
        return f"It was not loaded within {LOAD_SECONDS:g} s."
    finally:
        await kill(process)
        written = _drained(ours)
    if code == 0:
        return None
    return written.decode(errors="replace") or f"The process that loaded it ended with code {code}."


def _drained(descriptor: int) -> bytes:
    """What a process has written that has ended. It had room for it."""
    with open(descriptor, "rb", buffering=0) as pipe:
        os.set_blocking(descriptor, False)
        return pipe.read(65536) or b""


def main(said: str, descriptor: int) -> None:
    """Load the agents in this process, and write what is wrong with them to the descriptor."""
    os.set_inheritable(descriptor, False)
    try:
        agents_in(said)
    except CheckreinError as error:
        os.write(descriptor, error.message.encode(errors="replace")[:4096])
        os._exit(2)
    os._exit(0)
