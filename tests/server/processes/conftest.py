from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.server.processes.serving import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A folder for servers. Afterwards nothing of them may be left, however the test went."""
    shell = Shell(tmp_path)
    opened = Place(shell)
    yield opened
    shell.close()
    opened.nothing_is_left()
