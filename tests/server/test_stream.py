"""The event stream: everything, once, in order, from wherever one left off; and readers that are a burden to nobody."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein import Agent, Principal, Role, Runtime
from checkrein.control.control import Control
from checkrein.control.fork import ForkRun
from checkrein.control.start import StartRun
from checkrein.control.worker_roster import AgentCard
from checkrein.core.events import ReasonAdded, RunCreated
from checkrein.core.state import State
from checkrein.journal import Chunk, MemoryJournal, encoding
from checkrein.models import ScriptedModel, Turn
from checkrein.processes.identity import this_process
from checkrein.server.app import create_app
from checkrein.server.auth.guard import Guard
from checkrein.server.auth.key_store import FileKeyStore
from checkrein.server.auth.token_store import Keys
from checkrein.server.backend import Hear
from checkrein.server.streaming import frames as feed
from checkrein.server.streaming.hub import Hub
from checkrein.server.streaming.rate_limit import Admission
from checkrein.server.streaming.sse import FrameBuffer, Limits, Reader
from tests.server.serving import Client, Frame, app_over, app_over_backend, begun, frames, serving
from tests.support.abort_tools import draft, work
from tests.support.patience import PATIENCE_SECONDS
from tests.support.text import sentences
from tests.support.witness import Witness, until

pytestmark = pytest.mark.anyio

WORDS = sentences(40)
LONG = sentences(800)
"""What takes longer than any test that stops it."""


def talker(pace: float | None = 60.0, text: str = LONG) -> Agent:
    return Agent("talker", model=ScriptedModel(lambda _: Turn(text), tokens_per_second=pace))


def is_event(frame: Frame) -> bool:
    return frame.id is not None


def ids(found: list[Frame]) -> list[int]:
    return [int(frame.id) for frame in found if frame.id is not None]


class Paper:
    """A backend without a runtime: a journal in memory that a test writes into, and text that it speaks."""

    store = "memory:"
    is_ending = False
    signing_key = None

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.control = Control(self.journal, this_process())
        self.reads = 0
        self.read_seconds = 0.001
        self.seq: dict[str, int] = {}
        self._hear: dict[str, set[Hear]] = {}
        self._count = 0
        read = self.journal.read

        async def counted(*given: Any, **options: Any) -> Any:
            self.reads += 1
            await asyncio.sleep(self.read_seconds)  # a store takes its time, and others go on meanwhile
            return await read(*given, **options)

        self.journal.read = counted  # type: ignore[method-assign]

    def now(self) -> float:
        return time.time()

    def agents(self) -> dict[str, AgentCard]:
        return {"paper": AgentCard(name="paper")}

    async def know_agents(self) -> bool:
        return True

    async def workers_wanted(self, states: Collection[State]) -> dict[str, str]:
        return {}

    async def fork(self, wanted: ForkRun) -> str:
        raise NotImplementedError

    async def start(self, wanted: StartRun | str, goal: str = "") -> str:
        """As a backend does; or, shorter, with an agent and a goal."""
        agent, goal = (wanted, goal) if isinstance(wanted, str) else (wanted.agent, wanted.goal)
        self._count += 1
        run = f"r-{self._count}"
        await self.journal.create(RunCreated(id=f"{run}.created", at=1.0, run=run, agent=agent, goal=goal, thread=run))
        self.seq[run] = 1
        return run

    async def write(self, run: str, count: int, note: str = "n") -> None:
        """So many more events."""
        for _ in range(count):
            self._count += 1
            event = ReasonAdded(id=f"e{self._count}", at=float(self._count), reason="r", by="b", note=note)
            await self.journal.append(run, [event], after=0)
            self.seq[run] += 1

    def speak(self, run: str, call: str, offset: int, text: str) -> None:
        for hear in tuple(self._hear.get(run, ())):
            hear(Chunk(call, offset, text))

    def listen(self, run: str, listener: Hear) -> Callable[[], None]:
        self._hear.setdefault(run, set()).add(listener)
        return lambda: self._hear[run].discard(listener)

    def listeners(self, run: str) -> int:
        return len(self._hear.get(run, ()))


@pytest.fixture
def paper() -> Paper:
    return Paper()


@pytest.fixture
async def on_paper(paper: Paper) -> AsyncIterator[Client]:
    async with serving(app_over_backend(paper, limits=Limits(keep_alive_seconds=0.3, linger_seconds=0.3))) as client:
        yield client


def hub_of(client: Client) -> Hub:
    hub: Hub = client.app.state.hub
    return hub


# -- what is sent


async def test_the_stored_bytes_are_streamed_unchanged_so_that_a_reader_can_verify_the_chain(
    client: Client, runtime: Runtime
) -> None:
    """D8: only the seq, and the run where the event does not name it, are put in front."""
    run = await begun(client, runtime, talker(pace=None), "completed")

    async with client.stream(f"/api/runs/{run}/events") as stream:
        found = await stream.rest()

    records = await runtime.journal.read(run)
    link = encoding.genesis(run)
    for frame, record in zip(found, records, strict=True):
        front = b'{"seq":%d,' % record.seq + (b"" if record.seq == 1 else b'"run":"%b",' % run.encode())
        assert frame.data.startswith(front)
        body = b"{" + frame.data.removeprefix(front)
        link = encoding.link(link, record.seq, body)
        assert (body, link) == (record.body, record.hash)
        assert (frame.id, frame.kind) == (str(record.seq), frame.json["type"])
        assert frame.json["run"] == run


async def test_text_streams_between_events_and_the_stream_ends_after_the_run(client: Client, runtime: Runtime) -> None:
    runtime.add(talker(pace=200, text=WORDS))
    run = await client.start("talker")

    async with client.stream(f"/api/runs/{run}/events") as stream:
        assert stream.told.headers["content-type"].startswith("text/event-stream")
        found = await stream.rest()

    chunks = [frame.json for frame in found if frame.kind == "call.chunk"]
    assert "".join(chunk["text"] for chunk in chunks) == WORDS
    assert {(chunk["call"], chunk["attempt"]) for chunk in chunks} == {("c1", 1)}
    events = [frame for frame in found if is_event(frame)]
    assert ids(found) == list(range(1, len(events) + 1))
    assert events[-1].kind == "run.finished"
    ended = next(index for index, frame in enumerate(found) if frame.kind == "call.finished")
    assert all(index < ended for index, frame in enumerate(found) if frame.kind == "call.chunk")


def text_of(chunks: list[Any]) -> str:
    """What a reader makes of chunks, however often it hears them."""
    text = ""
    for chunk in chunks:
        text = text[: chunk["offset"]] + chunk["text"] + text[chunk["offset"] + len(chunk["text"]) :]
    return text


async def test_whoever_reconnects_gets_the_text_of_a_live_call_from_its_start(client: Client, runtime: Runtime) -> None:
    runtime.add(talker(text=WORDS))
    run = await client.start("talker")
    async with client.stream(f"/api/runs/{run}/events") as stream:
        await stream.until("call.chunk")
        for _ in range(3):
            await stream.until("call.chunk")
        last = ids(frames(stream.raw))[-1]

    async with client.stream(f"/api/runs/{run}/events", headers={"Last-Event-ID": str(last)}) as stream:
        again = await stream.rest()

    chunks = [frame.json for frame in again if frame.kind == "call.chunk"]
    assert chunks[0]["offset"] == 0
    assert text_of(chunks) == WORDS
    assert ids(again) == list(range(last + 1, ids(again)[-1] + 1))


async def test_last_event_id_and_after_begin_in_the_middle_and_the_header_is_newer(
    on_paper: Client, paper: Paper
) -> None:
    run = await paper.start("paper", "go")
    await paper.write(run, 20)

    async def first(**options: Any) -> int:
        async with on_paper.stream(f"/api/runs/{run}/events", **options) as stream:
            frame = await stream.next()
            assert frame is not None
            return int(frame.id or 0)

    assert await first() == 1
    assert await first(params={"after": "7"}) == 8
    assert await first(headers={"Last-Event-ID": "12"}) == 13
    assert await first(params={"after": "7"}, headers={"Last-Event-ID": "12"}) == 13


async def test_a_run_that_is_over_ends_its_stream_at_once_and_a_browser_is_told_not_to_come_back(
    client: Client, runtime: Runtime
) -> None:
    runtime.add(talker(pace=None))
    run = await client.start("talker")
    seq = (await client.until(run, "completed"))["seq"]

    async with client.stream(f"/api/runs/{run}/events", params={"after": str(seq - 2)}) as stream:
        assert ids(await stream.rest()) == [seq - 1, seq]
    async with client.stream(f"/api/runs/{run}/events", headers={"Last-Event-ID": str(seq)}) as stream:
        assert stream.told.status == 204


async def test_a_stream_goes_on_while_a_finished_run_is_still_being_undone(
    client: Client, runtime: Runtime, witness: Witness
) -> None:
    turns = [
        Turn("A draft.", calls=[("draft", {"log": witness.log})]),
        Turn("", calls=[("work", {"log": witness.log})]),
    ]
    runtime.add(Agent("drafter", model=ScriptedModel(turns), tools=[draft, work]))
    run = await client.start("drafter")
    await witness.saw("work")

    async with client.stream(f"/api/runs/{run}/events") as stream:
        await client.post(f"/api/runs/{run}/cancel")
        kinds = [frame.kind for frame in await stream.rest()]

    assert "effect.undone" in kinds
    assert kinds.count("run.finished") == 1


async def test_two_readers_get_the_same_bytes(on_paper: Client, paper: Paper) -> None:
    run = await paper.start("paper", "go")
    async with on_paper.stream(f"/api/runs/{run}/events") as one, on_paper.stream(f"/api/runs/{run}/events") as other:
        await one.next(), await other.next()
        for n in range(30):
            await paper.write(run, 1, note="x" * n)
            paper.speak(run, "c1", n, "y")
            await asyncio.sleep(0)
        while len(ids(frames(one.raw))) < 31:
            await one.next()
        while len(ids(frames(other.raw))) < 31:
            await other.next()

    shorter = min(len(one.raw), len(other.raw))
    assert one.raw[:shorter] == other.raw[:shorter]
    assert shorter > 3_000


async def test_a_quiet_stream_is_kept_alive_with_comments(on_paper: Client, paper: Paper) -> None:
    run = await paper.start("paper", "go")
    async with on_paper.stream(f"/api/runs/{run}/events") as events, on_paper.stream(f"/api/runs/{run}/live") as live:
        for stream in (events, live):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while b": keep-alive\n\n" not in stream.raw:
                    stream.raw += await stream.told.content.readany()


# -- without a gap, without a repeat


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.integers(0, 2**32 - 1))
def test_a_reader_that_is_cut_off_anywhere_gets_every_event_exactly_once_and_in_order(seed: int) -> None:
    """However often it reconnects, while the run goes on; from memory, or from the journal."""
    chance = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed, "TAIL", chance.choice([8, 2048]))
        asyncio.run(_cut_off_anywhere(chance))


async def _cut_off_anywhere(chance: random.Random) -> None:
    paper, total, said = Paper(), chance.randint(1, 400), "abcdefghij" * 40
    limits = Limits(queue_frames=chance.choice([4, 50, 4096, 4096]), linger_seconds=0.0)
    async with serving(app_over_backend(paper, limits=limits, admission=Admission(10_000, 10_000))) as client:
        paper.read_seconds = chance.choice([0.001, 0.01])
        run = await paper.start("paper", "go")
        await paper.write(run, chance.randint(0, total // 2))

        async def write() -> None:
            while (seq := paper.seq[run]) < total:
                await paper.write(run, min(chance.randint(1, 10), total - seq))
                begin = chance.randrange(len(said))
                paper.speak(run, "c1", begin, said[begin : begin + 7])
                await asyncio.sleep(chance.choice([0, 0.001, 0.005]))

        writing = asyncio.create_task(write())
        got: list[int] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(got) < total:
                cursor = {"Last-Event-ID": str(got[-1])} if got else {}
                async with client.stream(f"/api/runs/{run}/events", headers=cursor) as stream:
                    cut = chance.randint(1, 8_000)
                    while len(stream.raw) < cut and len(got) + len(ids(frames(stream.raw))) < total:
                        piece = await stream.told.content.read(chance.randint(1, 8192))
                        if not piece:
                            break
                        stream.raw += piece
                got += ids(frames(stream.raw))
        await writing

    assert got == list(range(1, total + 1))


async def test_old_events_are_read_from_the_journal_and_joined_to_those_that_come_meanwhile(
    on_paper: Client, paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "TAIL", 16)
    run = await paper.start("paper", "go")
    await paper.write(run, 1_000)

    async def go_on() -> None:
        for _ in range(200):
            await paper.write(run, 1)
            await asyncio.sleep(0.001)

    async with on_paper.stream(f"/api/runs/{run}/events") as stream:
        await stream.next()
        paper.read_seconds = 0.02
        writing = asyncio.create_task(go_on())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while b"\nid: 1201\n" not in stream.raw or not stream.raw.endswith(b"\n\n"):
                stream.raw += await stream.told.content.read(2000)
        await writing

    assert ids(frames(stream.raw)) == list(range(1, 1_202))


# -- a burden to nobody


async def test_a_reader_that_goes_away_never_stops_a_run(client: Client, runtime: Runtime) -> None:
    runtime.add(talker(text=WORDS))
    run = await client.start("talker")
    for path in ("events", "live", "events", "live"):
        async with client.stream(f"/api/runs/{run}/{path}") as stream:
            await stream.next()

    view = await client.until(run, "completed")

    assert view["result"] == WORDS
    assert view["verbs"] == []


async def test_a_reader_that_goes_away_is_noticed_and_its_run_is_soon_let_go(on_paper: Client, paper: Paper) -> None:
    run, hub = await paper.start("paper", "go"), hub_of(on_paper)
    async with on_paper.stream(f"/api/runs/{run}/events") as stream:
        await stream.next()
        assert (hub.readers, paper.listeners(run)) == (1, 1)

    await until(lambda: hub.readers == 0)
    await until(lambda: hub.runs == () and paper.listeners(run) == 0)


async def test_reconnecting_folds_nothing_again(paper: Paper) -> None:
    run = await paper.start("paper", "go")
    await paper.write(run, 3_000)
    async with serving(app_over_backend(paper)) as client:
        async with client.stream(f"/api/runs/{run}/live") as stream:
            await stream.next()
        before = paper.reads
        for _ in range(20):
            async with client.stream(f"/api/runs/{run}/events", params={"after": "2990"}) as stream:
                assert (await stream.next()) is not None
            async with client.stream(f"/api/runs/{run}/live") as stream:
                assert (await stream.next()) is not None

    assert paper.reads == before


def silent_reader(client: Client, path: str) -> socket.socket:
    """Asks for a stream and never reads it."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    port = int(client.base.rpartition(":")[2])
    connection.connect(("127.0.0.1", port))
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    return connection


