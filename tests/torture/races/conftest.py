"""How many races there were, and from which seed, reach the reader."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from checkrein.journal import Journal, MemoryJournal, SqliteJournal
from tests.torture.races.nth_await import Cut, CutEverywhere, Scene, at_every_await
from tests.torture.races.traces import Look, Traces

SEED = "CHECKREIN_RACE_SEED"
_LINES = pytest.StashKey[list[str]]()
_COUNTS = pytest.StashKey[Counter[str]]()
_SEED = pytest.StashKey[int]()

Tell = Callable[..., None]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LINES] = []
    config.stash[_COUNTS] = Counter()
    config.stash[_SEED] = int(os.environ.get(SEED) or random.randrange(1_000_000))


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    """The lines one by one where output is wanted (`-s`, `-v`); what they come to in any case."""
    counts = config.stash[_COUNTS]
    if not counts:
        return
    terminalreporter.section("races and cancellations")
    if config.getoption("capture") == "no" or config.get_verbosity() > 0:
        for line in config.stash[_LINES]:
            terminalreporter.write_line(line)
    terminalreporter.write_line("in all: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    terminalreporter.write_line(f"repeat with {SEED}={config.stash[_SEED]}")


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    return request.config.stash[_SEED]


@pytest.fixture(scope="session")
def tell(request: pytest.FixtureRequest) -> Tell:
    """Have a line printed at the end, and numbers added up."""

    def note(line: str, **counts: int) -> None:
        request.config.stash[_LINES].append(line)
        request.config.stash[_COUNTS].update({what.replace("_", " "): count for what, count in counts.items()})

    return note


@pytest.fixture(params=["memory", "sqlite"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str) -> AsyncIterator[Journal]:
    opened: Journal = MemoryJournal() if request.param == "memory" else SqliteJournal(f"{tmp_path}/runs.db")
    async with opened:
        yield opened


@pytest.fixture
def runs() -> Iterator[str]:
    """An id that no run has yet, each time it is asked."""
    return (f"r{number}" for number in count())


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Looks at what there is now, files below the test's folder and temporary folders among it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return lambda: Traces(tmp_path)


@pytest.fixture
def cut_everywhere(tell: Tell) -> CutEverywhere:
    """Play a scene with a cut at every await."""

    async def play(name: str, scene: Scene) -> None:
        awaits = await at_every_await(scene)
        tell(f"cancelled at every await: {name}: {awaits} awaits", coroutines=1, awaits=awaits)

    return play


@pytest.fixture
def leaves_no_trace(traces: Look, cut_here_and_there: CutEverywhere) -> CutEverywhere:
    """Play a scene with cuts here and there; of what it has made nothing is left, wherever it was cut."""

    async def play(name: str, scene: Scene) -> None:
        async def seen(cut: Cut) -> None:
            before = traces()
            await scene(cut)
            await before.gone()

        await cut_here_and_there(name, seen)

    return play


@pytest.fixture(params=[7, pytest.param(1, marks=pytest.mark.torture)], ids=["some", "all"])
def cut_here_and_there(request: pytest.FixtureRequest, seed: int, tell: Tell) -> CutEverywhere:
    """The same for scenes that take long: at every seventh await, not always the same ones; in torture at every one."""

    async def play(name: str, scene: Scene) -> None:
        awaits = await at_every_await(scene, stride=request.param, offset=seed)
        which = "every await" if request.param == 1 else f"one in {request.param} awaits"
        tell(f"cancelled at {which}: {name}: {awaits} awaits", coroutines=1, awaits=awaits)

    return play
