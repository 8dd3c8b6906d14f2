"""A real model is asked for with `make test-model`, which brings it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from checkrein import Runtime
from tests.real_model.engine import Engine, engine


@pytest.fixture(scope="session")
def real() -> Iterator[Engine]:
    python = os.environ.get("CHECKREIN_MODEL_PYTHON", "")
    assert python, "CHECKREIN_MODEL_PYTHON names an interpreter that has the model; `make test-model` makes one"
    with engine(python) as up:
        yield up


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    async with Runtime("memory:") as runtime:
        yield runtime
