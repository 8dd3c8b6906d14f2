"""Tokens for one run, for the bar in somebody else's page: who gives them out, and what that page may do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from checkrein.core.events import RunCreated
from checkrein.journal import Journal, MemoryJournal
from checkrein.server.auth.guard import Guard
from checkrein.server.auth.principals import Role
from checkrein.server.auth.token_store import OPERATOR, TOLD_SECONDS, Keys
from tests.server.auth.asking import OWN, Reply, ask
from tests.server.auth.conftest import SERVER_TOKEN, Clock, stand_in

pytestmark = pytest.mark.anyio

PAGE = "https://app.example.com"
RUN = "/api/runs/r-ann"


@pytest.fixture
async def journal() -> AsyncIterator[Journal]:
    async with MemoryJournal() as opened:
        for owner in ("ann", "bob"):
            await opened.create(
                RunCreated(
                    id=f"e-{owner}", at=1.0, run=f"r-{owner}", agent="churn", goal="?", thread=owner, owner=owner
                )
            )
        yield opened


@pytest.fixture
def app(guard: Guard, journal: Journal) -> Any:
    guard.journal = journal
    return stand_in(guard)


@pytest.fixture
def ann(keys: Keys) -> str:
    return keys.create(role=Role.CONTROLLER, owner="ann", name="ann's backend")[1]


async def given(app: Any, token: str, **body: Any) -> Reply:
    return await ask(app, "POST", "/api/tokens", token=token, json_body={"run": "r-ann", "origins": [PAGE], **body})


# -- their end


async def test_a_token_ends_with_the_one_it_was_given_out_with(app: Any, keys: Keys) -> None:
    parent, secret = keys.create(role=Role.CONTROLLER, owner="ann")
    beside = keys.create(role=Role.CONTROLLER, owner="ann")[1]
    child = (await given(app, secret, origins=[])).json["token"]
    sibling = (await given(app, beside, origins=[])).json["token"]
    assert (await ask(app, "GET", RUN, token=child)).status == 200

    keys.revoke(parent.id)

    assert (await ask(app, "GET", RUN, token=child)).status == 401
    assert (await ask(app, "POST", f"{RUN}/redirect", token=child)).status == 401
    assert (await ask(app, "GET", RUN, token=sibling)).status == 200


async def test_a_token_that_was_given_out_in_a_session_ends_with_the_token_of_that_session(
    app: Any, keys: Keys
) -> None:
    parent, secret = keys.create(role=Role.CONTROLLER, owner="ann")
    cookie = (await ask(app, "POST", "/session", json_body={"token": secret}, origin=OWN)).cookie
    made = await ask(app, "POST", "/api/tokens", json_body={"run": "r-ann"}, cookie=cookie, origin=OWN)
    child = made.json["token"]
    await ask(app, "DELETE", "/session", cookie=cookie, origin=OWN)
    assert (await ask(app, "GET", RUN, token=child)).status == 200, "a page that was closed takes nothing with it"

    keys.revoke(parent.id)

    assert (await ask(app, "GET", RUN, token=child)).status == 401


async def test_a_token_that_the_server_gave_out_ends_when_its_own_token_is_another_one(app: Any, keys: Keys) -> None:
    child = (await given(app, SERVER_TOKEN, origins=[])).json["token"]
    assert (await ask(app, "GET", RUN, token=child)).status == 200

    keys.trust("another-token-of-the-server-" + "y" * 30, OPERATOR)

    assert (await ask(app, "GET", RUN, token=child)).status == 401


async def test_a_token_for_one_run_opens_no_session(app: Any, ann: str, keys: Keys) -> None:
    child = (await given(app, ann, origins=[])).json["token"]

    refused = await ask(app, "POST", "/session", json_body={"token": child}, origin=OWN)

    assert (refused.status, refused.code, refused.one("set-cookie")) == (403, "forbidden", None)
    assert keys.begin_session(child) is None
    assert keys.redeem(keys.new_code(child)) is None


# -- giving them out


async def test_a_controller_gives_out_a_token_for_a_run_of_theirs(app: Any, ann: str, clock: Clock) -> None:
    made = await given(app, ann, minutes=5)

    assert made.status == 201, made.body
    assert made.json["token"].startswith("ckr_")
    assert (made.json["run"], made.json["origins"], made.json["role"]) == ("r-ann", [PAGE], "controller")
    assert made.json["expires_at"] == clock() + 300
    assert (await ask(app, "POST", f"{RUN}/cancel", token=made.json["token"], origin=PAGE)).status == 200
    clock.pass_seconds(300)
    assert (await ask(app, "POST", f"{RUN}/cancel", token=made.json["token"], origin=PAGE)).status == 401


async def test_an_operator_gives_one_out_for_anybodys_run_and_it_belongs_to_that_owner(app: Any) -> None:
    made = await given(app, SERVER_TOKEN)

    assert (made.status, made.json["owner"], made.json["role"]) == (201, "ann", "controller")


async def test_a_run_of_somebody_else_is_answered_like_one_that_there_is_not(app: Any, ann: str) -> None:
    others, unknown = await given(app, ann, run="r-bob"), await given(app, ann, run="r-nobody")

    assert others.status == unknown.status == 404
    assert others.body.replace(b"r-bob", b"") == unknown.body.replace(b"r-nobody", b"")
    assert others.headers == [
        (name, str(len(others.body)) if name == "content-length" else value) for name, value in unknown.headers
    ]


async def test_a_viewer_or_a_token_for_one_run_gives_out_none(app: Any, keys: Keys, ann: str) -> None:
    _, viewer = keys.create(role=Role.VIEWER, owner="ann")
    bar = (await given(app, ann, origins=[])).json["token"]

    for token in (viewer, bar):
        assert (await given(app, token)).status == 403
        assert (await ask(app, "GET", "/api/tokens", token=token)).status == 403
        assert (await ask(app, "DELETE", "/api/tokens/t-1", token=token)).status == 403
    assert (await ask(app, "POST", "/api/tokens", json_body={"run": "r-ann"})).status == 401


@pytest.mark.parametrize(
    "wrong",
    [
        {"origins": ["*"]},
        {"origins": ["null"]},
        {"origins": ["app.example.com"]},
        {"origins": ["https://*.example.com"]},
        {"origins": ["https://app.example.com/path"]},
        {"origins": ["https://u:p@app.example.com"]},
        {"origins": ["https://a.example"] * 11},
        {"origins": "https://a.example"},
        {"minutes": 0},
        {"minutes": -1},
        {"minutes": 60 * 24 + 1},
        {"minutes": "soon"},
        {"role": "operator"},
        {"role": "admin"},
        {"run": None},
    ],
)
async def test_a_token_that_cannot_be_meant_is_not_given_out(app: Any, keys: Keys, ann: str, wrong: Any) -> None:
    before = len(keys.tokens())

    assert (await given(app, ann, **wrong)).status == 422
    assert len(keys.tokens()) == before


async def test_it_never_outlives_the_token_it_was_asked_for_with(app: Any, keys: Keys, clock: Clock) -> None:
    _, short = keys.create(role=Role.CONTROLLER, owner="ann", expires_at=clock() + 60)

    assert (await given(app, short, minutes=30)).json["expires_at"] == clock() + 60


async def test_who_gave_tokens_out_lists_and_revokes_them_and_no_others(app: Any, keys: Keys, ann: str) -> None:
    made = (await given(app, ann)).json
    bobs, _ = keys.create(role=Role.CONTROLLER, owner="bob", run="r-bob")

    listed = await ask(app, "GET", "/api/tokens", token=ann)
    everything = await ask(app, "GET", "/api/tokens", token=SERVER_TOKEN)

    assert [token["id"] for token in listed.json["tokens"]] == [made["id"]]
    assert len(everything.json["tokens"]) == 3
    assert b"ckr_" not in listed.body + everything.body
    assert b"hash" not in everything.body
    others = await ask(app, "DELETE", f"/api/tokens/{bobs.id}", token=ann)
    unknown = await ask(app, "DELETE", "/api/tokens/t-000000000000", token=ann)
    assert others.status == unknown.status == 404
    assert others.json["code"] == unknown.json["code"] == "token_not_found"
    revoked = await ask(app, "DELETE", f"/api/tokens/{made['id']}", token=ann)
    assert revoked.status == 200
    assert revoked.json["revoked_at"] is not None
    assert (await ask(app, "GET", RUN, token=made["token"])).status == 401


# -- what the page of another origin may do


async def preflight(
    app: Any, path: str, method: str = "POST", headers: str = "authorization,content-type", origin: str = PAGE
) -> Reply:
    asked = {"access-control-request-method": method, "access-control-request-headers": headers}
    return await ask(app, "OPTIONS", path, asked, origin=origin)


async def test_the_bar_in_a_page_of_a_named_origin_sees_and_steers_its_run(app: Any, ann: str) -> None:
    token = (await given(app, ann)).json["token"]

    before = await preflight(app, f"{RUN}/pause")
    seen = await ask(app, "GET", f"{RUN}/live", {"sec-fetch-site": "cross-site"}, token=token, origin=PAGE)
    paused = await ask(app, "POST", f"{RUN}/pause", token=token, origin=PAGE, json_body={})
    script = await ask(app, "GET", "/ui/bar.js", {"sec-fetch-site": "cross-site"}, origin=PAGE)

    assert before.status == 204
    assert before.one("access-control-allow-methods") == "GET, POST"
    assert "authorization" in str(before.one("access-control-allow-headers"))
    for reply in (before, seen, paused, script):
        assert reply.status in (200, 204), reply.body
        assert reply.one("access-control-allow-origin") == PAGE, "exactly that one, never *"
        assert reply.one("access-control-allow-credentials") is None
        assert "Origin" in str(reply.one("vary"))
        assert reply.one("cross-origin-resource-policy") == "cross-origin"


async def test_pages_of_other_origins_may_do_nothing_with_it(app: Any, ann: str) -> None:
    token = (await given(app, ann)).json["token"]

    for origin in ("https://evil.example", "http://app.example.com", f"{PAGE}:8443", f"{PAGE}.evil.example", "null"):
        for reply in (
            await preflight(app, f"{RUN}/pause", origin=origin),
            await ask(app, "POST", f"{RUN}/pause", token=token, origin=origin),
            await ask(app, "GET", f"{RUN}/live", token=token, origin=origin),
            await ask(app, "GET", "/ui/bar.js", origin=origin),
        ):
            assert (reply.status, reply.code) == (403, "cross_site")
            assert reply.one("access-control-allow-origin") is None
    assert app.reached == []


async def test_a_token_that_names_no_origins_is_of_no_use_to_another_page(app: Any, ann: str) -> None:
    """Not even where another token names that page."""
    await given(app, ann)
    without = (await given(app, ann, origins=[])).json["token"]

    for token in (without, ann, SERVER_TOKEN):
        assert (await ask(app, "POST", f"{RUN}/pause", token=token, origin=PAGE)).code == "cross_site"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/runs"),
        ("POST", "/api/runs"),
        ("GET", "/api/whoami"),
        ("GET", "/api/tokens"),
        ("POST", "/api/tokens"),
        ("DELETE", "/api/tokens/t-1"),
        ("POST", "/api/halt"),
        ("POST", "/api/reset"),
        ("POST", "/session"),
        ("DELETE", "/session"),
        ("GET", "/"),
        ("GET", "/enter?code=x"),
        ("PUT", RUN),
        ("DELETE", RUN),
        ("GET", "/metrics"),
    ],
)
async def test_only_what_the_bar_needs_is_open_to_a_named_origin(app: Any, ann: str, method: str, path: str) -> None:
    token = (await given(app, ann)).json["token"]

    before = await preflight(app, path.partition("?")[0], method)
    reply = await ask(app, method, path, token=token, origin=PAGE)

    assert (before.status, reply.status) == (403, 403)
    assert reply.one("access-control-allow-origin") is None


async def test_a_preflight_for_odd_headers_is_refused(app: Any, ann: str) -> None:
    await given(app, ann)

    assert (await preflight(app, f"{RUN}/pause", headers="authorization, x-evil")).status == 403
    assert (await preflight(app, f"{RUN}/pause", method="PATCH")).status == 403
    assert (await preflight(app, f"{RUN}/pause", headers="Authorization, Content-Type, Last-Event-ID")).status == 204


async def test_a_cookie_never_counts_in_a_page_of_another_origin(app: Any, ann: str) -> None:
    await given(app, ann)
    cookie = (await ask(app, "POST", "/session", json_body={"token": ann}, origin=OWN)).cookie

    for method, path in (("GET", RUN), ("POST", f"{RUN}/pause"), ("GET", f"{RUN}/live")):
        reply = await ask(app, method, path, cookie=cookie, origin=PAGE)
        assert (reply.status, reply.code) == (403, "cross_site")
    assert app.reached == []


async def test_the_bar_can_read_that_its_token_has_expired(app: Any, ann: str, clock: Clock) -> None:
    token = (await given(app, ann, minutes=1)).json["token"]
    clock.pass_seconds(61)

    reply = await ask(app, "GET", RUN, token=token, origin=PAGE)

    assert (reply.status, reply.code) == (401, "unauthorised")
    assert reply.one("access-control-allow-origin") == PAGE
    clock.pass_seconds(TOLD_SECONDS)
    assert (await ask(app, "GET", RUN, token=token, origin=PAGE)).code == "cross_site"


async def test_a_page_elsewhere_may_reach_a_server_on_this_machine_only_if_it_is_named(app: Any, ann: str) -> None:
    await given(app, ann)
    asked = {"access-control-request-method": "GET", "access-control-request-private-network": "true"}

    named = await ask(app, "OPTIONS", RUN, asked, origin=PAGE)
    other = await ask(app, "OPTIONS", RUN, asked, origin="https://evil.example")

    assert named.one("access-control-allow-private-network") == "true"
    assert other.one("access-control-allow-private-network") is None
