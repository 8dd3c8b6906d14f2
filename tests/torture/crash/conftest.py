"""Where crashes happen, from which seed, and how their numbers reach the reader."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.torture.crash import shim
from tests.torture.crash.crew import crew
from tests.torture.crash.tally import Tally, total
from tests.torture.folders import folder_in_memory

SEED = "CHECKREIN_CRASH_SEED"
_TALLIES = pytest.StashKey[list[Tally]]()
_SEED = pytest.StashKey[int]()
_SKIPPED = pytest.StashKey[set[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TALLIES] = []
    config.stash[_SKIPPED] = set()


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    tallies, skipped = config.stash[_TALLIES], config.stash[_SKIPPED]
    lines = [*map(str, tallies), *(f"skipped: {reason}" for reason in skipped)]
    if tallies:
        lines += [total(tallies), f"repeat with {SEED}={config.stash[_SEED]}"]
    if lines:
        terminalreporter.section("crashes")
    for line in lines:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def skip_aloud(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Skip a test, and say why even to somebody who did not ask."""

    def skip(reason: str) -> None:
        request.config.stash[_SKIPPED].add(reason)
        pytest.skip(reason)

    return skip


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory, skip_aloud: Callable[[str], None]) -> Path:
    """The failing disk, compiled."""
    if (reason := shim.missing_compiler()) is not None:
        skip_aloud(reason)
    return shim.build(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="module")
def pool(library: Path) -> Iterator[ProcessPoolExecutor]:
    """Warm interpreters with the failing disk preloaded, though not armed."""
    with crew(library) as workers:
        yield workers


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    """A folder for the disks of a module."""
    with folder_in_memory("checkrein-crash-") as folder:
        yield folder


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """From which all that is random here follows. Told at the end, so that a failure can be repeated."""
    value = int(os.environ.get(SEED) or random.SystemRandom().getrandbits(32))
    request.config.stash[_SEED] = value
    return value


@pytest.fixture
def summarise(request: pytest.FixtureRequest, seed: int) -> Callable[[Tally], None]:
    """Tell how it went, now and again at the end of the whole run."""
    tallies = request.config.stash[_TALLIES]

    def add(tally: Tally) -> None:
        print(f"\n{tally} [{SEED}={seed}]", flush=True)
        tallies.append(tally)

    return add
