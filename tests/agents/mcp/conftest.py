from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein import MCP, Runtime
from checkrein.runtime import marking
from checkrein.runtime.lineage import Family
from tests.agents.mcp.scene import command, listening
from tests.runtime.witness import Witness, until

Make = Callable[..., MCP]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    """The log that the tools of the server write."""
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


@pytest.fixture(params=["stdio", "http", "stdio, older", "http, older"])
async def notes(
    request: pytest.FixtureRequest, witness: Witness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Make]:
    """Makes the source of tools: a command or a URL, and the protocol of 2026 or the one before."""
    if request.param.endswith("older"):
        monkeypatch.setattr("checkrein.agents.mcp.wire.MODE", "legacy")
    if request.param.startswith("stdio"):
        yield lambda **options: command(witness, **options)
        return
    async with listening(witness, tmp_path) as (url, _):

        def by_url(**options: Any) -> MCP:
            return MCP("notes", url=url, **options)

        yield by_url
