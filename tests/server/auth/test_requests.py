"""What a request must look like: who may have sent it, what it carries, how much of it; what every answer carries."""

from __future__ import annotations

import re
from typing import Any

import pytest

from checkrein.errors import WrongInput
from checkrein.server.auth.guard import Guard
from checkrein.server.auth.key_store import FileKeyStore
from checkrein.server.auth.policy import Policy
from checkrein.server.auth.principals import Principal, Role
from checkrein.server.auth.request import ALLOWED, WINDOW_SECONDS, Attempts
from checkrein.server.auth.token_store import Keys
from tests.server.auth.asking import OWN, Reply, ask
from tests.server.auth.conftest import SERVER_TOKEN, Clock, stand_in

pytestmark = pytest.mark.anyio

PAUSE = "/api/runs/r-1/pause"


@pytest.fixture
async def cookie(app: Any) -> str:
    reply = await ask(app, "POST", "/session", json_body={"token": SERVER_TOKEN}, origin=OWN)
    assert reply.status == 200, reply.body
    return reply.cookie


# -- who may have sent it


async def test_our_own_page_steers_with_its_session(app: Any, cookie: str) -> None:
    site = {"sec-fetch-site": "same-origin"}

    for reply in (
        await ask(app, "POST", PAUSE, site, cookie=cookie, origin=OWN, json_body={}),
        await ask(app, "POST", PAUSE, cookie=cookie, origin=OWN),
        await ask(app, "POST", PAUSE, site, cookie=cookie),
        await ask(app, "GET", "/api/runs/r-1/live", site, cookie=cookie),
        await ask(app, "GET", "/api/runs/r-1/live", {"sec-fetch-site": "none"}, cookie=cookie),
        await ask(app, "GET", "/api/runs/r-1/live", cookie=cookie),
    ):
        assert reply.status == 200, reply.body


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", "", "same-origin, cross-site", "SAME-SITE"])
async def test_a_session_changes_nothing_for_a_page_of_another_site(app: Any, cookie: str, site: str) -> None:
    """Every port of this machine is the same site: the browser sends the cookie there too."""
    reply = await ask(app, "POST", PAUSE, {"sec-fetch-site": site}, cookie=cookie)

    assert (reply.status, reply.code, app.reached) == (403, "cross_site", [])


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_session_opens_no_stream_for_a_page_of_another_site(app: Any, cookie: str, site: str) -> None:
    reply = await ask(app, "GET", "/api/runs/r-1/live", {"sec-fetch-site": site}, cookie=cookie)

    assert (reply.status, reply.code, app.reached) == (403, "cross_site", [])


async def test_a_session_changes_nothing_where_nobody_says_which_page_asks(app: Any, cookie: str) -> None:
    for body in (b"", b"{}"):
        reply = await ask(app, "POST", PAUSE, {"content-type": "application/json"}, cookie=cookie, body=body)
        assert (reply.status, reply.code) == (403, "cross_site")
    assert (await ask(app, "DELETE", "/session", cookie=cookie)).code == "cross_site"
    assert app.reached == []


async def test_a_program_with_a_token_needs_no_origin(app: Any) -> None:
    assert (await ask(app, "POST", PAUSE, token=SERVER_TOKEN)).status == 200
    assert (await ask(app, "POST", PAUSE, token=SERVER_TOKEN, json_body={"reason": "x"})).status == 200


async def test_a_wrong_token_is_not_made_good_by_a_cookie(app: Any, cookie: str) -> None:
    assert (await ask(app, "POST", PAUSE, token="ckr_wrong", cookie=cookie, origin=OWN)).status == 401


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", "Bearer ", "ckr_x", "Bearer\tx", f"Token {SERVER_TOKEN}"])
async def test_only_a_bearer_token_is_one(app: Any, header: str) -> None:
    reply = await ask(app, "POST", PAUSE, {"authorization": header})

    assert (reply.status, reply.code, reply.one("www-authenticate")) == (401, "unauthorised", "Bearer")


