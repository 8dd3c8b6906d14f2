"""The numbers for Prometheus: true, and read from the journal."""

from __future__ import annotations

import asyncio
import re
import socket
import time

import pytest

from checkrein import Agent, Runtime
from checkrein.core.enums import CallKind
from checkrein.core.events import CallStarted
from checkrein.models import ScriptedModel, Turn
from checkrein.server import metrics
from checkrein.server.backend import RuntimeBackend
from tests.server.serving import Client
from tests.server.test_stream import Paper
from tests.support.questions import count_questions
from tests.support.text import words

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FRESH_SECONDS", 0.0)


async def numbers(client: Client) -> dict[str, float]:
    async with client.session.get(f"{client.base}/metrics") as told:
        assert told.headers["content-type"].startswith("text/plain")
        text = await told.text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r'[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.]+', line) for line in lines)
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


async def test_runs_verbs_reasons_and_latencies_are_counted_also_those_of_others(
    client: Client, runtime: Runtime
) -> None:
    talker = Agent("talker", model=ScriptedModel(lambda _: Turn(words(500)), tokens_per_second=50))
    runtime.add(talker)
    first, second = await client.start("talker"), await client.start("talker")
    await client.until(first, "running")
    await client.until(second, "running")

    await client.post(f"/api/runs/{first}/pause", {"reason": "Too expensive"})
    await client.post(f"/api/runs/{first}/cancel")
    await client.post(f"/api/runs/{first}/reason", {"reason": "suspected_confession"})
    await (await runtime.get(second)).cancel(reason="something of its own")

    found = await numbers(client)
    again = await numbers(client)
    assert found['checkrein_runs{status="cancelled"}'] == 2
    assert found['checkrein_verbs_total{verb="cancel",agent="talker"}'] == 2
    assert found['checkrein_verbs_total{verb="pause",agent="talker"}'] == 1
    assert found['checkrein_stop_reasons_total{agent="talker",reason="too expensive"}'] == 1
    assert found['checkrein_stop_reasons_total{agent="talker",reason="suspected disclosure"}'] == 1
    assert found['checkrein_stop_reasons_total{agent="talker",reason="other"}'] == 1
    assert found['checkrein_stop_seconds_count{verb="cancel"}'] >= 1
    assert found['checkrein_settle_seconds_bucket{verb="cancel",le="+Inf"}'] == 2
    assert found["checkrein_permits_after_cancel_total"] == 0
    assert again == found


async def test_readers_are_counted(client: Client, runtime: Runtime) -> None:
    runtime.add(Agent("talker", model=ScriptedModel(lambda _: Turn(words(500)), tokens_per_second=50)))
    run = await client.start("talker")

    async with client.stream(f"/api/runs/{run}/live") as stream:
        await stream.next()
        assert (await numbers(client))[f'checkrein_stream_readers{{front="{socket.gethostname()}"}}'] == 1
    await client.post(f"/api/runs/{run}/cancel")


async def test_a_permit_after_a_cancel_would_be_counted() -> None:
    """The journal never takes one; a number that cannot rise proves nothing."""
    paper = Paper()
    counted = metrics.Metrics(paper)
    run = metrics._Run(agent="a", is_fenced=True)
    counted._count(run, CallStarted(id="x", at=paper.now() + 1, call="c", kind=CallKind.TOOL, name="t", epoch=1))

    assert "checkrein_permits_after_cancel_total 1" in await counted.text(readers=0, refused=0)


async def test_only_operators_read_them(client: Client) -> None:
    status, told = await client.get("/metrics", headers={"who": "a:controller:a"})

    assert (status, told["code"]) == (403, "forbidden")


async def test_what_happened_before_the_server_began_is_not_counted(runtime: Runtime) -> None:
    runtime.add(Agent("quick", model=ScriptedModel(lambda _: Turn(words(500)), tokens_per_second=50)))
    run = await runtime.start("quick", "go")
    await run.pause()
    await asyncio.sleep(0.01)

    counted = metrics.Metrics(RuntimeBackend(runtime))
    await run.cancel()
    text = await counted.text(readers=0, refused=0)

    assert 'checkrein_verbs_total{verb="cancel",agent="quick"} 1' in text
    assert 'checkrein_verbs_total{verb="pause",agent="quick"} 0' in text


async def test_runs_that_have_not_changed_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = Paper()
    counted = metrics.Metrics(paper)
    runs = [await paper.start("paper", "go") for _ in range(30)]
    an_hour_later = time.time() + 3_600.0
    monkeypatch.setattr(paper, "now", lambda: an_hour_later)
    first = await counted.text(readers=0, refused=0)
    asked = count_questions(paper.journal, monkeypatch)

    second = await counted.text(readers=0, refused=0)

    assert asked == {"runs": 1, "tally": 1}
    assert first == second
    assert sum(int(line.split()[-1]) for line in second.splitlines() if line.startswith("checkrein_runs{")) == len(runs)
