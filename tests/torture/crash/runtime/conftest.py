"""How the numbers reach the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.torture.crash.conftest import SEED
from tests.torture.crash.crew import crew

_TOLD: list[str] = []


def pytest_terminal_summary(terminalreporter) -> None:
    if _TOLD:
        terminalreporter.section("the runtime, killed and frozen")
    for line in _TOLD:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def hands() -> Iterator[ProcessPoolExecutor]:
    """Two warm interpreters to play in: a play forks, kills and freezes, which is nothing for pytest's own process."""
    with crew(workers=2) as pool:
        yield pool


@pytest.fixture
def tell(seed: int) -> Callable[[str], None]:
    """Say how it went, now and again at the end of the whole run."""

    def add(line: str) -> None:
        print(f"\n{line} [{SEED}={seed}]", flush=True)
        _TOLD.append(f"{line} [{SEED}={seed}]")

    return add
