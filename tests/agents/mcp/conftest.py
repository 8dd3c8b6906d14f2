from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein import MCP
from tests.agents.mcp.scene import command, listening
from tests.runtime.witness import Witness

Make = Callable[..., MCP]


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
