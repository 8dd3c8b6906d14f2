"""This version and the next one side by side, across a migration of their store in PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from checkrein.core.enums import Status
from checkrein.errors import StoreTooNew
from checkrein.journal import open_journal
from checkrein.journal.postgres import schema
from tests.engines.version_process import ADDED, CONTRACTED, STEPS
from tests.support.patience import PATIENCE_SECONDS
from tests.support.postgres import Cluster
from tests.support.witness import Witness, until

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


class Worker:
    """A process that drives runs. What it prints, and what it logs, is collected."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.out, self.log = "", ""
        self._readers = [
            threading.Thread(target=self._read, args=(name,), daemon=True) for name in ("stdout", "stderr")
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str) -> None:
        for line in getattr(self.process, name):
            if name == "stdout":
                self.out += line.decode()
            else:
                self.log += line.decode()

    async def ended(self) -> int:
        await until(lambda: self.process.poll() is not None)
        for reader in self._readers:
            reader.join()
        return int(self.process.returncode)


@contextmanager
def worker(version: int, address: str, log: str, *begin: str) -> Iterator[Worker]:
    command = [sys.executable, "-m", "tests.engines.version_process", str(version), address, log, *begin]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


@pytest.fixture
def address(postgres_store: str) -> str:
    return postgres_store


async def test_the_old_version_goes_on_through_what_is_added_and_gives_way_to_the_next_one_after_that(
    postgres: Cluster, address: str, witness: Witness, monkeypatch: pytest.MonkeyPatch
):
    """Every step is taken once, by the tool's own log; the processes are real, and so is the migration."""
    known, name = schema.scripts(), address.rpartition("=")[2]
    mine = len(known)

    def let_through(steps: int) -> None:
        Path(f"{witness.log}.gate").write_text(str(steps))

    def steps() -> list[str]:
        return [word for word in witness.words() if word.startswith("step")]

    let_through(4)
    with worker(mine, address, witness.log, "begin") as old:
        await until(lambda: len(steps()) == 4)
        with monkeypatch.context() as patched:
            patched.setattr(schema, "scripts", lambda: (*known, ADDED))
            assert schema.migrate(address) == (mine + 1, 1, 1)
        async with await open_journal(address) as journal:  # by code that does not know what was added
            (row,) = await journal.runs()
            at_migration = await journal.lease(row.id)
            assert at_migration is not None

            let_through(8)
            await until(lambda: len(steps()) == 8)
            renewed = at_migration
            with anyio.fail_after(PATIENCE_SECONDS):
                while renewed.deadline <= at_migration.deadline:
                    await anyio.sleep(0.02)
                    found = await journal.lease(row.id)
                    assert found is not None, "it is still driven"
                    renewed = found
            assert renewed.epoch == at_migration.epoch

            with worker(mine + 1, address, witness.log) as new:
                await until(lambda: "ready" in new.out)
                with postgres.connect() as db:
                    db.execute(CONTRACTED.replace("{schema}", name).encode())
                await until(lambda: "store_too_new" in old.log)
                let_through(9)
                assert await old.ended() == 0
                assert len(steps()) == 9, "it has finished what it was at"
                let_through(STEPS)
                await until(lambda: len(steps()) == STEPS)
                with anyio.fail_after(PATIENCE_SECONDS):
                    while (await journal.load(row.id)).status is not Status.COMPLETED:
                        await anyio.sleep(0.02)
                assert new.process.poll() is None

                handed_over = await journal.load(row.id)
                await journal.verify(row.id)

    assert steps() == [f"step {number}" for number in range(1, STEPS + 1)]
    assert not handed_over.doubts
    assert old.out.split() == ["ready", "store_too_new"]
    assert old.log.count("store_too_new") == 1
    with pytest.raises(StoreTooNew, match="install a version"):
        await open_journal(address)