async def test_a_slow_reader_is_let_go_and_goes_on_from_its_cursor(paper: Paper) -> None:
    limits = Limits(queue_frames=200, queue_bytes=2_000_000)
    run = await paper.start("paper", "go")
    async with serving(app_over_backend(paper, limits=limits)) as client:
        hub = hub_of(client)
        slow = [silent_reader(client, f"/api/runs/{run}/events") for _ in range(20)]
        try:
            await until(lambda: hub.readers == 20)
            async with client.stream(f"/api/runs/{run}/events") as quick:
                for _ in range(60):
                    await paper.write(run, 10, note="x" * 20_000)
                    await quick.up_to(paper.seq[run])
                await until(lambda: hub.readers == 1)
            last = await asyncio.to_thread(read_all, slow[0])
        finally:
            for connection in slow:
                connection.close()

        got = ids(frames(last.partition(b"\r\n\r\n")[2]))
        async with client.stream(f"/api/runs/{run}/events", headers={"Last-Event-ID": str(got[-1])}) as stream:
            frame = await stream.next()

    assert got == list(range(1, got[-1] + 1))
    assert 0 < got[-1] < 601
    assert frame is not None
    assert frame.id == str(got[-1] + 1)


def read_all(connection: socket.socket) -> bytes:
    """Everything up to the end, without the framing of chunks."""
    connection.settimeout(PATIENCE_SECONDS)
    raw = b""
    while piece := connection.recv(65536):
        raw += piece
    head, _, body = raw.partition(b"\r\n\r\n")
    plain = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        plain += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return head + b"\r\n\r\n" + plain


