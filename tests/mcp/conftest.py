from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein import MCP
from tests.mcp.scene import command, listening
from tests.support.witness import Witness

Make = Callable[..., MCP]


@pytest.fixture(params=["stdio", "http", "stdio, older", "http, older"])
async def notes_of_every_kind(
    request: pytest.FixtureRequest, witness: Witness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Make]:
    """Makes the source of tools: a command or a URL, and the protocol of 2026 or the one before."""
    async for make in _notes(request, witness, tmp_path, monkeypatch):
        yield make


TORTURE = pytest.mark.torture


@pytest.fixture(
    params=["stdio", "http, older", pytest.param("http", marks=TORTURE), pytest.param("stdio, older", marks=TORTURE)]
)
async def notes(
    request: pytest.FixtureRequest, witness: Witness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Make]:
    """The same, where it is not about stopping: each transport and each protocol once; in torture all four."""
    async for make in _notes(request, witness, tmp_path, monkeypatch):
        yield make


async def _notes(
    request: pytest.FixtureRequest, witness: Witness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Make]:
    if request.param.endswith("older"):
        monkeypatch.setattr("checkrein.mcp.session.MODE", "legacy")
    if request.param.startswith("stdio"):
        yield lambda **options: command(witness, **options)
        return
    async with listening(witness, tmp_path) as (url, _):

        def by_url(**options: Any) -> MCP:
            return MCP("notes", url=url, **options)

        yield by_url
