from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkrein.cli import output
from tests.cli.shell import Shell


@pytest.fixture(autouse=True)
def _nothing_typed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command remembers for its process which store or server was named; a test may have run one in this process."""
    monkeypatch.setattr(output, "_options", [])
    monkeypatch.setattr(output, "_file", ["FILE"])


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(tmp_path)
    yield opened
    opened.close()
