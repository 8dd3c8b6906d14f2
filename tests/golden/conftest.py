from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from checkrein import Runtime
from tests.golden.scenarios import stage


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def staged(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Runtime]:
    """One runtime for every scenario: each ends its own run."""
    folder: Path = tmp_path_factory.mktemp("golden")
    async with stage(folder) as runtime:
        yield runtime
