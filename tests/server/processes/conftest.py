from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.processes.serving import Place, new_place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A folder for servers. Afterwards nothing of them may be left, however the test went."""
    with new_place(tmp_path) as place:
        yield place
