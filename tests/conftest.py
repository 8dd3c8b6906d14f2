"""What tests of several folders share. A folder's own conftest adds to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from checkrein import Runtime
from tests.runtime.witness import Witness, none_left_of


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def log(tmp_path: Path) -> str:
    """The file that tools write to themselves."""
    return str(tmp_path / "log")


@pytest.fixture
def witness(log: str) -> Witness:
    """That file, to be asked what really happened."""
    return Witness(log)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
async def runtime(store: str, anyio_backend: str) -> AsyncIterator[Runtime]:
    """D4: when it is closed, no process that it has started is left, in any test that uses it."""
    async with Runtime(store) as opened:
        yield opened
    await none_left_of(opened._stage.runtime)
