"""A stage to perform on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checkrein.runtime.performance import ToolPerformance
from checkrein.runtime.stage import Stage
from tests.runtime.witness import none_left_of

Start = Callable[..., ToolPerformance]


@pytest.fixture
async def stage(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Stage]:
    """D4: when it is closed, no process that it has started is left, in any test that uses it."""
    async with Stage(tmp_path / "calls") as stage:
        yield stage
    await none_left_of(stage.runtime)


@pytest.fixture
def start(stage: Stage) -> Start:
    """Begin a call with keyword arguments; those of `Stage.start` are given as `_id`, `_isolation` and so on."""
    count = 0

    def begin(function: Callable[..., Any], **arguments: Any) -> ToolPerformance:
        nonlocal count
        count += 1
        options = {name[1:]: arguments.pop(name) for name in list(arguments) if name.startswith("_")}
        options.setdefault("id", f"c{count}")
        options.setdefault("key", f"run/{options['id']}")
        return stage.start(function, msgspec.json.encode(arguments), **options)

    return begin