async def test_a_reader_that_takes_nothing_for_long_is_let_go_also_while_it_replays(paper: Paper) -> None:
    run = await paper.start("paper", "go")
    await paper.write(run, 400, note="x" * 20_000)
    async with serving(app_over_backend(paper, limits=Limits(stall_seconds=0.3))) as client:
        connection = silent_reader(client, f"/api/runs/{run}/events")
        try:
            await until(lambda: hub_of(client).readers == 1)
            await until(lambda: hub_of(client).readers == 0)
        finally:
            connection.close()


async def test_too_many_new_streams_are_told_when_to_come_back_and_verbs_are_not(runtime: Runtime) -> None:
    runtime.add(talker())
    async with serving(app_over(runtime, admission=Admission(most_per_second=0.001, burst=3))) as client:
        run = await client.start("talker")
        answers = []
        for _ in range(6):
            async with client.stream(f"/api/runs/{run}/events") as stream:
                answers.append((stream.told.status, stream.told.headers.get("retry-after")))

        assert [status for status, _ in answers] == [200, 200, 200, 503, 503, 503]
        assert all(int(later or 0) >= 1 for status, later in answers if status == 503)
        for _ in range(5):
            assert (await client.get(f"/api/runs/{run}"))[0] == 200
        assert (await client.post(f"/api/runs/{run}/cancel"))[0] == 200


