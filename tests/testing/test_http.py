"""HTTP/1.1 as far as the provider speaks it: requests in any pieces, and what is no request."""

from __future__ import annotations

import asyncio
import ssl
from itertools import pairwise

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from checkrein.testing.provider import Provider, Reply
from checkrein.testing.provider.http import BadRequest, Incoming, Reader, chunks, head
from tests.testing.raw import ASK, line, request

pytestmark = pytest.mark.anyio

COUNTED = b"POST /v1/x?a=1 HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"POST /v1/y HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
BARE = b"GET /v1/models HTTP/1.1\r\nconnection: close\r\n\r\n"


def read(*pieces: bytes) -> list[Incoming]:
    reader, found = Reader(), []
    for piece in pieces:
        reader.feed(piece)
        while (request := reader.next()) is not None:
            found.append(request)
    return found


def test_a_request_has_its_path_its_headers_and_its_body():
    (found,) = read(COUNTED)

    assert found == Incoming("POST", "/v1/x", "a=1", {"host": "here", "content-length": "5"}, b"hello")
    assert found.keep_alive


def test_a_chunked_body_is_put_together():
    (found,) = read(CHUNKED)

    assert found.body == b"hello"


@given(st.lists(st.integers(0, 250), max_size=20).map(sorted))
def test_requests_are_the_same_in_whatever_pieces_they_come(cuts: list[int]):
    stream = COUNTED + CHUNKED + BARE
    edges = [0, *cuts, len(stream)]
    pieces = [stream[begin:end] for begin, end in pairwise(edges)]

    found = read(*pieces)

    assert [(one.method, one.body) for one in found] == [("POST", b"hello"), ("POST", b"hello"), ("GET", b"")]
    assert [one.keep_alive for one in found] == [True, True, False]


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"GET / SPDY/3\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: many\r\n\r\n",
        b"x" * 70_000,
    ],
)
def test_what_is_no_request_is_refused(data: bytes):
    with pytest.raises(BadRequest):
        read(data)


def test_a_response_says_its_status_even_one_that_http_does_not_know():
    assert head(200, {"a": "b"}).startswith(b"HTTP/1.1 200 OK\r\ndate: ")
    assert head(529, {}).startswith(b"HTTP/1.1 529 Overloaded\r\n")
    assert head(599, {}).startswith(b"HTTP/1.1 599 Unknown\r\n")


@pytest.mark.parametrize(("size", "made"), [(None, b"5\r\nhello\r\n"), (3, b"3\r\nhel\r\n2\r\nlo\r\n")])
def test_chunks_are_as_large_as_they_are_asked_to_be(size: int | None, made: bytes):
    assert chunks(b"hello", size) == made


async def test_what_is_no_request_is_told_so_and_the_connection_is_closed():
    async with Provider("Hello.") as provider, line(provider.port) as client:
        client.send(b"hello\r\n\r\n")

        assert (await client.rest()).startswith(b"HTTP/1.1 400 ")

    assert provider.log[0].how == "refused"


async def test_a_client_that_waits_for_permission_gets_it():
    async with Provider("Hello.") as provider, line(provider.port) as client:
        head, body = request().split(b"\r\n\r\n")
        client.send(head + b"\r\nexpect: 100-continue\r\n\r\n")
        await client.see(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.send(body)

        await client.see(b"[DONE]")

    assert provider.log[0].how == "completed"


async def test_requests_sent_ahead_are_answered_one_after_the_other():
    async with Provider(["one", "two"]) as provider, line(provider.port) as client:
        client.send(request() + request())
        await provider.until(lambda log: len(log) == 2 and log[1].how == "completed")
        while client.seen.count(b"[DONE]") < 2:
            client.seen += await client.reader.read(65536)

    assert client.seen.index(b"one") < client.seen.index(b"two")


async def test_a_client_that_asks_for_it_is_let_go_after_the_answer():
    async with Provider("Hello.") as provider, line(provider.port) as client:
        client.send(request().replace(b"host: here", b"connection: close"))

        assert (await client.rest()).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/nowhere", b"404"),
        ("GET", "/v1/chat/completions", b"404"),
        ("POST", "/api/v1/chat/completions", b"200"),
    ],
)
async def test_only_the_addresses_of_the_real_ones_are_there(method: str, path: str, status: bytes):
    async with Provider("Hello.") as provider, line(provider.port) as client:
        client.send(request(path=path, method=method))

        assert (await client.see(b"\r\n\r\n")).split(b" ")[1] == status


async def test_a_body_that_is_no_json_is_refused_and_kept_as_text():
    async with Provider("Hello.") as provider, line(provider.port) as client:
        client.send(request(b"{not json"))
        await client.see(b"could not parse")

    assert provider.log[0].body == "{not json"
    assert (provider.log[0].how, provider.log[0].status) == ("refused", 400)


@pytest.mark.parametrize("messages", [5, [None], [{"role": "assistant", "tool_calls": [5]}], [{"role": ["user"]}]])
async def test_a_body_that_makes_no_sense_is_refused(messages: object):
    async with Provider("Hello.") as provider, line(provider.port) as client:
        client.send(request({**ASK, "messages": messages}))

        assert (await client.see(b"invalid_request_error")).startswith(b"HTTP/1.1 400 ")


async def test_a_client_that_leaves_in_the_middle_of_its_request_leaves_no_trace():
    async with Provider("Hello.") as provider:
        async with line(provider.port) as client:
            client.send(request()[:-5])
        async with line(provider.port) as client:
            client.send(request({**ASK, "user": "second"}))
            await client.see(b"[DONE]")

    assert [one.body["user"] for one in provider.log] == ["second"]


async def test_an_answer_to_a_request_with_tls_comes_over_tls():
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async with Provider(Reply("one two", tokens_per_second=0.01), ssl=context) as provider:
        assert provider.openai_url.startswith("https://")
        reader, writer = await asyncio.open_connection("127.0.0.1", provider.port, ssl=trusting)
        writer.write(request())
        await reader.readuntil(b'"content":"one"')
        writer.transport.abort()
        await provider.until(lambda log: log[0].how == "disconnected")
