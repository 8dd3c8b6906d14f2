"""Hostile `Host` and `Origin` headers: DNS rebinding, look-alikes, and every odd way to write an address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from checkrein.errors import WrongInput
from checkrein.server.auth.guard import Guard
from checkrein.server.auth.policy import Hosts, Policy, configured_origin, host_of, is_loopback
from tests.server.auth.asking import HOST, OWN, ask
from tests.server.auth.conftest import SERVER_TOKEN
from tests.server.auth.listening import listening_on
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

HOSTILE_HOSTS = [
    # names that may be made to point here
    "evil.example",
    "evil.example:8420",
    "127.0.0.1.nip.io:8420",
    "localtest.me:8420",
    "localhost.evil.example",
    "evil.example.localhost",
    "xlocalhost",
    "localhostx:8420",
    "agents.example.com.evil.example",
    "evilagents.example.com",
    "sub.agents.example.com",
    "agents.example.co",
    "agents-example.com",
    # other spellings of this machine
    "localhost.",
    "localhost.:8420",
    "agents.example.com.",
    "127.0.0.1.",
    "127.1:8420",
    "127.0.0.2:8420",
    "2130706433:8420",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "127.000.000.001",
    "0.0.0.0:8420",
    "[::]:8420",
    "[::ffff:127.0.0.1]:8420",
    "[0:0:0:0:0:0:0:1]:8420",
    "::1",
    "::1:8420",
    "[::1%lo]:8420",
    "[::1",
    "::1]",
    # users, paths, schemes
    "localhost@evil.example",
    "evil.example@localhost",
    "user:pass@127.0.0.1:8420",
    "http://localhost:8420",
    "localhost/evil.example",
    "localhost#evil.example",
    "localhost?evil.example",
    "localhost\\evil.example",
    # ports that are none
    "localhost:",
    "localhost:0",
    "localhost:65536",
    "localhost:99999999",
    "localhost:+80",
    "localhost:-1",
    "localhost:80:8420",
    "localhost:8420@evil.example:80",
    "localhost:80 evil",
    "localhost:８４２０",
    # characters
    "",
    " ",
    "*",
    " localhost",
    "localhost ",
    "local host",
    "localhost\t",
    "localhost\x00",
    "localhost,evil.example",
    "localhost;evil.example",
    "%6c%6f%63%61%6c%68%6f%73%74",
    "localhost%2eevil.example",
    "ｌocalhost",
    "lοcalhost",
    "loc..alhost",
    "..",
    "-localhost",
    "xn--lcalhost-x1a",
    "null",
]

HOSTILE_ORIGINS = [
    "null",
    "http://evil.example",
    "https://evil.example:8420",
    "http://localhost:8420",  # the page was asked for as 127.0.0.1: another origin
    "http://127.0.0.1",
    "http://127.0.0.1:80",
    "http://127.0.0.1:3000",
    "http://127.0.0.1:84200",
    "http://127.0.0.1:8420.evil.example",
    "http://127.0.0.1.evil.example:8420",
    "http://127.0.0.1.:8420",
    "http://127.1:8420",
    "http://2130706433:8420",
    "http://0x7f000001:8420",
    "http://[::1]:8420",
    "http://[::ffff:127.0.0.1]:8420",
    "http://0.0.0.0:8420",
    "http://user@127.0.0.1:8420",
    "http://127.0.0.1:8420@evil.example",
    "http://evil.example#127.0.0.1:8420",
    "http://evil.example?127.0.0.1:8420",
    "http://evil.example\\127.0.0.1:8420",
    "http://127.0.0.1:8420/",
    "http://127.0.0.1:8420/page",
    "http://127.0.0.1:8420 http://evil.example",
    "http://evil.example http://127.0.0.1:8420",
    "http://127.0.0.1:8420, http://evil.example",
    "http://127.0.0.1%3a8420",
    "http%3A%2F%2F127.0.0.1:8420",
    "//127.0.0.1:8420",
    "127.0.0.1:8420",
    "file://",
    "file://127.0.0.1:8420",
    "ws://127.0.0.1:8420",
    "ftp://127.0.0.1:8420",
    "chrome-extension://abcdefgh",
    "moz-extension://127.0.0.1:8420",
    "data:text/html",
    "blob:http://127.0.0.1:8420",
    "javascript:alert(1)",
    "about:blank",
    "*",
    " ",
    "http://",
    "http://127.0.0.1:",
    "http://127.0.0.1:08420x",
    "http://１２７.0.0.1:8420",
]


@pytest.mark.parametrize("host", HOSTILE_HOSTS)
async def test_a_hostile_host_is_refused_even_with_a_good_token(app: Any, host: str) -> None:
    """DNS rebinding: whatever name a browser was led here by, it says it."""
    raw = host.encode("utf-8").decode("latin-1")

    read = await ask(app, "GET", "/api/runs", host=raw, token=SERVER_TOKEN)
    changed = await ask(app, "POST", "/api/runs/r-1/cancel", host=raw, token=SERVER_TOKEN)
    page = await ask(app, "GET", "/", host=raw)

    assert [(reply.status, reply.code) for reply in (read, changed, page)] == [(421, "wrong_host")] * 3
    assert app.reached == []


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8420", "LOCALHOST:1", "127.0.0.1", "[::1]", "[::1]:8420", "agents.example.com:443"]
)
async def test_our_own_names_are_heard_on_every_port(app: Any, host: str) -> None:
    assert (await ask(app, "GET", "/api/runs", host=host, token=SERVER_TOKEN)).status == 200


@pytest.mark.parametrize(
    "hosts", [[], [HOST, HOST], [HOST, "evil.example"], ["evil.example", HOST], [f"{HOST}, evil.example"]]
)
async def test_a_host_is_said_exactly_once(app: Any, hosts: list[str]) -> None:
    headers = [("host", host) for host in hosts]

    reply = await ask(app, "GET", "/api/runs", headers, host=None, token=SERVER_TOKEN)

    assert (reply.status, reply.code) == (421, "wrong_host")


async def test_what_a_forwarded_host_says_does_not_count(app: Any) -> None:
    for name in ("x-forwarded-host", "x-host", "forwarded", "x-original-host", "x-forwarded-server"):
        reply = await ask(app, "GET", "/", {name: HOST}, host="evil.example")
        assert reply.status == 421


@pytest.mark.parametrize("origin", HOSTILE_ORIGINS)
async def test_a_hostile_origin_changes_and_reads_nothing(app: Any, guard: Guard, origin: str) -> None:
    raw = origin.encode("utf-8").decode("latin-1")
    cookie = (await ask(app, "POST", "/session", json_body={"token": SERVER_TOKEN}, origin=OWN)).cookie

    with_cookie = await ask(app, "POST", "/api/runs/r-1/pause", cookie=cookie, origin=raw)
    with_token = await ask(app, "POST", "/api/runs/r-1/pause", token=SERVER_TOKEN, origin=raw)
    reading = await ask(app, "GET", "/api/runs/r-1/live", cookie=cookie, origin=raw)
    login = await ask(app, "POST", "/session", json_body={"token": SERVER_TOKEN}, origin=raw)
    preflight = await ask(app, "OPTIONS", "/api/runs/r-1/pause", {"access-control-request-method": "POST"}, origin=raw)

    for reply in (with_cookie, with_token, reading, login, preflight):
        assert (reply.status, reply.code) == (403, "cross_site")
        assert reply.one("access-control-allow-origin") is None
    assert app.reached == []


async def test_two_origins_are_none(app: Any) -> None:
    headers = [("origin", OWN), ("origin", "http://evil.example")]

    assert (await ask(app, "POST", "/api/runs/r-1/pause", headers, token=SERVER_TOKEN)).code == "cross_site"


@pytest.mark.parametrize(
    ("host", "origin", "scheme", "is_own"),
    [
        ("localhost:8420", "http://localhost:8420", "http", True),
        ("LocalHost:8420", "http://LOCALHOST:8420", "http", True),
        ("[::1]:8420", "http://[::1]:8420", "http", True),
        ("agents.example.com", "https://agents.example.com", "http", True),  # a proxy took the TLS off
        ("agents.example.com", "https://agents.example.com:443", "https", True),
        ("agents.example.com", "http://agents.example.com", "https", False),  # a page that came without TLS
        ("agents.example.com", "https://agents.example.com:444", "https", False),
        ("agents.example.com", "http://agents.example.com:443", "http", False),
    ],
)
async def test_our_own_pages_are_known_by_name_port_and_scheme(
    app: Any, host: str, origin: str, scheme: str, is_own: bool
) -> None:
    reply = await ask(app, "POST", "/api/runs/r-1/pause", host=host, origin=origin, scheme=scheme, token=SERVER_TOKEN)

    assert reply.status == (200 if is_own else 403)


async def test_a_websocket_is_refused_before_the_application_hears_of_it(guard: Guard) -> None:
    reached, sent = [], []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope)

    async def send(message: Any) -> None:
        sent.append(message)

    await guard.wrap(inner)({"type": "websocket", "headers": [], "path": "/"}, None, send)  # type: ignore[arg-type]

    assert (reached, sent) == ([], [{"type": "websocket.close", "code": 1008}])


# -- through a real server, where a client may send what it likes


@pytest.fixture
def listening(app: Any) -> Iterator[int]:
    with listening_on(app) as port:
        yield port


def spoken(port: int, lines: list[str]) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1"))
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


AUTH = f"Authorization: Bearer {SERVER_TOKEN}"


@pytest.mark.parametrize(
    "lines",
    [
        ["GET /api/runs HTTP/1.1", "Host: {host}", "Host: evil.example", AUTH],
        ["GET /api/runs HTTP/1.1", "Host: evil.example", "Host: {host}", AUTH],
        ["GET /api/runs HTTP/1.1", "Host: {host}", "host: {host}", AUTH],
        ["GET /api/runs HTTP/1.1", AUTH],
        ["GET /api/runs HTTP/1.0", AUTH],
        ["GET http://{host}/api/runs HTTP/1.1", "Host: evil.example", AUTH],
        ["GET /api/runs HTTP/1.1", "Host: evil.example", "X-Forwarded-Host: {host}", AUTH],
        ["GET /api/runs HTTP/1.1", "Host: {host}.", AUTH],
        ["GET /api/runs HTTP/1.1", "Host:", AUTH],
        ["GET /api/runs HTTP/1.1", "Host: {host}", " evil.example", AUTH],
        ["GET /api/runs HTTP/1.1", "Host : {host}", AUTH],
    ],
)
async def test_hosts_on_the_wire(app: Any, listening: int, lines: list[str]) -> None:
    host = f"127.0.0.1:{listening}"

    answer = spoken(listening, [line.format(host=host) for line in lines])

    assert answer.split(b" ", 2)[1] in (b"421", b"400"), answer
    assert app.reached == []
    assert b" 200 " in spoken(listening, ["GET /api/runs HTTP/1.1", f"Host: {host}", AUTH]), "the plain way works"


# -- what a person configures


@pytest.mark.parametrize("name", ["http://a.example", "a.example/", "a example", "", "a.example:port", "*.example.com"])
def test_a_name_that_is_none_is_refused_when_it_is_configured(name: str) -> None:
    with pytest.raises(WrongInput):
        Hosts([name])


def test_a_configured_port_is_the_only_one() -> None:
    hosts = Hosts(["a.example:8443", "2001:db8::7", "192.0.2.7"])

    asked = ("a.example:8443", "a.example", "a.example:1", "[2001:db8::7]:80")
    known = {text: hosts.knows(host) for text in asked if (host := host_of(text))}

    assert known == {"a.example:8443": True, "a.example": False, "a.example:1": False, "[2001:db8::7]:80": True}


async def test_an_application_with_a_list_of_its_own_may_take_every_name(clock: Any) -> None:
    from tests.server.auth.conftest import stand_in

    app = stand_in(Guard(policy=Policy(hosts=["*"])))

    assert (await ask(app, "GET", "/", host="whatever.example")).status == 200
    assert (await ask(app, "GET", "/", host="what ever")).status == 421


@pytest.mark.parametrize("text", HOSTILE_ORIGINS)
def test_an_origin_that_is_none_cannot_be_given_to_a_token(text: str) -> None:
    try:
        origin = configured_origin(text)
    except WrongInput:
        return
    assert origin in (text.removesuffix("/"), "http://127.0.0.1"), "the port of http, left out"


@pytest.mark.parametrize(
    ("host", "is_ours_alone"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("192.168.1.5", False),
        ("example.com", False),
        ("localhost.example.com", False),
        ("::ffff:192.0.2.1", False),
        ("10.0.0.1", False),
    ],
)
def test_what_listens_on_loopback(host: str, is_ours_alone: bool) -> None:
    assert is_loopback(host) is is_ours_alone
