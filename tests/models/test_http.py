"""One HTTP client for all: shared, bounded, and stopped at once in every phase of a request."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import trustme

from checkrein.errors import ModelUnavailable
from checkrein.models.http import client as http
from checkrein.models.http import proxies
from checkrein.models.http.client import Response, Timeouts, client
from checkrein.testing.provider import Fault, Provider, Reply
from tests.models.sockets import END, HEAD, KeepsAlive, chunk, listening, request
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-key"
SOON = PATIENCE_SECONDS
"""Seconds: generous, for a machine that does other things as well."""


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    proxies._proxy.cache_clear()


async def post(url: str, body: bytes = b"{}", **timeouts: float) -> Response:
    return await client().post(
        url, {"authorization": f"Bearer {KEY}"}, body, who="acme (host)", timeouts=Timeouts(**timeouts)
    )


async def whole(response: Response) -> bytes:
    parts = []
    while data := await response.read():
        parts.append(data)
    response.close()
    return b"".join(parts)


async def failing(url: str, **timeouts: float) -> ModelUnavailable:
    """The error that a request to `url` ends with, none of which gives the key away."""
    with pytest.raises(ModelUnavailable) as caught:
        await post(url, b"{}", **timeouts)
    error = caught.value
    assert error.code == "model_unavailable"
    assert error.remedy
    # What the library raised holds the headers of the request.
    assert error.__context__ is None
    assert error.__cause__ is None
    assert KEY not in repr(error) + str(vars(error))
    return error


async def stop(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def stop_when(asked: asyncio.Event, work: Coroutine[Any, Any, Any], gone: asyncio.Event) -> None:
    """Stop `work` as soon as the server was `asked`, which then sees that the connection is `gone`."""
    task = asyncio.create_task(work)
    await asked.wait()
    await stop(task)
    async with asyncio.timeout(SOON):
        await gone.wait()


def chat(provider: Provider) -> tuple[str, bytes]:
    messages = [{"role": "user", "content": "Hi."}]
    return f"{provider.openai_url}/chat/completions", msgspec.json.encode(
        {"model": "gpt-5", "messages": messages, "stream": True}
    )


# -- one for all


async def test_everybody_on_an_event_loop_shares_its_client_and_another_loop_has_its_own():
    async def elsewhere() -> http.Client:
        return client()

    assert client() is client()
    assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) is not client()


async def test_a_connection_is_used_again_after_a_response_that_was_read_to_its_end():
    server = KeepsAlive(b"data: 1\n\n")

    async with listening(server) as address:
        for _ in range(3):
            assert await whole(await post(f"http://{address}/")) == b"data: 1\n\n"

    assert server.connections == 1


async def test_a_response_that_has_said_all_is_waited_for_so_that_its_connection_is_used_again(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(http, "END_SECONDS", PATIENCE_SECONDS)
    server = KeepsAlive(b"data: [DONE]\n\n", seconds=0.02)

    async with listening(server) as address:
        for _ in range(3):
            response = await post(f"http://{address}/")
            await response.read()
            await response.end()

    assert server.connections == 1


async def test_a_response_whose_end_does_not_come_is_closed_and_its_connection_never_used_again():
    gone = asyncio.Queue[bytes]()
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await request(reader)
        writer.write(HEAD + chunk(b"data: [DONE]\n\n"))
        gone.put_nowait(await reader.read())

    async with listening(serve) as address:
        for _ in range(2):
            response = await post(f"http://{address}/")
            await response.read()
            await response.end()
            async with asyncio.timeout(SOON):
                assert await gone.get() == b""

    assert connections == 2


async def test_cookies_and_redirects_are_not_followed():
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _ = await request(reader)
            heads.append(head)
            writer.write(b"HTTP/1.1 307 Elsewhere\r\nlocation: /other\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n")

    async with listening(serve) as address:
        for _ in range(2):
            response = await post(f"http://{address}/v1")
            assert response.status == 307
            await whole(response)

    assert [head.split(b" ")[1] for head in heads] == [b"/v1", b"/v1"]
    assert b"cookie" not in heads[1].lower()


async def test_name_and_password_in_an_address_are_sent_unless_there_is_a_key():
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _ = await request(reader)
            heads.append(head)
            writer.write(HEAD + END)

    async with listening(serve) as address:
        await whole(await post(f"http://ann:pass%40word@{address}/"))
        await whole(await client().post(f"http://ann:pass%40word@{address}/", {}, b"{}", who="acme"))

    assert f"authorization: Bearer {KEY}".encode() in heads[0]
    assert b"authorization: Basic YW5uOnBhc3NAd29yZA==" in heads[1]


async def test_a_large_request_arrives_whole():
    sizes: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, body = await request(reader)
        sizes.append(len(body))
        writer.write(HEAD + END)

    async with listening(serve) as address:
        await whole(await post(f"http://{address}/", b"x" * 5_000_000))

    assert sizes == [5_000_000]


def test_the_client_is_closed_with_its_event_loop_without_a_word():
    program = """
        import asyncio
        from checkrein.models.http.client import client
        from tests.models.sockets import END, HEAD, listening, request

        async def serve(reader, writer):
            while True:
                await request(reader)
                writer.write(HEAD + END)

        async def main():
            async with listening(serve) as address:
                response = await client().post(f"http://{address}/", {}, b"{}", who="acme")
                await response.end()

        for _ in range(2):
            asyncio.run(main(), debug=True)
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        cwd=Path(__file__).parents[2],
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_importing_the_models_imports_no_wire_and_no_http_library():
    program = """
        import sys
        import checkrein.models
        wires = {"checkrein.models.openai", "checkrein.models.anthropic.model", "checkrein.models.http.client"}
        print(sorted(name for name in sys.modules if name in wires | {"aiohttp", "httpx", "ssl", "openai"}))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )

    assert done.stdout.strip() == "[]"


# -- stopping


async def test_d2_a_task_that_was_cancelled_before_it_asked_sends_nothing():
    async with Provider(Reply("Hello.")) as provider:
        url, body = chat(provider)
        await whole(await post_to(provider))  # so that there is a connection that could be used at once
        task = asyncio.create_task(post(url, body))
        await stop(task)

        # A request that follows shows that nothing of the first one was on its way.
        await whole(await post_to(provider))
        assert len(provider.log) == 2


async def post_to(provider: Provider) -> Response:
    url, body = chat(provider)
    return await client().post(url, {"authorization": f"Bearer {provider.key}"}, body, who="acme (host)")


async def test_d2_a_cancelled_task_that_goes_on_to_ask_sends_nothing_either():
    async with Provider(Reply("Hello.")) as provider:
        await whole(await post_to(provider))

        async def ask() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await post_to(provider)

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(ask())
        await whole(await post_to(provider))
        assert len(provider.log) == 2


async def test_d2_cancelling_while_the_connection_is_being_made_closes_it():
    """The server accepts and then says nothing, so the TLS handshake never ends."""
    hello, gone = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        hello.set()
        with suppress(ConnectionError):
            await reader.read()
        gone.set()

    async with listening(serve) as address:
        await stop_when(hello, post(f"https://{address}/"), gone)


async def test_d2_cancelling_while_waiting_for_the_first_byte_closes_the_connection():
    asked, gone = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        asked.set()
        assert await reader.read() == b""
        gone.set()

    async with listening(serve) as address:
        await stop_when(asked, post(f"http://{address}/"), gone)


async def test_d2_cancelling_does_not_wait_for_a_server_that_does_not_read_the_request():
    """The socket is gone from this process, although part of the request was still to be sent."""
    begun, done = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        begun.set()
        await done.wait()

    async with listening(serve) as address:
        port = int(address.partition(":")[2])
        task = asyncio.create_task(post(f"http://{address}/", b"x" * 50_000_000))
        await begun.wait()
        await asyncio.sleep(0.2)  # until the buffers of both sides are full
        assert is_connected_to(port)

        await stop(task)

        async with asyncio.timeout(SOON):
            while is_connected_to(port):
                await asyncio.sleep(0.01)
        done.set()


def is_connected_to(port: int) -> bool:
    ours = psutil.Process().net_connections("tcp4")
    return any(getattr(one.raddr, "port", 0) == port for one in ours)


@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_d2_stopping_in_the_middle_of_a_response_closes_the_connection_and_it_is_not_used_again(how: str):
    gone = asyncio.Queue[int]()
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        number = connections
        await request(reader)
        writer.write(HEAD + chunk(b"data: 1\n\n"))
        with suppress(ConnectionError):
            await reader.read()
        gone.put_nowait(number)

    async with listening(serve) as address:
        for number in (1, 2):
            response = await post(f"http://{address}/")
            assert await response.read() == b"data: 1\n\n"
            if how == "cancelled":
                task = asyncio.create_task(response.read())
                await asyncio.sleep(0)
                await stop(task)
            else:
                response.close()
            async with asyncio.timeout(SOON):
                assert await gone.get() == number

    assert connections == 2


# -- what may go wrong


async def test_nothing_that_listens_is_said_with_the_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        error = await failing(f"http://127.0.0.1:{port}/v1")

    assert error.reason == "refused"
    assert error.may_retry
    assert str(error) == f"acme (host) could not be reached: nothing listens at 127.0.0.1:{port}."


async def test_a_host_without_an_address_is_said_by_name(monkeypatch: pytest.MonkeyPatch):
    def nowhere(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)

    error = await failing("http://user:password@models.example:8000/v1")

    assert error.reason == "dns"
    assert "models.example:8000" in str(error)
    assert "password" not in str(error)


async def test_a_server_that_never_answers_is_given_up():
    async with Provider(Reply(fault=Fault(never_answers=True))) as provider:
        url, body = chat(provider)
        with pytest.raises(ModelUnavailable, match=r"did not begin to answer within 0.2 s") as caught:
            await client().post(
                url,
                {"authorization": f"Bearer {provider.key}"},
                body,
                who="acme (host)",
                timeouts=Timeouts(first_byte=0.2),
            )
        await provider.until(lambda log: log[0].how == "disconnected")

    assert caught.value.reason == "timeout"
    assert "`timeouts`" in caught.value.remedy


async def test_a_connection_that_does_not_come_about_is_given_up():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(serve) as address:
        error = await failing(f"https://{address}/v1", connect=0.2)

    assert error.reason == "timeout"
    assert "no connection" in str(error)


async def test_a_server_that_closes_instead_of_answering_is_told_apart():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)

    async with listening(serve) as address:
        error = await failing(f"http://{address}/")

    assert error.reason == "cut"
    assert error.may_retry


async def test_an_answer_that_is_no_http_is_told_apart():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"220 mail.example ESMTP\r\n\r\n")

    async with listening(serve) as address:
        error = await failing(f"http://{address}/")

    assert error.reason == "malformed"


@pytest.mark.parametrize("how", ["reset", "closed", "no more chunks"])
async def test_a_response_that_breaks_off_is_an_error_and_no_end(how: str):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(HEAD + chunk(b"data: 1\n\n"))
        await writer.drain()
        await asyncio.sleep(0.05)
        if how == "reset":
            writer.transport.abort()
        elif how == "no more chunks":
            writer.write(b"this is no chunk\r\n")

    async with listening(serve) as address:
        response = await post(f"http://{address}/")
        assert await response.read() == b"data: 1\n\n"
        with pytest.raises(ModelUnavailable, match="broke off in the middle of its answer") as caught:
            await response.read()

    assert caught.value.reason == "cut"
    assert caught.value.__context__ is None


@asynccontextmanager
async def silent_after_one_event() -> AsyncGenerator[tuple[str, asyncio.Event], None]:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(HEAD + chunk(b"data: 1\n\n"))
        with suppress(ConnectionError):
            await reader.read()
        gone.set()

    async with listening(serve) as address:
        yield f"http://{address}/", gone


async def test_a_response_that_stalls_is_given_up_and_its_connection_closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "LOOK_SECONDS", 0.05)
    async with silent_after_one_event() as (url, gone):
        response = await post(url, between_bytes=0.2)
        await response.read()

        with pytest.raises(ModelUnavailable, match=r"said nothing more for 0.2 s") as caught:
            async with asyncio.timeout(SOON):
                await response.read()

        async with asyncio.timeout(SOON):
            await gone.wait()
    assert caught.value.reason == "stalled"
    assert "`timeouts`" in caught.value.remedy


async def test_a_reader_that_is_slow_is_no_provider_that_stalls(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http, "LOOK_SECONDS", 0.02)
    go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(HEAD + chunk(b"data: 1\n\n"))
        await go_on.wait()
        writer.write(chunk(b"data: 2\n\n") + END)
        await request(reader)

    async with listening(serve) as address:
        response = await post(f"http://{address}/", between_bytes=2.0)
        await response.read()
        response.hurry(0.1)
        await asyncio.sleep(0.5)
        go_on.set()

        assert await response.read() == b"data: 2\n\n"


async def test_of_an_endless_error_page_only_the_beginning_is_read():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(HEAD)
        while True:
            writer.write(chunk(b"x" * 10_000))
            await writer.drain()

    async with listening(serve) as address:
        response = await post(f"http://{address}/")

        assert await response.beginning(25_000) == b"x" * 25_000


# -- TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_side(authority: trustme.CA, host: str = "127.0.0.1") -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(host).configure_cert(context)
    return context


async def test_a_certificate_of_an_unknown_authority_is_refused_with_the_remedy(authority: trustme.CA):
    async with Provider(Reply("Hello."), ssl=server_side(authority)) as provider:
        error = await failing(f"{provider.openai_url}/chat/completions")
        assert provider.log == []

    assert error.reason == "tls"
    assert not error.may_retry
    assert "is not trusted" in str(error)
    assert "SSL_CERT_FILE" in error.remedy


async def test_a_certificate_for_another_host_is_refused(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    async with Provider(Reply("Hello."), ssl=server_side(authority, "models.example")) as provider:
        error = await failing(f"{provider.openai_url}/chat/completions")

    assert error.reason == "tls"
    assert not error.may_retry


async def test_d2_an_authority_from_the_environment_is_trusted_and_a_stop_reaches_through_tls(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    reply = Reply("one two three four five six", tokens_per_second=1)
    async with Provider(reply, ssl=server_side(authority)) as provider:
        response = await post_to(provider)
        await response.read()
        task = asyncio.create_task(response.read())
        await asyncio.sleep(0)
        await stop(task)
        await provider.until(lambda log: log[0].how == "disconnected", timeout=SOON)


async def test_https_to_a_server_without_tls_is_said():
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        await reader.read()

    async with listening(serve) as address:
        error = await failing(f"https://{address}/")

    assert error.reason == "tls"
    assert not error.may_retry
    assert "https://" in error.remedy


# -- proxies


async def test_the_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch):
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await request(reader)
        heads.append(head)
        writer.write(HEAD + END)

    async with listening(serve) as address:
        monkeypatch.setenv("HTTP_PROXY", f"http://ann:pass%40word@{address}")
        await whole(await post("http://models.example/v1"))

    assert heads[0].startswith(b"POST http://models.example/v1 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic YW5uOnBhc3NAd29yZA==" in heads[0]


async def test_a_tunnel_through_a_proxy_is_asked_for_with_its_password_and_without_the_key(
    monkeypatch: pytest.MonkeyPatch,
):
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")

    async with listening(serve) as address:
        monkeypatch.setenv("HTTPS_PROXY", f"http://ann:pass%40word@{address}")
        error = await failing("https://models.example/v1")

    assert error.reason == "proxy"
    assert heads[0].startswith(b"CONNECT models.example:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic YW5uOnBhc3NAd29yZA==" in heads[0]
    assert KEY.encode() not in heads[0]


async def test_a_proxy_that_refuses_or_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")

    async with listening(serve) as address:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{address}")
        refused = await failing("https://models.example/v1")
    absent = await failing("https://models.example/v1")

    assert (refused.reason, absent.reason) == ("proxy", "proxy")
    assert "refused (407)" in str(refused)
    assert "cannot be reached" in str(absent)


async def test_a_proxy_that_speaks_no_http_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")

    error = await failing("https://models.example/v1")

    assert error.reason == "proxy"
    assert not error.may_retry


@pytest.mark.parametrize(
    ("url", "is_used"),
    [
        ("https://api.example/v1", True),
        ("http://api.example/v1", True),
        ("https://inside.corp.example/v1", False),
        ("http://127.0.0.1:11434/v1", False),
        ("http://localhost:11434/v1", False),
        ("http://[::1]:11434/v1", False),
    ],
)
def test_no_proxy_and_this_machine_are_asked_directly(url: str, is_used: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ALL_PROXY", "proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", ".corp.example")

    through = proxies.proxy_for(url, "acme")

    assert through.options == ({"proxy": "http://proxy.example:3128"} if is_used else {})