async def test_two_tokens_are_none(app: Any) -> None:
    headers = [("authorization", f"Bearer {SERVER_TOKEN}"), ("authorization", "Bearer ckr_x")]

    assert (await ask(app, "GET", "/api/runs", headers)).status == 401


async def test_a_session_is_not_taken_as_a_token_nor_a_token_as_a_cookie(app: Any, cookie: str) -> None:
    name, _, session = cookie.partition("=")

    assert (await ask(app, "GET", "/api/runs", token=session)).status == 401
    assert (await ask(app, "GET", "/api/runs", cookie=f"{name}={SERVER_TOKEN}")).status == 401
    assert (await ask(app, "POST", "/session", json_body={"token": session})).status == 401


# -- a token in the address


@pytest.mark.parametrize(
    "path",
    [
        "/api/runs?token={}",
        "/api/runs?access_token={}",
        "/api/runs?TOKEN=x",
        "/api/runs?a=b&bearer=x",
        "/api/runs?thread=ckr_abc",
        "/api/runs?thread=%63kr_abc",
        "/?x=cks_abc",
        "/api/runs/ckr_abc",
        "/enter?token=x&code=y",
        "/api/runs?authorization=Bearer+x",
    ],
)
async def test_a_token_in_the_address_is_refused_and_named_as_lost(app: Any, path: str) -> None:
    reply = await ask(app, "GET", path.format(SERVER_TOKEN), token=SERVER_TOKEN)

    assert (reply.status, reply.code, app.reached) == (400, "token_in_address", [])
    assert "revoke" in reply.json["message"]


# -- JSON only


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "text/plain; charset=utf-8; application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "application/json+evil",
        "text/json",
        "application/json, text/plain",
        "text/plain, application/json",
        "",
        "json",
        None,
    ],
)
@pytest.mark.parametrize("how", ["session", "token", "nothing"])
async def test_a_body_that_is_not_json_is_refused_whoever_sends_it(
    app: Any, cookie: str, kind: str | None, how: str
) -> None:
    """The forms that a page of another site can send without asking first."""
    headers = {} if kind is None else {"content-type": kind}

    reply = await ask(
        app,
        "POST",
        PAUSE,
        headers,
        body=b'{"reason": "x"}',
        origin=OWN,
        cookie=cookie if how == "session" else None,
        token=SERVER_TOKEN if how == "token" else None,
    )

    assert (reply.status, reply.code, app.reached) == (415, "not_json", [])


async def test_two_kinds_of_body_are_none(app: Any) -> None:
    headers = [("content-type", "application/json"), ("content-type", "text/plain")]

    assert (await ask(app, "POST", PAUSE, headers, body=b"{}", token=SERVER_TOKEN)).code == "not_json"


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
async def test_json_is_taken_and_so_is_nothing_at_all(app: Any, kind: str) -> None:
    assert (await ask(app, "POST", PAUSE, {"content-type": kind}, body=b"{}", token=SERVER_TOKEN)).status == 200
    assert (await ask(app, "POST", PAUSE, token=SERVER_TOKEN)).status == 200


# -- not too much of it


async def test_a_body_above_the_limit_is_refused_before_it_is_read(app: Any) -> None:
    kind = {"content-type": "application/json"}

    just = await ask(app, "POST", PAUSE, kind, body=b"1" * 10_000, token=SERVER_TOKEN)
    over = await ask(app, "POST", PAUSE, kind, body=b"1" * 10_001, token=SERVER_TOKEN)

    assert (just.status, just.json["bytes"]) == (200, "10000")
    assert (over.status, over.code, over.one("connection")) == (413, "too_large", "close")
    assert len(app.reached) == 1


async def test_a_body_that_says_it_is_too_long_does_not_reach_the_application(guard: Guard) -> None:
    reached = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["path"])

    headers = {"content-type": "application/json", "content-length": "10001"}
    reply = await ask(guard.wrap(inner), "POST", PAUSE, headers, token=SERVER_TOKEN)

    assert (reply.status, reached) == (413, [])


