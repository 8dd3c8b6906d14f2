"""The programs of the page about the client do what the page says, against a server."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from checkrein import Agent, tool
from checkrein.core.enums import Status
from checkrein.models import ScriptedModel, Turn
from tests.client.conftest import Served
from tests.support.patience import PATIENCE_SECONDS
from tests.support.text import sentences

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "client.md"
FIRST, SECOND = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def of(served: Served, program: str) -> str:
    assert "http://127.0.0.1:8420" in program
    return program.replace("http://127.0.0.1:8420", served.url)


async def test_the_first_program_starts_a_run_watches_it_and_cancels_it(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    served.runtime.add(Agent("churn", model=ScriptedModel(lambda _: Turn(sentences(500)), tokens_per_second=30)))

    await asyncio.to_thread(exec, of(served, FIRST), {"token": "ckr_x"})

    assert capsys.readouterr().out.splitlines()[-1] == "cancelled"


@tool(effect="irreversible")
async def pay(amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount}"


async def test_the_second_program_approves_what_is_small_and_nothing_else(served: Served) -> None:
    amounts = [5, 500]
    turns: dict[str, list[Turn]] = {}

    def say(request: Any) -> Turn:
        key = str(request.messages[0])
        if key not in turns:
            turns[key] = [Turn("Paying.", calls=[("pay", {"amount": amounts.pop(0)})]), Turn("Paid.")]
        return turns[key].pop(0)

    served.runtime.add(Agent("payments", model=ScriptedModel(say), tools=[pay]))
    runs = []
    for number in range(2):
        run = await served.client.start("payments", f"pay {number}")
        runs.append(run)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await run.view()).approvals:
                await asyncio.sleep(0.02)
    program: dict[str, Any] = {"token": "ckr_x"}
    exec(of(served, SECOND), program)

    await program["approve_small_payments"]()

    assert await runs[0].result(timeout=PATIENCE_SECONDS) == "Paid."
    view = await runs[1].view()
    assert (view.status, len(view.approvals)) == (Status.RUNNING, 1)
