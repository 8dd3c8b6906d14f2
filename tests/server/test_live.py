"""The run as the page watches it: whole once, then what changes; put together it is the run as anybody sees it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from checkrein import Agent, Runtime
from checkrein.core.enums import CallKind
from checkrein.core.events import CallStarted
from checkrein.journal import Chunk
from checkrein.models import ScriptedModel, Turn
from checkrein.processes.identity import this_process
from checkrein.server.streaming.hub import Hub
from checkrein.server.streaming.live_view import BriefCall, summary
from tests.server.serving import Client, Frame, Stream, app_over_backend, begun, serving
from tests.server.test_stream import Paper, talker
from tests.support.abort_tools import draft, work
from tests.support.text import sentences
from tests.support.witness import Witness

pytestmark = pytest.mark.anyio

WORDS = sentences(800)


class Page:
    """What a page makes of the frames, as the agreement says."""

    def __init__(self) -> None:
        self.view: dict[str, Any] = {}
        self.calls: dict[str, Any] = {}
        self.texts: dict[str, tuple[int, str]] = {}
        self.patches = 0

    def take(self, frame: Frame) -> None:
        told = frame.json
        if frame.kind == "view":
            calls = told.pop("calls", [])
            if told.pop("whole"):
                self.view, self.calls = {}, {}
            else:
                self.patches += 1
            for name, stay in told.pop("from", {}).items():
                told[name] = self.view[name][:stay] + told[name]
            self.view |= told
            self.calls |= {call["id"]: call for call in calls}
        elif frame.kind == "call.chunk":
            attempt, text = self.texts.get(told["call"], (0, ""))
            if told["attempt"] > attempt:
                attempt, text = told["attempt"], ""
            if told["attempt"] == attempt:
                offset, more = told["offset"], told["text"]
                text = text if text[offset : offset + len(more)] == more else text[:offset] + more
            self.texts[told["call"]] = (attempt, text)


async def watch(stream: Stream, page: Page, *statuses: str) -> None:
    while page.view.get("status") not in statuses:
        frame = await stream.next()
        assert frame is not None
        page.take(frame)


async def test_the_first_frame_is_whole_with_every_field_and_calls_in_brief(client: Client, runtime: Runtime) -> None:
    runtime.add(talker())
    run = await client.start("talker")
    async with client.stream(f"/api/runs/{run}/events") as stream:
        await stream.until("call.started")

    async with client.stream(f"/api/runs/{run}/live") as stream:
        frame = await stream.next()

    assert frame is not None
    assert frame.kind == "view"
    told = frame.json
    _, view = await client.get(f"/api/runs/{run}")
    assert told["whole"] is True
    assert set(view) - {"calls"} <= set(told)
    assert told["ticking"] is True
    assert set(told["calls"][0]) == set(BriefCall.__struct_fields__)
    await client.post(f"/api/runs/{run}/cancel")


async def test_patches_put_together_are_the_run_as_anybody_sees_it(
    client: Client, runtime: Runtime, witness: Witness
) -> None:
    """D8, D24: pause, resume, redirect and cancel on the way, with an effect that is undone."""
    turns = [
        Turn("First a draft.", calls=[("draft", {"log": witness.log})]),
        Turn(WORDS, calls=[("work", {"log": witness.log, "seconds": 0})]),
        *[Turn(WORDS) for _ in range(5)],
    ]
    runtime.add(
        Agent("drafter", model=ScriptedModel(turns, tokens_per_second=80), tools=[draft, work], plan=["A", "B"])
    )
    run = await client.start("drafter")
    page = Page()

    async with client.stream(f"/api/runs/{run}/live") as stream:
        await watch(stream, page, "running")
        await witness.saw("draft made")
        await client.post(f"/api/runs/{run}/pause")
        await watch(stream, page, "paused")
        await client.post(f"/api/runs/{run}/resume", {"instruction": "only Q3"})
        await watch(stream, page, "running")
        await client.post(f"/api/runs/{run}/redirect", {"instruction": "only Q4"})
        await client.post(f"/api/runs/{run}/cancel")
        await watch(stream, page, "cancelled")
        _, view = await client.get(f"/api/runs/{run}")
        while page.view["seq"] < view["seq"]:
            frame = await stream.next()
            assert frame is not None
            page.take(frame)

    for field, value in view.items():
        if field not in ("calls", "at", "elapsed_seconds", "caps"):
            assert page.view[field] == value, field
    assert page.view["elapsed_seconds"] == pytest.approx(view["elapsed_seconds"])
    assert list(page.calls) == [call["id"] for call in view["calls"]]
    for call in view["calls"]:
        brief = page.calls[call["id"]]
        assert (brief["shown"], brief["now"], brief["name"]) == (call["shown"], call["now"], call["name"])
        assert brief["partial_chars"] == len(call.get("text", ""))
        if call["kind"] == "model" and call.get("text"):
            assert page.texts[call["id"]] == (call.get("attempt", 1), call["text"])


async def test_a_value_that_goes_back_to_its_default_is_sent(client: Client, runtime: Runtime) -> None:
    run = await begun(client, runtime, talker(), "running")
    page = Page()

    async with client.stream(f"/api/runs/{run}/live") as stream:
        await watch(stream, page, "running")
        await client.post(f"/api/runs/{run}/pause")
        while not (page.view.get("status") == "paused" and page.view["settling"] == [] and page.view["receipts"]):
            frame = await stream.next()
            assert frame is not None
            page.take(frame)
        assert page.view["ticking"] is False
        assert page.view["receipts"][0]["tokens_after_stop"] == 0
    await client.post(f"/api/runs/{run}/cancel")


async def test_partial_text_stays_in_view_after_a_stop(client: Client, runtime: Runtime) -> None:
    """D6, D13."""
    runtime.add(talker())
    run = await client.start("talker")
    async with client.stream(f"/api/runs/{run}/live") as stream:
        while not (frame := await stream.next()) or frame.kind != "call.chunk":
            pass
    await client.post(f"/api/runs/{run}/cancel")

    async with client.stream(f"/api/runs/{run}/live") as stream:
        whole, text = await stream.next(), await stream.next()

    assert whole is not None
    assert whole.json["status"] == "cancelled"
    assert text is not None
    assert (text.kind, text.json["offset"]) == ("call.chunk", 0)
    assert text.json["text"]
    assert WORDS.startswith(text.json["text"])


async def test_the_stream_of_a_finished_run_stays_open_for_what_is_said_afterwards(
    client: Client, runtime: Runtime
) -> None:
    run = await begun(client, runtime, talker(pace=None), "completed")
    page = Page()

    async with client.stream(f"/api/runs/{run}/live") as stream:
        await watch(stream, page, "completed")
        await client.post(f"/api/runs/{run}/reason", {"reason": "other"})
        while not page.view["reasons"]:
            frame = await stream.next()
            assert frame is not None
            page.take(frame)


async def test_patches_are_few_and_made_once_for_all_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = Paper()
    run = await paper.start("paper", "go")
    async with serving(app_over_backend(paper)) as client:
        hub: Hub = client.app.state.hub
        feed = await hub.feed(run)
        looks = 0
        view = feed.viewer.view

        def counted(at: float) -> Any:
            nonlocal looks
            looks += 1
            return view(at)

        monkeypatch.setattr(feed.viewer, "view", counted)
        pages = [Page() for _ in range(5)]
        stack = AsyncExitStack()
        opened = [await stack.enter_async_context(client.stream(f"/api/runs/{run}/live")) for _ in pages]
        for _ in range(50):
            await paper.write(run, 20)
            await asyncio.sleep(0.01)
        for page, stream in zip(pages, opened, strict=True):
            while page.view.get("seq", 0) < 1001:
                frame = await stream.next()
                assert frame is not None
                page.take(frame)
        await stack.aclose()

    assert all(len(page.view["reasons"]) == 1000 for page in pages)
    assert looks < 60  # and not 5,000
    assert max(page.patches for page in pages) < 60


async def test_text_that_another_process_streams_is_read_from_the_journal() -> None:
    paper = Paper()
    run = await paper.start("paper", "go")
    lease = await paper.journal.claim(run, this_process(), seconds=60)
    started = CallStarted(id="c1#1", at=2.0, call="c1", kind=CallKind.MODEL, name="m", epoch=lease.epoch)
    await paper.journal.append(run, [started], after=1, epoch=lease.epoch)

    async with serving(app_over_backend(paper)) as client, client.stream(f"/api/runs/{run}/live") as stream:
        await stream.until("view")
        await paper.journal.write_chunks({run: [Chunk("c1", 0, "Hello, ")]})
        first = (await stream.until("call.chunk"))[-1].json
        # What is told at once may be ahead of what the journal has: no gap is ever shown.
        paper.speak(run, "c1", 12, "!")
        await paper.journal.write_chunks({run: [Chunk("c1", 7, "world")]})
        page = Page()
        page.take(Frame("call.chunk", b'{"call":"c1","attempt":1,"offset":0,"text":"Hello, "}'))
        while page.texts["c1"][1] != "Hello, world!":
            frame = (await stream.until("call.chunk"))[-1]
            assert frame.json["offset"] <= len(page.texts["c1"][1])
            page.take(frame)

    assert (first["offset"], first["text"]) == (0, "Hello, ")


async def test_a_long_run_sends_only_the_end_of_its_lists() -> None:
    paper = Paper()
    run = await paper.start("paper", "go")
    await paper.write(run, 2_000)
    async with serving(app_over_backend(paper)) as client, client.stream(f"/api/runs/{run}/live") as stream:
        page, sizes = Page(), []
        for count in range(5):
            while page.view.get("seq", 0) < 2_001 + count:
                frame = await stream.next()
                assert frame is not None
                sizes.append(len(frame.data))
                page.take(frame)
            await paper.write(run, 1, note=f"more {count}")
        _, view = await client.get(f"/api/runs/{run}")
        while page.view["seq"] < view["seq"]:
            frame = await stream.next()
            assert frame is not None
            page.take(frame)

    assert page.view["reasons"] == view["reasons"]
    assert sizes[0] > 50_000
    assert max(sizes[1:]) < 5_000


def test_arguments_are_summed_up_in_one_short_line() -> None:
    assert summary({"to": "a@b.c", "n": 3}) == 'to="a@b.c", n=3'
    assert summary(None) == ""
    assert len(summary({"text": "x\n" * 10_000})) == 120
    assert "\n" not in summary({"text": "a\nb"})
