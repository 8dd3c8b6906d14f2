from __future__ import annotations

from pathlib import Path

import pytest

from checkrein.demo import data
from tests.support.patient_verbs import patient_verbs

__all__ = ["patient_verbs"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the demo's data set."""
    made = tmp_path / "demo"
    data.make(made)
    return made
