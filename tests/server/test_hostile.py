"""What nobody in their right mind sends, or what goes wrong at the wrong moment: it costs nothing and harms nobody."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path

import pytest

from checkrein import Agent, Runtime
from checkrein.core.enums import Status, Verb
from checkrein.core.events import VerbAccepted
from checkrein.errors import StoreUnavailable
from checkrein.models import ScriptedModel
from checkrein.server.app import create_app
from checkrein.server.auth.guard import Guard
from checkrein.server.auth.key_store import FileKeyStore
from checkrein.server.auth.principals import Principal, Role
from checkrein.server.auth.token_store import Keys
from checkrein.server.backend import RuntimeBackend
from checkrein.server.pages import Files
from checkrein.server.streaming.hub import Hub
from tests.server.serving import Client, app_over, app_over_backend, begun, serving
from tests.server.test_stream import Paper, ids
from tests.support.text import sentences
from tests.support.witness import until

pytestmark = pytest.mark.anyio

SECRET = "ckr_for-tests-only-0123456789abcdefghijklmnop"


def talker() -> Agent:
    return Agent("talker", model=ScriptedModel(lambda _: sentences(400), tokens_per_second=50))


def hub_of(client: Client) -> Hub:
    hub: Hub = client.app.state.hub
    return hub


# -- where a stream begins


@pytest.mark.parametrize("cursor", ["9" * 5000, "-1", "1.5", "0x1", "9007199254740993", "garbage"])
async def test_a_cursor_that_is_no_number_of_an_event_is_a_422(cursor: str) -> None:
    paper = Paper()
    run = await paper.start("paper", "go")
    async with serving(app_over_backend(paper)) as client:
        status, told = await client.get(f"/api/runs/{run}/events", headers={"Last-Event-ID": cursor})

    assert (status, told["code"]) == (422, "invalid")


async def test_a_cursor_that_another_server_gave_out_is_not_answered_with_what_came_before_it() -> None:
    """Two servers on one store: what one has just told, the other may not have heard of yet."""
    paper = Paper()
    run = await paper.start("paper", "go")
    async with serving(app_over_backend(paper)) as client, client.stream(f"/api/runs/{run}/events") as reading:
        await reading.next()
        feed = await hub_of(client).feed(run)
        feed._following.cancel()  # from here on this server hears of nothing by itself
        await asyncio.sleep(0)
        await paper.write(run, 5)

        async with client.stream(f"/api/runs/{run}/events", headers={"Last-Event-ID": "6"}) as stream:
            await paper.write(run, 1)
            await feed.feed.catch_up()
            frame = await stream.next()
            assert frame is not None
            assert ids([frame]) == [7]


async def test_a_cursor_beyond_the_last_event_is_said_to_be_one() -> None:
    paper = Paper()
    run = await paper.start("paper", "go")
    await paper.write(run, 5)
    async with serving(app_over_backend(paper)) as client:
        status, told = await client.get(f"/api/runs/{run}/events", params={"after": "700"})

    assert (status, told["code"]) == (422, "invalid")
    assert "700" in told["message"]
    assert "6" in told["message"]


# -- readers that are a burden


async def test_a_reader_that_sends_without_end_is_let_go_and_not_kept_after_it_has_left() -> None:
    paper, keys = Paper(), Keys()
    keys.trust(SECRET, Principal(name="op", role=Role.OPERATOR))
    run = await paper.start("paper", "go")
    async with serving(create_app(paper, Guard(FileKeyStore(keys)))) as client:
        port = int(client.base.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET /api/runs/{run}/live HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {SECRET}\r\n"
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        await reader.readuntil(b"retry: 1000")
        assert hub_of(client).readers == 1

        for _ in range(40):
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await asyncio.sleep(0.005)

        await until(lambda: hub_of(client).readers == 0)
        writer.close()


async def test_a_run_that_could_not_be_followed_any_more_is_let_go_before_it_is_followed_anew() -> None:
    paper = Paper()
    run = await paper.start("paper", "go")
    async with serving(app_over_backend(paper)) as client:
        for _ in range(5):
            feed = await hub_of(client).feed(run)
            feed.failure = StoreUnavailable("The disk is away.")
        assert (await client.get(f"/api/runs/{run}"))[0] == 200

        assert paper.listeners(run) == 1


async def test_whoever_leaves_in_the_middle_of_a_request_leaves_no_stack_trace(
    client: Client, runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.add(talker())
    run = await client.start("talker")
    with socket.create_connection(("127.0.0.1", int(client.base.rpartition(":")[2]))) as leaving, caplog.at_level(0):
        leaving.sendall(
            f"POST /api/runs/{run}/pause HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            "Content-Length: 100\r\n\r\n{".encode()
        )
        await asyncio.sleep(0.2)
        leaving.close()
        await asyncio.sleep(0.2)

    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert (await client.until(run, "running"))["verbs"] == []


# -- names of one thing


@pytest.mark.parametrize("name", ["app.js", "x/../app.js", "app.js/x/..", "./app.js", "app.js/"])
def test_a_file_has_one_copy_and_one_type_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    (tmp_path / "app.js").write_text("export {};")
    files = Files(tmp_path)
    first = files.read("app.js")

    assert first is not None
    assert files.read(name) is first
    assert first.kind.startswith("text/javascript")


async def test_one_request_id_for_two_verbs_at_the_same_moment_does_not_keep_the_cancel_from_being_taken(
    client: Client, runtime: Runtime
) -> None:
    run = await begun(client, runtime, talker(), "running")
    body = {"request_id": "click-00000001"}

    answers = await asyncio.gather(
        *[client.post(f"/api/runs/{run}/{verb}", body) for verb in ("pause", "cancel", "pause", "cancel")]
    )

    cancels = answers[1::2]
    assert [status for status, _ in cancels] == [200, 200]
    assert cancels[0] == cancels[1]
    verbs = [record.event for record in await runtime.journal.read(run) if isinstance(record.event, VerbAccepted)]
    assert [event.verb for event in verbs].count(Verb.CANCEL) == 1
    assert (await runtime.journal.load(run)).status is Status.CANCELLED


async def test_a_request_id_is_one_line(client: Client, runtime: Runtime) -> None:
    runtime.add(talker())
    run = await client.start("talker")

    status, told = await client.post(f"/api/runs/{run}/pause", {"request_id": "click-00000001\n"})

    assert (status, told["code"]) == (422, "invalid")
    await client.post(f"/api/runs/{run}/cancel")


# -- who, and what they looked at


async def test_a_redirect_by_starting_a_run_names_who_asked(client: Client, runtime: Runtime) -> None:
    runtime.add(talker())
    run = await client.start("talker", thread="t")
    await client.until(run, "running")

    body = {"agent": "talker", "goal": "so", "thread": "t", "if_busy": "redirect"}
    status, _ = await client.post("/api/runs", body, headers={"who": "ann:operator:"})

    assert status == 201
    _, view = await client.get(f"/api/runs/{run}")
    assert [(one["verb"], one["by"]) for one in view["verbs"]] == [("redirect", "ann")]
    await client.post(f"/api/runs/{run}/cancel")


async def test_a_question_that_comes_too_late_is_refused_too(client: Client, runtime: Runtime) -> None:
    run = await begun(client, runtime, talker(), "running")
    seen = (await client.get(f"/api/runs/{run}"))[1]["status_seq"]
    await client.post(f"/api/runs/{run}/pause")

    status, told = await client.post(f"/api/runs/{run}/ask", {"question": "Why?", "expected_seq": seen})

    assert (status, told["code"]) == (409, "stale")
    await client.post(f"/api/runs/{run}/cancel")


# -- a server that ends


async def test_whoever_waits_for_a_receipt_when_the_server_ends_is_told_what_it_waits_for(
    client: Client, runtime: Runtime
) -> None:
    run = await begun(client, runtime, talker(), "running")
    asking = asyncio.create_task(client.post(f"/api/runs/{run}/ask", {"question": "How far?", "wait": 60}))
    while not (await client.get(f"/api/runs/{run}"))[1]["settling"]:
        await asyncio.sleep(0.02)

    runtime.control.hurry()
    runtime.control.hurry()

    status, told = await asyncio.wait_for(asking, 30)
    assert (status, told["verb"]) == (202, "ask")
    again, told = await asyncio.wait_for(client.post(f"/api/runs/{run}/ask", {"question": "Why?", "wait": 60}), 30)
    assert (again, told["verb"]) == (202, "ask"), "nobody who comes later waits either"
    await client.post(f"/api/runs/{run}/cancel")


async def test_a_runtime_that_was_closed_meanwhile_is_a_503(tmp_path: Path) -> None:
    async with Runtime(f"sqlite:///{tmp_path}/runs.db", agents=[talker()]) as runtime:
        app = app_over(runtime)
        async with serving(app) as client:
            run = await client.start("talker")
            await hub_of(client).facts(run)
            await hub_of(client).close()
            hub_of(client).is_closed = False
            await client.post(f"/api/runs/{run}/cancel")
            await runtime.aclose()

            status, told = await client.get(f"/api/runs/{run}")

    assert (status, told["code"]) == (503, "store_unavailable")


async def test_tokens_are_given_out_for_the_runs_of_a_runtime_that_was_opened_again(tmp_path: Path) -> None:
    keys = Keys()
    keys.trust(SECRET, Principal(name="op", role=Role.OPERATOR))
    runtime = Runtime(f"sqlite:///{tmp_path}/runs.db", agents=[talker()])
    headers = {"Authorization": f"Bearer {SECRET}"}
    async with serving(create_app(RuntimeBackend(runtime), Guard(FileKeyStore(keys)))) as client:
        for _ in range(2):
            async with runtime:
                _, view = await client.post("/api/runs", {"agent": "talker", "goal": "go"}, headers=headers)
                status, told = await client.post("/api/tokens", {"run": view["id"]}, headers=headers)

                assert status == 201, told
                await client.post(f"/api/runs/{view['id']}/cancel", {}, headers=headers)
