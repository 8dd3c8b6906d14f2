"""`checkrein worker --engine temporal` as a process, as the how-to has it."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from checkrein.core.enums import Status
from checkrein.core.events import RunCreated
from checkrein.journal import open_journal
from tests.support.patience import PATIENCE_SECONDS
from tests.support.temporal import TemporalServer
from tests.support.witness import until

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
CHECKREIN = [sys.executable, "-c", "from checkrein.cli import main; main()"]
AGENT = """
from checkrein import Agent
from checkrein.models import ScriptedModel

agent = Agent("letters", model=ScriptedModel(["Dear Ann."]))
"""


def printed() -> list[str]:
    """The command of the page that starts a worker, in words."""
    page = (ROOT / "docs" / "howto" / "temporal.md").read_text()
    (line,) = re.findall(r"^checkrein (worker .*--engine temporal.*)$", page, re.MULTILINE)
    return shlex.split(line)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CHECKREIN, *words], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


@asynccontextmanager
async def started(folder: Path, *words: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    log = folder / "worker.log"
    with log.open("wb") as file, subprocess.Popen([*CHECKREIN, *words], cwd=folder, stdout=file, stderr=file) as worker:
        try:
            await until(lambda: "drives:" in log.read_text() or worker.poll() is not None)
            assert worker.poll() is None, log.read_text()
            yield worker
        finally:
            worker.kill()


async def test_the_worker_of_the_page_drives_what_temporal_gives_it_and_ends_in_order(
    folder: Path, temporal: TemporalServer
):
    namespace = temporal.new_namespace()
    words = [word.replace("127.0.0.1:7233", temporal.address) for word in printed()]
    words[words.index("--namespace") + 1] = namespace
    async with (
        started(folder, *words) as worker,
        await open_journal(f"sqlite:///{folder}/.checkrein/runs.db") as journal,
    ):
        created = RunCreated(id="c", at=time.time(), run="r1", agent="letters", goal="Write.", thread="t")
        await journal.create(created)

        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await journal.load("r1")).status is not Status.COMPLETED:
                await asyncio.sleep(0.05)
        listed = [json.loads(line) for line in run(folder, "workers", "--json").stdout.splitlines()]
        worker.send_signal(signal.SIGTERM)
        await until(lambda: worker.poll() is not None)

    assert [one["engine"] for one in listed] == ["temporal"]
    assert worker.returncode == 0
    listing = ["activity", "list", "--address", temporal.address, "--namespace", namespace, "--output", "json"]
    shown = subprocess.run(
        [str(Path(sys.executable).with_name("temporal")), *listing],
        capture_output=True,
        text=True,
        env={"HOME": str(folder)},
    )
    assert "run:r1" in shown.stdout


async def test_a_worker_is_not_started_where_temporal_is_not_there(folder: Path, temporal: TemporalServer):
    away = run(folder, "worker", "agent.py", "--engine", "temporal", "--temporal", "127.0.0.1:1")
    options = ["--engine", "temporal", "--temporal", temporal.address, "--namespace", "nowhere"]
    unknown = run(folder, "worker", "agent.py", *options)

    assert (away.returncode, unknown.returncode) == (2, 2)
    assert "Temporal at 127.0.0.1:1 is not reached: Connection refused. Start it, or" in away.stderr
    assert f"Temporal at {temporal.address} has no namespace nowhere. Create it" in unknown.stderr
    assert "Traceback" not in away.stderr + unknown.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--namespace", "n1"], "--namespace is about --engine temporal;"),
        (["--engine", "temporal", "--temporal", "nowhere"], "--temporal nowhere is no HOST:PORT"),
        (["--engine", "temporal", "--tls-cert", "agent.py"], "--tls-cert and --tls-key go together;"),
        (["--engine", "temporal", "--tls-ca", "none.pem"], "none.pem"),
        (["--engine", "nomad"], "leases"),
    ],
)
def test_what_cannot_be_meant_is_said_in_a_sentence(folder: Path, options: list[str], sentence: str):
    said = run(folder, "worker", "agent.py", *options)

    assert said.returncode == 2
    assert sentence in said.stderr
    assert "Traceback" not in said.stderr
