"""Connections that say nothing, or nothing that can be read; and a server that ends while somebody waits for it."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import uvicorn

from checkrein.server.processes import http_protocol
from tests.cli.shell import until
from tests.server.processes.client import Answer
from tests.server.processes.serving import Place
from tests.support.patience import PATIENCE_SECONDS


async def hello(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


async def said(raw: bytes, *, then: bytes = b"", before: Callable[[], None] = lambda: None) -> bytes:
    """All that a server answers to these bytes until it ends the connection.

    With `then`, `before` is called and `then` is sent once the first request was answered.
    """
    config = uvicorn.Config(hello, port=0, log_config=None, lifespan="off", http=http_protocol.HttpProtocol)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not server.started:
            await asyncio.sleep(0.005)
        reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname()[:2])
        writer.write(raw)
        answer = await reader.readuntil(b"hello") if then else b""
        before()
        writer.write(then)
        answer += await reader.read()
        writer.close()
    server.should_exit = True
    await serving
    return answer


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("raw", "then"),
    [
        pytest.param(b"", b"", id="nothing at all"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n", b"", id="half of a request"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HT", id="half of a second one"),
    ],
)
async def test_a_connection_that_never_says_what_it_wants_does_not_keep_its_place(
    raw: bytes, then: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_strict() -> None:
        monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.1)

    if not then:
        be_strict()  # a first request that is to be answered has all the time it needs

    answer = await said(raw, then=then, before=be_strict)

    assert answer.count(b"hello") == bool(then)


@pytest.mark.anyio
async def test_what_is_no_http_is_said_in_the_form_of_every_error() -> None:
    head, _, body = (await said(b"GET /\0 what\r\n\r\n")).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body).keys() == {"code", "message"}


@pytest.mark.anyio
async def test_a_head_without_end_is_not_kept_in_memory() -> None:
    endless = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"x: y\r\n" * http_protocol.HEAD_BYTES

    head, _, body = (await said(endless[: http_protocol.HEAD_BYTES + 1])).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 431 ")
    assert json.loads(body)["code"] == "too_large"


@pytest.mark.anyio
async def test_a_large_body_is_not_taken_for_a_long_head() -> None:
    body = b"x" * 1_000_000
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)

    assert (await said(head + body)).endswith(b"hello")


def test_whoever_waits_for_a_receipt_when_the_server_ends_is_told_what_their_verb_waits_for(place: Place) -> None:
    """P5: a question that was taken is not lost, and is not answered as if something had gone wrong."""
    server = place.serve()
    run = server.client.start("talker")
    until(lambda: server.client.status(run) == "running")
    answers: list[Answer] = []
    asking = threading.Thread(
        target=lambda: answers.append(server.client.verb(run, "ask", question="How far are you?", wait=60))
    )
    asking.start()
    until(lambda: [one["verb"] for one in server.client.view(run)["settling"]] == ["ask"])

    assert server.end() == 0
    asking.join(PATIENCE_SECONDS)

    assert [(answer.status, answer.body["verb"]) for answer in answers] == [(202, "ask")]
    assert "Traceback" not in server.started.text


def test_two_signals_at_once_end_a_server_without_a_stack_trace(place: Place) -> None:
    """As `timeout` does it, which signals the command and its group; somebody is reading meanwhile."""
    server = place.serve()
    run = server.client.start("talker")
    until(lambda: server.client.status(run) == "running")
    reading = server.client.read(f"/api/runs/{run}/live")
    until(lambda: reading.frames)

    for number in (signal.SIGTERM, signal.SIGINT):  # two of one kind may become one on their way
        server.started.process.send_signal(number)

    server.started.wait()
    reading.close()
    assert "Traceback" not in server.started.text, server.started.text
    assert "CancelledError" not in server.started.text