@pytest.mark.parametrize("pieces", [[b"1" * 10_001], [b"1" * 6_000] * 2, [b"1"] * 10_001, [b"1" * 9_999, b"", b"22"]])
async def test_a_body_that_does_not_say_how_long_it_is_is_counted(app: Any, pieces: list[bytes]) -> None:
    reply = await ask(app, "POST", PAUSE, {"content-type": "application/json"}, body=pieces, token=SERVER_TOKEN)

    assert (reply.status, reply.code, app.reached) == (413, "too_large", [])


async def test_of_a_strangers_body_only_so_much_is_read_as_it_takes_to_log_in(app: Any, guard: Guard) -> None:
    guard.policy.body_bytes = 1_000_000
    kind, large = {"content-type": "application/json"}, b'{"token": "%b"}' % (b"x" * 100_000)

    stranger = await ask(app, "POST", "/session", kind, body=large, origin=OWN)
    wrong = await ask(app, "POST", PAUSE, kind, body=large, token="ckr_wrong")
    known = await ask(app, "POST", PAUSE, kind, body=large, token=SERVER_TOKEN)

    assert (stranger.status, stranger.code) == (413, "too_large")
    assert wrong.status == 401, "whoever comes too late with a long instruction is told so"
    assert known.status == 200


async def test_a_body_that_lies_about_its_length_is_counted(app: Any) -> None:
    headers = {"content-type": "application/json", "content-length": "2"}

    reply = await ask(app, "POST", PAUSE, headers, body=[b"1" * 20_000], token=SERVER_TOKEN)

    assert reply.status == 413


@pytest.mark.parametrize(
    ("announced", "pieces"),
    [("12", [b""]), ("12", [b"{}"]), ("12", [b'{"wait"', b":"]), (None, [b""]), (None, [b"", b""])],
)
async def test_a_body_that_was_announced_and_did_not_arrive_is_not_taken_for_an_empty_one(
    app: Any, announced: str | None, pieces: list[bytes]
) -> None:
    """As behind a server that drops the body of a request that offers an upgrade."""
    headers = {"content-type": "application/json"} | ({} if announced is None else {"content-length": announced})

    reply = await ask(app, "POST", PAUSE, headers, body=pieces, token=SERVER_TOKEN)

    assert (reply.status, reply.code, app.reached) == (400, "body_missing", [])


async def test_what_an_application_makes_of_a_body_cut_off_does_not_hide_why(guard: Guard) -> None:
    async def forgiving(scope: Any, receive: Any, send: Any) -> None:
        try:
            while (await receive()).get("more_body"):
                pass
            status = 200
        except Exception:
            status = 400
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"something else"})

    reply = await ask(
        guard.wrap(forgiving), "POST", PAUSE, {"content-type": "application/json"}, body=[b"1" * 20_000], token="x"
    )

    assert (reply.status, reply.code) == (413, "too_large")


async def test_a_form_cannot_log_in(app: Any) -> None:
    body = b"token=" + SERVER_TOKEN.encode()

    reply = await ask(
        app, "POST", "/session", {"content-type": "application/x-www-form-urlencoded"}, body=body, origin=OWN
    )

    assert (reply.status, reply.one("set-cookie")) == (415, None)


# -- what every answer carries


async def answers(app: Any) -> dict[str, Reply]:
    return {
        "page": await ask(app, "GET", "/"),
        "file": await ask(app, "GET", "/ui/bar.js"),
        "api": await ask(app, "GET", "/api/runs", token=SERVER_TOKEN),
        "nobody": await ask(app, "GET", "/api/runs"),
        "nothing": await ask(app, "GET", "/api/nothing"),
        "refused": await ask(app, "GET", "/", host="evil.example"),
        "entered": await ask(app, "GET", "/enter?code=ckc_x"),
    }


