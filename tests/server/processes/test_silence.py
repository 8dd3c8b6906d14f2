"""A driver that does not answer its front is not ready, and after a generous time another one takes its place."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from checkrein.control.control import Control
from checkrein.control.start import StartRun
from checkrein.core.enums import Status
from checkrein.journal import open_journal
from checkrein.processes.identity import in_role, this_process
from checkrein.secrets import Secrets
from checkrein.server.processes import drivers
from checkrein.server.processes.backend import FrontBackend
from checkrein.server.processes.driver_main import command_for_files
from checkrein.server.processes.drivers import DriverSlots
from tests.server.processes.serving import CREW
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import Witness, is_alive, until

pytestmark = pytest.mark.anyio


async def test_a_driver_that_stays_silent_is_started_again_though_nobody_waits_for_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs beside it go on, and what it was doing is in doubt, not done again.

    The witnesses are the log of the tools and the process table.
    """
    monkeypatch.setattr(drivers, "PING_SECONDS", 0.2)
    monkeypatch.setattr(drivers, "SILENT_SECONDS", 1.0)
    witness = Witness(tmp_path / "log")
    monkeypatch.setenv("WITNESS", witness.log)
    file = shutil.copy(CREW, tmp_path / "crew.py")
    store = f"sqlite:///{tmp_path}/runs.db"
    told: list[str] = []
    async with await open_journal(store) as journal:
        secrets = Secrets.of(None)
        control = Control(journal, in_role(this_process(), "control"), secrets=secrets)
        backend = FrontBackend(journal, control, secrets)
        slots = DriverSlots(
            1, command_for_files(store, Path(file)), told.append, backend.heard, store=store, silent_seconds=6.0
        )
        backend.slots = slots
        slots.start()
        try:
            assert await backend.know_agents()
            busy = await backend.start(StartRun(agent="napper", goal="x"))
            await witness.saw("wedged")
            (line,) = witness.lines("wedged")
            beside = await backend.start(StartRun(agent="quick", goal="x"))
            await until(lambda: backend.health().drivers[0].phase == "silent")
            assert backend.health().status == "no driver"
            assert is_alive(line.pid), "it is given time"

            await until(lambda: not is_alive(line.pid))
            while (await journal.load(beside)).status is not Status.COMPLETED:
                await until(lambda: backend.health().status == "ok")

            async with asyncio.timeout(PATIENCE_SECONDS):
                while not (doubts := (await journal.load(busy)).doubts):
                    await asyncio.sleep(0.02)
            assert [doubt.name for doubt in doubts.values()] == ["nap"]
            assert witness.words().count("wedged") == 1
            assert "woke" not in witness.words()
            assert any("Driver 1 has not answered for" in sentence for sentence in told)
        finally:
            slots.kill()
            await slots.end()
