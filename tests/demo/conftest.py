from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from checkrein import Runtime
from checkrein.demo import data


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the demo's data set."""
    made = tmp_path / "demo"
    data.make(made)
    return made


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
async def runtime(store: str) -> AsyncIterator[Runtime]:
    async with Runtime(store) as opened:
        yield opened