async def test_every_answer_has_the_headers_that_keep_other_pages_out(app: Any) -> None:
    for reply in (await answers(app)).values():
        policy = str(reply.one("content-security-policy")).split("; ")
        assert policy[0] == "default-src 'none'"
        assert "script-src 'self'" in policy
        styles = [one.removeprefix("style-src ") for one in policy if one.startswith("style-src ")]
        assert re.fullmatch(r"'self' 'sha256-[\w+/=]+'", styles[0]), (
            "our own files, and the style of a story by its hash"
        )
        assert "frame-ancestors 'none'" in policy
        assert "base-uri 'none'" in policy
        assert "unsafe" not in str(policy)
        assert reply.one("x-content-type-options") == "nosniff"
        assert reply.one("x-frame-options") == "DENY"
        assert reply.one("referrer-policy") == "no-referrer"
        assert reply.one("cross-origin-opener-policy") == "same-origin"
        assert reply.one("cross-origin-resource-policy") == "same-origin"
        assert "Origin" in str(reply.one("vary"))
        assert reply.one("access-control-allow-origin") is None
        assert reply.one("access-control-allow-credentials") is None


async def test_what_the_api_says_is_kept_by_no_cache(app: Any) -> None:
    for name, reply in (await answers(app)).items():
        if name not in ("page", "file", "refused"):
            assert reply.one("cache-control") == "no-store", name


async def test_pages_that_may_show_ours_in_a_frame_are_named(keys: Keys) -> None:
    app = stand_in(Guard(FileKeyStore(keys), policy=Policy(frame_ancestors=["https://a.example", "'self'"])))

    reply = await ask(app, "GET", "/")

    assert "frame-ancestors https://a.example 'self'" in str(reply.one("content-security-policy"))
    assert reply.one("x-frame-options") is None


@pytest.mark.parametrize("wrong", ["https://a.example; script-src *", "a b", "a\r\nx: y", "a,b", "ü"])
def test_a_frame_ancestor_cannot_bring_another_rule_along(wrong: str) -> None:
    with pytest.raises(WrongInput):
        Policy(frame_ancestors=[wrong])


# -- wrong tokens, very many of them


async def test_very_many_wrong_tokens_are_slowed_down_but_a_valid_one_never(app: Any) -> None:
    wrong = [await ask(app, "GET", "/api/runs", token=f"ckr_{n}") for n in range(ALLOWED + 5)]

    assert [reply.status for reply in wrong] == [401] * ALLOWED + [429] * 5
    assert 0 < int(str(wrong[-1].one("retry-after"))) <= WINDOW_SECONDS + 1
    assert (await ask(app, "GET", "/api/runs", token=SERVER_TOKEN)).status == 200
    assert (await ask(app, "POST", "/session", json_body={"token": SERVER_TOKEN})).status == 200
    assert (await ask(app, "POST", "/session", json_body={"token": "ckr_wrong"})).status == 429
    assert (await ask(app, "GET", "/api/runs", token="ckr_x", peer="192.0.2.1")).status == 401, "only that address"


async def test_no_limit_touches_a_stop(app: Any) -> None:
    """D16: somebody who floods the server with wrong tokens keeps nobody from the button."""
    for n in range(ALLOWED * 3):
        await ask(app, "GET", "/api/runs", token=f"ckr_{n}")

    for path in ("/api/runs/r-1/cancel", "/api/halt"):
        assert (await ask(app, "POST", path, token="ckr_wrong")).status == 401
        assert (await ask(app, "POST", path, token=SERVER_TOKEN)).status == 200
    assert app.reached == [("cancel", "r-1"), ("halt", "")]


def test_wrong_tokens_are_forgotten_and_only_so_many_addresses_are_kept() -> None:
    clock = Clock()
    attempts = Attempts(now=clock)
    assert [bool(attempts.was_wrong("a")) for _ in range(ALLOWED + 1)] == [False] * ALLOWED + [True]

    for n in range(5000):
        attempts.was_wrong(f"b{n}")

    assert len(attempts._wrong) <= 1024
    for _ in range(ALLOWED + 1):
        attempts.was_wrong("c")
    clock.pass_seconds(WINDOW_SECONDS)
    assert attempts.was_wrong("c") == 0


