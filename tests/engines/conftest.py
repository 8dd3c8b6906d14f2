from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from checkrein.journal import open_journal
from tests.engines.fleet import Fleet
from tests.support.patient_verbs import patient_verbs
from tests.support.temporal import TemporalServer
from tests.support.witness import Witness

__all__ = ["patient_verbs"]


@asynccontextmanager
async def fleet_on(
    store: str, witness: Witness, engine: str = "tests.engines.fleet:leases", options: dict[str, Any] | None = None
) -> AsyncIterator[Fleet]:
    async with await open_journal(store) as journal:
        fleet = Fleet(store, journal, witness, engine, options)
        try:
            yield fleet
        finally:
            await fleet.close()


@pytest.fixture
async def leases_on_sqlite(tmp_path: Path, witness: Witness, anyio_backend: str) -> AsyncIterator[Fleet]:
    async with fleet_on(f"sqlite:///{tmp_path}/runs.db", witness) as fleet:
        yield fleet


@pytest.fixture
async def leases_on_postgres(postgres_store: str, witness: Witness, anyio_backend: str) -> AsyncIterator[Fleet]:
    async with fleet_on(postgres_store, witness) as fleet:
        yield fleet


@pytest.fixture
async def by_temporal(
    temporal: TemporalServer, postgres_store: str, witness: Witness, anyio_backend: str
) -> AsyncIterator[Fleet]:
    options = {"address": temporal.address, "namespace": temporal.new_namespace()}
    async with fleet_on(postgres_store, witness, "tests.engines.fleet:temporal", options) as fleet:
        yield fleet


@pytest.fixture(params=["leases_on_sqlite", "leases_on_postgres", "by_temporal"])
def fleet(request: pytest.FixtureRequest) -> Fleet:
    """Every engine. One that is added is a fixture of its own, and its name here."""
    made: Fleet = request.getfixturevalue(request.param)
    return made
