from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from checkrein import AsyncClient, Runtime
from tests.server.serving import app_over, serving


class Served(NamedTuple):
    """A server over `runtime` in this event loop, and a client of it; agents are added with `runtime.add`."""

    url: str
    runtime: Runtime
    client: AsyncClient


@pytest.fixture
async def served(runtime: Runtime) -> AsyncIterator[Served]:
    async with serving(app_over(runtime)) as opened, AsyncClient(opened.base, "ckr_secret-of-ann") as client:
        yield Served(opened.base, runtime, client)