# -- what a proxy says


async def test_forwarded_headers_count_only_from_a_proxy_that_was_named(keys: Keys, guard: Guard, clock: Clock) -> None:
    behind = stand_in(Guard(FileKeyStore(keys), policy=Policy(hosts=["agents.example.com"], proxies=["10.0.0.0/8"])))
    said = {"x-forwarded-proto": "https", "x-forwarded-for": "203.0.113.9"}
    options: dict[str, Any] = {"json_body": {"token": SERVER_TOKEN}, "host": "agents.example.com"}

    trusted = await ask(behind, "POST", "/session", said, peer="10.1.2.3", **options)
    not_named = await ask(behind, "POST", "/session", said, peer="192.0.2.1", **options)
    none_named = await ask(stand_in(guard), "POST", "/session", said, peer="127.0.0.1", **options)

    assert "; Secure" in str(trusted.one("set-cookie"))
    assert "; Secure" not in str(not_named.one("set-cookie"))
    assert "; Secure" not in str(none_named.one("set-cookie"))


async def test_an_address_that_a_client_makes_up_does_not_hide_it_from_the_count(keys: Keys) -> None:
    app = stand_in(Guard(FileKeyStore(keys), policy=Policy(proxies=["10.0.0.1"])))
    statuses = [
        (
            await ask(
                app, "GET", "/api/runs", {"x-forwarded-for": f"1.2.3.{n}, 203.0.113.9"}, token="ckr_x", peer="10.0.0.1"
            )
        ).status
        for n in range(ALLOWED + 1)
    ]

    assert statuses[-1] == 429
    other = await ask(app, "GET", "/api/runs", {"x-forwarded-for": "203.0.113.10"}, token="ckr_x", peer="10.0.0.1")
    assert other.status == 401


# -- an application's own login


async def test_an_application_says_who_asks_and_our_tokens_work_beside_it(keys: Keys, clock: Clock) -> None:
    def authorize(request: Any) -> Principal | None:
        name = request.cookies.get("their-session")
        return Principal(name=name, role=Role.CONTROLLER, owner=name) if name else None

    app = stand_in(Guard(FileKeyStore(keys), authorize=authorize))

    assert (await ask(app, "GET", "/api/runs", cookie="their-session=ann")).json == {"by": "ann"}
    assert (await ask(app, "GET", "/api/runs")).status == 401
    assert (await ask(app, "GET", "/api/runs", token=SERVER_TOKEN)).json == {"by": "operator"}
    assert (await ask(app, "POST", PAUSE, cookie="their-session=ann", origin=OWN)).status == 200
    for wrong in ({"origin": "http://evil.example"}, {}, {"sec-fetch-site": "same-site"}):
        assert (await ask(app, "POST", PAUSE, wrong, cookie="their-session=ann")).code == "cross_site"


async def test_an_application_may_take_its_time_to_say_who_asks(keys: Keys) -> None:
    async def authorize(request: Any) -> Principal | None:
        return Principal(name="bob", role=Role.VIEWER, owner="bob")

    app = stand_in(Guard(FileKeyStore(keys), authorize=authorize))

    assert (await ask(app, "GET", "/api/runs", token="a-token-of-theirs")).json == {"by": "bob"}
    assert (await ask(app, "POST", PAUSE, token="a-token-of-theirs")).status == 403


async def test_a_request_that_came_in_past_the_gate_is_an_error(guard: Guard) -> None:
    from fastapi import FastAPI

    from checkrein.server import errors

    bare = FastAPI()
    errors.install(bare)
    bare.include_router(guard.routes)

    assert (await ask(bare, "GET", "/api/whoami", token=SERVER_TOKEN)).status == 422
