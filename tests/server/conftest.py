from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from checkrein import Runtime
from tests.server.serving import Client, app_over, serving


@pytest.fixture
async def client(runtime: Runtime) -> AsyncIterator[Client]:
    """A server over `runtime` that believes who asks; agents are added with `runtime.add`."""
    async with serving(app_over(runtime)) as opened:
        yield opened
