"""What one connection may take without any credential: nobody else pays for it, and only what was said is read."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

import pytest
import uvicorn

from checkrein.server.auth.gate import ADMITTED, Admitted
from checkrein.server.auth.policy import Policy
from checkrein.server.auth.principals import Principal, Role
from checkrein.server.auth.request import RequestInfo
from checkrein.server.processes import http_protocol
from checkrein.server.streaming.sse import WRITE_NOW
from tests.cli.shell import until
from tests.server.processes.serving import Place
from tests.support.patience import PATIENCE_SECONDS

HEARD: list[dict[str, Any]] = []
STREAM = "/api/runs/r/events"
"""Writes without waiting for as long as it can."""
BIG = b"x" * 8_000_000
"""More than a kernel keeps for somebody who does not read it."""


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with what it heard. Whoever says `known: yes` is somebody; `/stream` does not end by itself."""
    headers = [(name.decode(), value.decode()) for name, value in scope["headers"]]
    if ("known", "yes") in headers:
        somebody = Principal(name="somebody", role=Role.VIEWER)
        scope[ADMITTED] = Admitted(RequestInfo(scope, Policy()), somebody)
    body, is_whole = b"", False
    while not is_whole:
        message = await receive()
        if message["type"] == "http.disconnect":
            HEARD.append({"path": scope["path"], "gone": True})
            return
        body += message["body"]
        is_whole = not message["more_body"]
    heard = {"method": scope["method"], "path": scope["path"], "headers": headers, "body": body.decode()}
    HEARD.append(heard)
    if scope["path"] == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        leaving = asyncio.ensure_future(receive())
        while not leaving.done():
            await send({"type": "http.response.body", "body": b".", "more_body": True})
            await asyncio.wait([leaving], timeout=0.02)
        HEARD.append({"path": "/stream", "gone": True})
        return
    if scope["path"] == STREAM:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        took = 0
        while took < len(BIG) and scope[WRITE_NOW](BIG[:100_000]):
            took += 100_000
        HEARD.append({"path": STREAM, "took": took})
        await send({"type": "http.response.body", "body": b"ended", "more_body": False})
        HEARD.append({"path": STREAM, "again": scope[WRITE_NOW](b"x")})
        return
    told = BIG if scope["path"] == "/big" else json.dumps(heard).encode()
    length = (b"content-length", str(len(told)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": told})


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    HEARD.clear()
    config = uvicorn.Config(
        echo, port=0, log_config=None, lifespan="off", http=http_protocol.HttpProtocol, ws="none", access_log=False
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not server.started:
            await asyncio.sleep(0.005)
        yield server.servers[0].sockets[0].getsockname()[1]
        server.should_exit = server.force_exit = True
        await task


async def said(raw: bytes) -> bytes:
    """All that is answered to these bytes until the connection ends."""
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw)
        answer = await reader.read()
        writer.close()
        return answer


def told(answer: bytes) -> tuple[int, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


CLOSE = b"Host: x\r\nConnection: close\r\n"


# -- memory


@pytest.mark.anyio
async def test_requests_that_are_sent_ahead_without_end_are_cut_off() -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 4000)
        with pytest.raises(ConnectionError):
            while await reader.read(65536):
                pass
            raise ConnectionResetError  # ended in order is as good
        writer.close()

    assert len(HEARD) <= 20


@pytest.mark.anyio
async def test_a_few_requests_that_are_sent_ahead_are_answered_in_order() -> None:
    raw = b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(4))

    answer = await said(raw + b"GET /4 HTTP/1.1\r\n" + CLOSE + b"\r\n")

    assert [one["path"] for one in HEARD] == [f"/{n}" for n in range(5)]
    assert answer.count(b"HTTP/1.1 200") == 5


@pytest.mark.anyio
@pytest.mark.parametrize(
    "trailers", [b"x: " + b"y" * 1_000_000, b"x: y\r\n" * 200_000], ids=["one that does not end", "very many"]
)
async def test_trailers_without_end_are_not_kept_in_memory(trailers: bytes) -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
        writer.write(trailers)
        with pytest.raises(ConnectionError):
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 431 ")
            raise ConnectionResetError
        writer.close()


@pytest.mark.anyio
async def test_the_longest_head_is_64_kib_however_it_comes() -> None:
    head = b"GET / HTTP/1.1\r\n" + CLOSE

    assert told(await said(head + b"x: " + b"y" * 60_000 + b"\r\n\r\n"))[0] == 200
    assert told(await said(head + b"x: " + b"y" * 66_000 + b"\r\n\r\n"))[0] == 431


@pytest.mark.anyio
async def test_a_stream_ends_with_its_connection_though_another_request_waits_behind_it() -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"begun")
        writer.write(b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
        await writer.drain()
        writer.transport.abort()
        while {"path": "/stream", "gone": True} not in HEARD:
            await asyncio.sleep(0.01)

    assert "/next" not in [one["path"] for one in HEARD]


@pytest.mark.anyio
async def test_a_stream_is_written_to_without_waiting_until_its_reader_lags_behind_or_it_is_over() -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /api/runs/r/events HTTP/1.1\r\n" + CLOSE + b"\r\n")
        while {"path": STREAM, "again": False} not in HEARD[-1:]:
            if any("took" in one for one in HEARD):  # it waits for us
                await reader.read(1_000_000) if not writer.is_closing() else None
            await asyncio.sleep(0.001)
        writer.close()
    took = next(one["took"] for one in HEARD if "took" in one)

    assert 0 < took < len(BIG), "it was told when to wait"


# -- what is heard


@pytest.mark.anyio
async def test_a_trailer_is_no_header() -> None:
    status, heard = told(
        await said(
            b"POST / HTTP/1.1\r\n" + CLOSE + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
            b"Authorization: Bearer stolen\r\nHost: evil\r\n\r\n"
        )
    )

    assert (status, heard["body"]) == (200, "{}")
    assert [value for name, value in heard["headers"] if name in ("authorization", "host")] == ["x"]


OFFERS = {
    "curl --http2": b"Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    "a websocket": b"Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
}


@pytest.mark.anyio
@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
@pytest.mark.parametrize("body", [b"Content-Length: 14\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
@pytest.mark.parametrize("step", [7, 10_000])
async def test_a_request_that_offers_an_upgrade_keeps_its_body(offer: bytes, body: bytes, step: int) -> None:
    sent = b'{"undo":"none"}'[:14]
    raw = b"POST /cancel HTTP/1.1\r\nHost: x\r\n" + offer + body
    raw += b"e\r\n" + sent + b"\r\n0\r\n\r\n" if b"chunked" in body else sent
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for at in range(0, len(raw), step):
            writer.write(raw[at : at + step])
            await writer.drain()
        status, heard = told(await reader.read())
        writer.close()

    assert (status, heard["method"], heard["body"]) == (200, "POST", sent.decode())
    assert "upgrade" not in dict(heard["headers"])
    assert len(HEARD) == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    "line",
    [b"GET http://evil/ HTTP/1.1", b"GET http://x:1/ HTTP/1.1", b"CONNECT x:80 HTTP/1.1", b"GET / HTTP/2.0"],
)
async def test_a_request_line_that_means_another_server_is_refused(line: bytes) -> None:
    status, _ = told(await said(line + b"\r\n" + CLOSE + b"\r\n"))

    assert status == 400
    assert HEARD == []


@pytest.mark.anyio
async def test_an_address_that_names_the_same_host_is_taken() -> None:
    assert told(await said(b"GET http://X/a HTTP/1.1\r\n" + CLOSE + b"\r\n"))[1]["path"] == "/a"


# -- time and places


@pytest.mark.anyio
@pytest.mark.parametrize(
    "raw",
    [
        b"Content-Length: 9\r\n\r\n{",
        b"Transfer-Encoding: chunked\r\n\r\n9\r\n{",
        b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: y",
        b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    ],
    ids=["no body", "half of a chunk", "half of a trailer", "after 100 Continue"],
)
async def test_a_body_that_does_not_come_does_not_keep_its_place(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "BODY_SECONDS", 0.2)

    answer = await said(b"POST / HTTP/1.1\r\nHost: x\r\n" + raw)

    status, body = told(answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n"))
    assert (status, body["code"]) == (408, "body_late")
    assert [one for one in HEARD if "gone" not in one] == []


@pytest.mark.anyio
async def test_silent_connections_make_room_for_the_next_one_and_those_of_somebody_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_protocol, "most_connections", lambda: 20)
    async with serving() as port:
        first, somebody = await asyncio.open_connection("127.0.0.1", port)
        somebody.write(b"GET /stream HTTP/1.1\r\nHost: x\r\nknown: yes\r\n\r\n")
        await first.readuntil(b"begun")
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        for _, writer in silent:
            writer.write(b"POST /session HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")

        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /verb HTTP/1.1\r\n" + CLOSE + b"\r\n")
        assert told(await reader.read())[1]["path"] == "/verb"
        gone = [asyncio.create_task(_is_gone(one)) for one, _ in silent]
        await asyncio.wait(gone, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        assert gone[0] in [one for one in gone if one.done()], "the oldest goes first"
        assert {"path": "/stream", "gone": True} not in HEARD
        for one in gone:
            one.cancel()
        for _, each in [*silent, (reader, writer), (first, somebody)]:
            each.transport.abort()


@pytest.mark.anyio
async def test_those_that_do_not_read_their_last_answer_make_room_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "most_connections", lambda: 4)
    loop = asyncio.get_running_loop()
    async with serving() as port:
        with ExitStack() as sockets:
            unread = []
            for _ in range(8):
                one = sockets.enter_context(socket.socket())
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                one.setblocking(False)
                await loop.sock_connect(one, ("127.0.0.1", port))
                heard = len(HEARD)
                await loop.sock_sendall(one, b"GET /big HTTP/1.1\r\n" + CLOSE + b"\r\n")
                while len(HEARD) == heard:
                    await asyncio.sleep(0.005)
                unread.append(one)

            lengths = [await _length(one) for one in unread]

    assert max(lengths[:3]) < len(BIG), "the oldest are cut off"
    assert lengths[-1] > len(BIG), "the newest hears all of it"


async def _length(one: socket.socket) -> int:
    length, loop = 0, asyncio.get_running_loop()
    try:
        while piece := await loop.sock_recv(one, 1 << 20):
            length += len(piece)
    except ConnectionError:
        pass
    return length


async def _is_gone(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


def _heard(one: socket.socket) -> bytes:
    """What a connection was told until its end."""
    one.settimeout(PATIENCE_SECONDS)
    try:
        return one.recv(1 << 16)
    except ConnectionError:
        return b""


@contextmanager
def descriptors(soft: int) -> Iterator[None]:
    """So few for what is started meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_cancel_on_a_new_connection_works_beside_more_silent_ones_than_there_are_descriptors(place: Place) -> None:
    """The witness of what the server may have is the kernel: at first more than it was started with, then little."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with descriptors(512):
        server = place.serve()
    assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE)[0] == min(hard, http_protocol.MOST_DESCRIPTORS)
    run = server.client.start("talker")
    until(lambda: server.client.status(run) == "running")

    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (256, 256))
    with ExitStack() as stack, descriptors(1024):
        oldest = None
        for _ in range(400):
            silent = stack.enter_context(socket.create_connection(("127.0.0.1", server.client.port)))
            oldest = oldest or silent
            silent.sendall(
                b"POST /session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                b"Content-Length: 9\r\n\r\n"
            )
        answer = server.client.verb(run, "cancel", undo="none")

        assert answer.status in (200, 202), answer
        assert oldest is not None
        assert _heard(oldest) == b"", "it has made room at once, and was not waited for until its body was late"
        until(lambda: server.client.status(run) == "cancelled")
        assert server.end() == 0
    assert "Traceback" not in server.started.text, server.started.text
