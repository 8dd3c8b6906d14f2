from __future__ import annotations

import pytest

from checkrein.control.evidence.bundle import Contents
from tests.control.evidence import sample


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[sample.Sample, Contents]:
    """One run that confessed and was stopped, for all tests that only look at it."""
    return sample.make(tmp_path_factory.mktemp("evidence"))


@pytest.fixture
def stopped(made: tuple[sample.Sample, Contents]) -> sample.Sample:
    return made[0]


@pytest.fixture
def evidence(made: tuple[sample.Sample, Contents]) -> Contents:
    return made[1]