async def test_a_full_house_is_a_503(paper: Paper) -> None:
    run = await paper.start("paper", "go")
    app = app_over_backend(paper, limits=Limits(streams=1))
    async with serving(app) as client, client.stream(f"/api/runs/{run}/events") as first:
        await first.next()
        async with client.stream(f"/api/runs/{run}/live") as second:
            assert second.told.status == 503
        assert (await client.get(f"/api/runs/{run}"))[0] == 200


async def test_nobody_takes_all_the_room_from_the_others(paper: Paper) -> None:
    run = await paper.start("paper", "go")
    admission = Admission(1e6, 1e6)
    app = app_over_backend(paper, limits=Limits(streams=8), admission=admission)
    async with serving(app) as client, AsyncExitStack() as stack:

        async def begun(who: dict[str, str]) -> int:
            stream = await stack.enter_async_context(client.stream(f"/api/runs/{run}/live", headers=who))
            if stream.told.status == 200:
                await stream.next()
            return stream.told.status

        taken = [await begun({"who": "eve:operator:"}) for _ in range(20)]
        others = [await begun({"who": "bob:operator:"}) for _ in range(20)]

        assert taken == [200] * 4 + [503] * 16
        assert others == [200] * 2 + [503] * 18
        assert await begun({"who": "ann:operator:"}) == 200, "there is room for somebody who has none yet"
        assert admission.refused == 16 + 18


