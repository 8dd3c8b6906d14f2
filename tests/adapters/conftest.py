from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from checkrein.testing.provider import Provider, Reply
from tests.adapters import clients
from tests.support.patient_verbs import patient_verbs
from tests.support.witness import Witness

__all__ = ["patient_verbs"]

OF_THE_LIBRARY = pytest.mark.filterwarnings(
    "ignore:Inheritance class AiohttpClientSession",  # of google-genai
    "ignore:The `plugins` argument is deprecated",  # of google-adk, which gives it to itself
)
FRAMEWORKS = ("pydantic_ai", "langgraph", "openai_agents", pytest.param("google_adk", marks=OF_THE_LIBRARY))


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> Any:
    """What a framework brings to the contract: `plain`, `adapted`, `typed`, `nested`."""
    return importlib.import_module(f"tests.adapters.frameworks.{request.param}")


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "log")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'runs.db'}"


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider([Reply("Done.")]) as made:
        yield made
        await clients.close()
