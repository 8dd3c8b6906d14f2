"""What tests of several folders share. A folder's own conftest adds to it.

A stage to perform on.
"""

from __future__ import annotations

import os
import signal
import tempfile
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from checkrein import Runtime
from checkrein.calls.executor import ToolExecutor
from checkrein.calls.tool_execution import ToolExecution
from tests.support import temporal as temporal_server
from tests.support.postgres import Cluster, running
from tests.support.witness import Witness, none_left_of

TESTS: Final = Path(__file__).parent

LONGEST: Final = (
    "server/processes/test_drills.py",
    "journal/test_contract_reading.py",
    "promises/test_stop_table.py",
    "server/processes/test_worker.py",
    "engines/test_contract.py",
    "promises/test_redirect.py",
    "cli/test_run.py",
    "cli/test_verbs.py",
    "server/processes/test_lives.py",
    "test_docs.py",
    "test_scale_out.py",
    "engines/test_temporal_drills.py",
    "server/processes/test_wedges.py",
    "torture/races/test_referee.py",
    "cli/screen/test_app.py",
    "promises/test_doubt.py",
    "browser/test_page_two_fronts.py",
    "test_typing.py",
    "torture/races/test_cuts_holding.py",
    "torture/crash/runtime/test_freezes.py",
    "cli/screen/test_terminal.py",
    "torture/explore/test_explorer.py",
    "torture/crash/test_crash_points.py",
    "torture/storms/test_storms.py",
    "torture/crash/runtime/test_kills.py",
    "torture/crash/test_kill.py",
    "torture/races/test_cuts_driving.py",
)
"""Begun first, the longest at the front: a file is done by one process, and at the end none should wait for another."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole files after one another: the longest, then those with many tests, so that what is short fills the gaps."""
    rank = {TESTS / name: number for number, name in enumerate(LONGEST)}
    count = Counter(item.path for item in items)
    items.sort(key=lambda item: (rank.get(item.path, len(rank)), -count[item.path], item.path))


# What a test halts is halted for nobody else on this machine, and nobody's flag halts a test.
os.environ["CHECKREIN_HALT_DIR"] = os.path.join(tempfile.gettempdir(), f"checkrein-test-halts-{os.getpid()}")


def pytest_configure() -> None:
    """A shell lets what it starts in the background ignore Ctrl-C, and that would be inherited by every program that a
    test starts in order to press it there."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def log(tmp_path: Path) -> str:
    """The file that tools write to themselves."""
    return str(tmp_path / "log")


@pytest.fixture
def witness(log: str) -> Witness:
    """That file, to be asked what really happened."""
    return Witness(log)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """One server for this pytest process."""
    with running() as cluster:
        yield cluster


@pytest.fixture
def postgres_store(postgres: Cluster) -> Iterator[str]:
    """The address of a store in PostgreSQL that nobody else uses."""
    name = postgres.new_schema()
    yield postgres.address(name)
    postgres.drop(name)


@pytest.fixture(scope="module")
def temporal() -> Iterator[temporal_server.TemporalServer]:
    """One server for the tests of a file. It takes processor time also while nobody asks it for anything."""
    with temporal_server.running(namespaces=temporal_server.NAMESPACES) as server:
        yield server


@pytest.fixture
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of an empty store: a file, or with CHECKREIN_TEST_STORE=postgres a schema of a server.

    With CHECKREIN_TEST_STORE=roles, for a user who has the roles of the store and writes no table.
    """
    where = os.environ.get("CHECKREIN_TEST_STORE")
    if where not in ("postgres", "roles"):
        yield f"sqlite:///{tmp_path}/runs.db"
        return
    cluster: Cluster = request.getfixturevalue("postgres")
    name = cluster.new_schema()
    yield cluster.with_roles(name) if where == "roles" else cluster.address(name)
    cluster.drop(name)


@pytest.fixture
async def runtime(store: str, anyio_backend: str) -> AsyncIterator[Runtime]:
    """D4: when it is closed, no process that it has started is left, in any test that uses it."""
    async with Runtime(store) as opened:
        yield opened
    await none_left_of(opened._executor.runtime)


Start = Callable[..., ToolExecution]


@pytest.fixture
async def executor(tmp_path: Path, anyio_backend: str) -> AsyncIterator[ToolExecutor]:
    """D4: when it is closed, no process that it has started is left, in any test that uses it."""
    async with ToolExecutor(tmp_path / "calls") as executor:
        yield executor
    await none_left_of(executor.runtime)


@pytest.fixture
def start(executor: ToolExecutor) -> Start:
    """Begin a call with keyword arguments; those of `ToolExecutor.start` are given as `_id`, `_isolation` and so on."""
    run = f"run-{uuid.uuid4().hex}"  # processes are found by it, and other tests run beside this one
    count = 0

    def begin(function: Callable[..., Any], **arguments: Any) -> ToolExecution:
        nonlocal count
        count += 1
        options = {name[1:]: arguments.pop(name) for name in list(arguments) if name.startswith("_")}
        options.setdefault("id", f"c{count}")
        options.setdefault("key", f"{run}/{options['id']}")
        return executor.start(function, msgspec.json.encode(arguments), **options)

    return begin