async def test_strangers_do_not_stand_in_the_way_of_those_who_are_known(paper: Paper) -> None:
    keys, secret = Keys(), "ckr_for-tests-only-0123456789abcdefghijklmnop"
    keys.trust(secret, Principal(name="op", role=Role.OPERATOR))
    session = keys.begin_session(secret)
    run = await paper.start("paper", "go")
    async with serving(create_app(paper, Guard(FileKeyStore(keys)), admission=Admission(0.001, 4))) as client:
        port = client.base.rpartition(":")[2]
        assert session is not None
        strangers: list[dict[str, str]] = [{}, {"Authorization": "Bearer ckr_wrong"}, {"Cookie": "checkrein_1=cks_x"}]
        answers = [(await client.get(f"/api/runs/{run}/live", headers=strangers[n % 3]))[0] for n in range(30)]
        assert answers[-10:] == [503] * 10

        known = [{"Authorization": f"Bearer {secret}"}, {"Cookie": f"checkrein_{port}={session[0]}"}]
        for n in range(4):
            async with client.stream(f"/api/runs/{run}/live", headers=known[n % 2]) as stream:
                assert stream.told.status == 200


async def test_closing_the_hub_ends_every_stream(paper: Paper) -> None:
    run = await paper.start("paper", "go")
    async with serving(app_over_backend(paper)) as client:
        async with client.stream(f"/api/runs/{run}/events") as events, client.stream(f"/api/runs/{run}/live") as live:
            await events.next(), await live.next()

            await hub_of(client).close()

            assert await events.rest() == []
            assert await live.rest() == []
        assert (await client.get(f"/api/runs/{run}"))[0] == 503


