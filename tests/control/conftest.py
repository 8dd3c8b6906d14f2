from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from checkrein import Runtime
from checkrein.runtime import marking
from checkrein.runtime.lineage import Family
from tests.runtime.witness import Witness, until


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    """The log that tools write themselves."""
    return Witness(tmp_path / "log")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
async def runtime(store: str) -> AsyncIterator[Runtime]:
    """D4: when it is closed, no process that it has started is left, in any test that uses it."""
    async with Runtime(store) as opened:
        yield opened
    family = Family(marks=((marking.RUNTIME, opened._stage.runtime),))
    await until(lambda: not family.members())
