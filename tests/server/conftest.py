from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from checkrein import Runtime
from tests.runtime.witness import Witness
from tests.server.serving import Client, app_over, serving


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "log")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
async def runtime(store: str) -> AsyncIterator[Runtime]:
    async with Runtime(store) as opened:
        yield opened


@pytest.fixture
async def client(runtime: Runtime) -> AsyncIterator[Client]:
    """A server over `runtime` that believes who asks; agents are added with `runtime.add`."""
    async with serving(app_over(runtime)) as opened:
        yield opened