async def test_who_may_no_longer_read_is_cut_off(paper: Paper) -> None:
    run = await paper.start("paper", "go")
    keys = Keys()
    token, secret = keys.create(role=Role.OPERATOR)
    app = create_app(paper, Guard(FileKeyStore(keys)))
    async with (
        serving(app) as client,
        client.stream(f"/api/runs/{run}/events", headers={"Authorization": f"Bearer {secret}"}) as stream,
    ):
        await stream.next()

        keys.revoke(token.id)

        await until(lambda: app.state.hub.readers == 0)


# -- the ring


async def test_a_ring_keeps_what_it_promises_and_says_what_is_gone() -> None:
    ring = FrameBuffer(most_frames=10, most_bytes=1000)
    for n in range(25):
        ring.publish(b"%d" % n)

    assert ring.end == 25
    assert ring.since(ring.start - 1) is None
    assert ring.since(ring.start) == [b"%d" % n for n in range(ring.start, 25)]
    assert 5 <= ring.end - ring.start <= 10
    assert ring.since(25) == []


async def test_a_ring_is_bounded_in_bytes_too_but_keeps_the_newest_frame() -> None:
    ring = FrameBuffer(most_frames=1000, most_bytes=100)
    for _ in range(10):
        ring.publish(b"x" * 40)
    ring.publish(b"y" * 5000)

    assert ring.since(ring.end - 1) == [b"y" * 5000]
    assert ring.since(ring.end - 4) is None


class Connection:
    """Takes what is written to it, at once or after a wait, and notes both."""

    def __init__(self) -> None:
        self.at_once: list[bytes] = []
        self.waited: list[bytes] = []
        self.is_full = False

    def write_now(self, body: bytes) -> bool:
        if not self.is_full:
            self.at_once.append(body)
        return not self.is_full

    async def write(self, body: bytes) -> None:
        await asyncio.sleep(0)
        self.waited.append(body)


@asynccontextmanager
async def followed() -> AsyncIterator[tuple[FrameBuffer, Reader, Connection]]:
    """A ring, a reader that has had all of it and waits, and its connection."""
    ring, connection = FrameBuffer(most_frames=10, most_bytes=1000), Connection()
    ring.publish(b"first")
    reader = Reader(ring)
    reader.write_now = connection.write_now

    async def follow() -> None:
        with reader.scope:
            await reader.follow(0, connection.write, lambda: False)

    following = asyncio.create_task(follow())
    await until(lambda: connection.waited == [b"first"])
    await until(lambda: bool(ring._waiting))
    yield ring, reader, connection
    following.cancel()


async def test_text_is_written_at_once_to_a_reader_that_waits_and_events_follow_in_order() -> None:
    async with followed() as (ring, reader, connection):
        ring.publish_text(b"some")
        ring.publish_text(b"text")
        assert connection.at_once == [b"some", b"text"]
        assert reader.position == ring.end

        ring.publish(b"event")
        ring.publish_text(b"after it")
        assert connection.at_once == [b"some", b"text"], "it has not had the event yet"
        await until(lambda: connection.waited == [b"first", b"eventafter it"])


async def test_text_for_a_connection_that_takes_no_more_is_waited_for() -> None:
    async with followed() as (ring, _, connection):
        connection.is_full = True
        ring.publish_text(b"some")
        connection.is_full = False
        ring.publish_text(b"text")

        assert connection.at_once == []
        await until(lambda: connection.waited == [b"first", b"sometext"])


async def test_a_reader_that_was_let_go_is_written_nothing_more() -> None:
    async with followed() as (ring, reader, connection):
        reader.let_go()
        ring.publish_text(b"some")

        assert connection.at_once == []
        assert not ring._waiting
