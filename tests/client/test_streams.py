"""The event stream of a real server that is killed and started again while it is read: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from checkrein import AsyncClient
from checkrein.client.streams import EventStream, PatchedView
from checkrein.core.enums import Status
from checkrein.core.events import CallFinished, CallStarted, RunFinished
from checkrein.journal.base import Chunk, Recorded
from checkrein.models.messages import Assistant, RecordedReply
from tests.server.processes.client import TOKEN
from tests.server.processes.serving import Place, new_place
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with new_place(tmp_path) as place:
        yield place


async def test_a_stream_goes_on_where_it_stood_when_its_server_was_killed_and_started_again(place: Place) -> None:
    server = await asyncio.to_thread(place.serve)
    port = server.client.port
    items: list[Recorded | Chunk] = []
    restarted: asyncio.Task[object] | None = None
    async with (
        asyncio.timeout(2 * PATIENCE_SECONDS),
        AsyncClient(f"http://127.0.0.1:{port}", TOKEN, away_seconds=PATIENCE_SECONDS) as client,
    ):
        run = await client.start("worker", "work")
        async for item in run.events():
            items.append(item)
            if restarted is None and isinstance(item, Chunk) and len(item.text) + item.offset > 100:
                place.let_go()
                os.kill(server.pid, signal.SIGKILL)
                restarted = asyncio.create_task(asyncio.to_thread(place.serve, "--port", str(port)))
        paused = (await run.view()).status
        result = await run.result()

    assert restarted is not None, "it was killed in the middle of a text"
    records = [item for item in items if isinstance(item, Recorded)]
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert isinstance(records[-1].event, RunFinished)
    assert (result, paused) == ("Done.", Status.COMPLETED)
    ends: dict[str, int] = {}
    for chunk in (item for item in items if isinstance(item, Chunk)):
        assert chunk.offset == ends.get(chunk.call, 0), "each character once and in its place"
        ends[chunk.call] = chunk.offset + len(chunk.text)
    # As text while it is said, or whole in its end, if that was before the stream was there again.
    attempts = [record.event.attempt for record in records if isinstance(record.event, CallStarted)]
    assert max(attempts) == 2, "the text that was cut off is said again"
    assert place.shell.words().count("first") == 1
    assert place.shell.words().count("second") == 1


# -- frames, without a server


def frame(seq: int, rest: str) -> bytes:
    return f'{{"seq":{seq},"run":"r-1",{rest}'.encode()


STARTED = '"type":"call.started","id":"e2","at":1.0,"call":"c1","kind":"model","name":"m","attempt":1,"epoch":1}'
REPLY = msgspec.json.encode(RecordedReply(Assistant("abcdef"), "m")).decode()


def test_an_event_that_comes_again_is_left_out_and_one_that_is_missing_is_noticed() -> None:
    stream = EventStream("r-1", 1)

    assert len(stream.take(frame(2, STARTED))) == 1
    assert stream.take(frame(2, STARTED)) == ()
    with pytest.raises(ValueError, match="event 3 is missing"):
        stream.take(frame(4, STARTED))


def test_an_event_of_another_run_is_not_taken() -> None:
    with pytest.raises(ValueError, match="another run"):
        EventStream("r-2", 1).take(frame(2, STARTED))


def test_a_text_that_is_sent_again_from_its_start_is_passed_on_once() -> None:
    stream = EventStream("r-1", 1)
    stream.take(frame(2, STARTED))

    def told(offset: int, text: str) -> list[str]:
        taken = stream.take(f'{{"call":"c1","attempt":1,"offset":{offset},"text":"{text}"}}'.encode())
        return [item.text for item in taken if isinstance(item, Chunk)]

    assert [told(0, "abc"), told(0, "abcd"), told(1, "bc"), told(4, "ef")] == [["abc"], ["d"], [], ["ef"]]


def test_what_a_model_said_while_nobody_read_comes_before_the_end_of_its_call() -> None:
    stream = EventStream("r-1", 1)
    stream.take(frame(2, STARTED))
    stream.take(b'{"call":"c1","attempt":1,"offset":0,"text":"ab"}')

    finished = f'"type":"call.finished","id":"e3","at":2.0,"call":"c1","outcome":"completed","result":{REPLY}}}'
    chunk, record = stream.take(frame(3, finished))

    assert chunk == Chunk("c1", 2, "cdef")
    assert isinstance(record, Recorded)
    assert isinstance(record.event, CallFinished)


def test_patches_of_a_live_view_replace_what_changed_and_keep_the_rest() -> None:
    call = '{"id":"c%d","kind":"model","name":"m","shown":"running","now":"%s"}'
    view = PatchedView()
    steps = ",".join(f'{{"number":{n},"title":"{n}","shown":"done"}}' for n in range(3))

    view.take(
        f'{{"whole":true,"id":"r-1","status":"running","agent":"a","goal":"g","thread":"t","seq":3,"steps":[{steps}],'
        f'"calls":[{call % (1, "running")}]}}'.encode()
    )
    view.take(b'{"call":"c1","attempt":1,"offset":0,"text":"Hello"}')
    seen = view.take(
        b'{"whole":false,"seq":4,"from":{"steps":2},"steps":[{"number":9,"title":"new","shown":"queued"}],'
        b'"calls":[%b]}' % (call % (1, "completed")).encode()
    )

    assert seen is not None
    assert (seen.seq, seen.goal, [step.number for step in seen.steps]) == (4, "g", [0, 1, 9])
    assert [(one.now, one.text) for one in seen.calls] == [("completed", "Hello")]
