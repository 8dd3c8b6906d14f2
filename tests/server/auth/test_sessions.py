"""How a browser comes in, once, without a secret staying anywhere; and how it goes out."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from checkrein.server.auth import gate
from checkrein.server.auth.guard import Guard
from checkrein.server.auth.key_store import FileKeyStore
from checkrein.server.auth.policy import Policy
from checkrein.server.auth.principals import Role
from checkrein.server.auth.token_store import CODE_SECONDS, OPERATOR, SESSION_SECONDS, Keys
from tests.server.auth.asking import OWN, ask
from tests.server.auth.conftest import SERVER_TOKEN, Clock, stand_in
from tests.support.patience import PATIENCE_SECONDS
from tests.support.witness import until

pytestmark = pytest.mark.anyio


# -- with a one-time code


async def test_a_code_lets_a_browser_in_and_nothing_stays_in_the_address(app: Any, keys: Keys) -> None:
    code = keys.new_code(SERVER_TOKEN)

    entered = await ask(app, "GET", f"/enter?code={code}")

    assert (entered.status, entered.one("location")) == (303, "/")
    assert entered.one("referrer-policy") == "no-referrer"
    assert entered.one("cache-control") == "no-store"
    assert code.encode() not in entered.body
    assert code not in str(entered.headers)
    assert (await ask(app, "GET", "/api/whoami", cookie=entered.cookie)).json["role"] == "operator"


async def test_the_cookie_is_for_our_own_pages_and_no_script(app: Any, keys: Keys) -> None:
    entered = await ask(app, "GET", f"/enter?code={keys.new_code(SERVER_TOKEN)}")

    cookie = str(entered.one("set-cookie"))
    parts = cookie.split("; ")

    assert re.fullmatch(r"checkrein_8420=cks_[\w-]{43}", parts[0])
    assert set(parts[1:]) == {"Path=/", "HttpOnly", "SameSite=Strict", f"Max-Age={int(SESSION_SECONDS)}"}


async def test_over_tls_the_cookie_is_bound_to_the_host(app: Any, keys: Keys) -> None:
    entered = await ask(
        app, "GET", f"/enter?code={keys.new_code(SERVER_TOKEN)}", host="agents.example.com", scheme="https"
    )

    cookie = str(entered.one("set-cookie"))

    assert cookie.startswith("__Host-checkrein_443=")
    assert "; Secure" in cookie
    assert "; Path=/;" in cookie
    assert "Domain" not in cookie
    options: dict[str, Any] = {"cookie": entered.cookie, "host": "agents.example.com"}
    assert (await ask(app, "GET", "/api/whoami", scheme="https", **options)).status == 200
    assert (await ask(app, "GET", "/api/whoami", scheme="http", **options)).status == 401


async def test_in_an_application_the_cookie_is_for_its_part_only(app: Any, keys: Keys) -> None:
    entered = await ask(app, "GET", f"/enter?code={keys.new_code(SERVER_TOKEN)}", root="/agents", scheme="https")

    assert entered.one("location") == "/agents/"
    assert "; Path=/agents;" in str(entered.one("set-cookie"))
    assert not entered.cookie.startswith("__Host-"), "that prefix is for the whole host"
    assert (await ask(app, "GET", "/api/whoami", cookie=entered.cookie, root="/agents", scheme="https")).status == 200


async def test_a_code_used_twice_lets_the_second_one_in_nowhere(app: Any, keys: Keys) -> None:
    code = keys.new_code(SERVER_TOKEN)
    first = await ask(app, "GET", f"/enter?code={code}")

    stranger = await ask(app, "GET", f"/enter?code={code}")
    same = await ask(app, "GET", f"/enter?code={code}", cookie=first.cookie)

    assert (stranger.status, stranger.one("set-cookie")) == (401, None)
    assert b"was used already" in stranger.body
    assert (same.status, same.one("set-cookie")) == (303, None), "whoever is in already just goes to the page"


async def test_a_code_is_good_for_minutes(app: Any, keys: Keys, clock: Clock) -> None:
    code = keys.new_code(SERVER_TOKEN)
    clock.pass_seconds(CODE_SECONDS)

    assert (await ask(app, "GET", f"/enter?code={code}")).status == 401


async def test_a_browser_that_fetches_in_advance_does_not_use_the_code_up(app: Any, keys: Keys) -> None:
    code = keys.new_code(SERVER_TOKEN)

    for headers in ({"sec-purpose": "prefetch;prerender"}, {"purpose": "prefetch"}):
        assert (await ask(app, "GET", f"/enter?code={code}", headers)).status == 403
    assert (await ask(app, "HEAD", f"/enter?code={code}")).status == 405

    assert (await ask(app, "GET", f"/enter?code={code}")).status == 303


@pytest.mark.parametrize(
    "run", ["//evil.example", "https://evil.example", "../x", "r-1/../..", "r 1", "%2f%2fevil", "x" * 201]
)
async def test_entering_leads_to_pages_of_ours_only(app: Any, keys: Keys, run: str) -> None:
    code = keys.new_code(SERVER_TOKEN)

    assert (await ask(app, "GET", f"/enter?code={code}&run={run}")).status == 422
    assert (await ask(app, "GET", f"/enter?code={code}&run=r-1")).one("location") == "/runs/r-1"


# -- with a token


async def test_a_token_is_exchanged_for_a_session(app: Any, keys: Keys) -> None:
    _, secret = keys.create(role=Role.VIEWER, owner="ann")

    reply = await ask(app, "POST", "/session", json_body={"token": secret}, origin=OWN)

    assert reply.status == 200
    assert reply.json["owner"] == "ann"
    assert reply.json["may"] == ["see"]
    assert secret.encode() not in reply.body
    assert secret not in str(reply.headers)
    assert (await ask(app, "GET", "/api/whoami", cookie=reply.cookie)).json["name"] == "ann"


@pytest.mark.parametrize("body", [{"token": "ckr_wrong"}, {"token": ""}, {"token": "x" * 600}, {}, {"token": 7}, []])
async def test_a_wrong_token_opens_no_session_and_is_not_repeated(app: Any, body: Any) -> None:
    reply = await ask(app, "POST", "/session", json_body=body, origin=OWN)

    assert reply.status in (401, 422)
    assert reply.one("set-cookie") is None
    assert b"ckr_wrong" not in reply.body
    assert b"xxxx" not in reply.body


async def test_a_token_for_the_bar_opens_no_session(app: Any, keys: Keys) -> None:
    _, secret = keys.create(role=Role.CONTROLLER, run="r-1", origins=("https://a.example",))

    reply = await ask(app, "POST", "/session", json_body={"token": secret}, origin=OWN)

    assert (reply.status, reply.one("set-cookie")) == (403, None)


async def test_a_session_that_somebody_planted_is_not_taken_over(app: Any, keys: Keys) -> None:
    """Session fixation: whatever cookie a browser comes with, it leaves with another."""
    planted = "checkrein_8420=cks_planted-by-somebody-who-hopes-to-share-it"

    reply = await ask(app, "POST", "/session", json_body={"token": SERVER_TOKEN}, origin=OWN, cookie=planted)
    entered = await ask(app, "GET", f"/enter?code={keys.new_code(SERVER_TOKEN)}", cookie=planted)

    assert planted not in (reply.cookie, entered.cookie)
    assert reply.cookie != entered.cookie
    assert (await ask(app, "GET", "/api/whoami", cookie=planted)).status == 401


async def test_a_new_session_ends_the_one_before_it(app: Any, keys: Keys) -> None:
    _, other = keys.create(role=Role.VIEWER, owner="mallory")
    first = await ask(app, "POST", "/session", json_body={"token": other}, origin=OWN)

    second = await ask(app, "POST", "/session", json_body={"token": SERVER_TOKEN}, origin=OWN, cookie=first.cookie)

    assert (await ask(app, "GET", "/api/whoami", cookie=first.cookie)).status == 401
    assert (await ask(app, "GET", "/api/whoami", cookie=second.cookie)).json["name"] == "operator"


async def test_cookies_that_another_server_of_this_name_adds_do_not_hide_the_session(app: Any, keys: Keys) -> None:
    """D16: cookies know no ports, so something else on this machine can add some; the button must go on working."""
    entered = await ask(app, "GET", f"/enter?code={keys.new_code(SERVER_TOKEN)}")

    for cookie in (
        f"checkrein_8420=cks_junk; {entered.cookie}",
        f"{entered.cookie}; checkrein_8420=cks_junk",
        f'a=b; ;;=; x="; {entered.cookie}; checkrein_8421=cks_other',
    ):
        reply = await ask(app, "POST", "/api/runs/r-1/cancel", cookie=cookie, origin=OWN)
        assert reply.status == 200, cookie


async def test_two_servers_on_one_machine_do_not_put_out_each_others_session(app: Any, keys: Keys) -> None:
    one = await ask(app, "GET", f"/enter?code={keys.new_code(SERVER_TOKEN)}", host="127.0.0.1:8420")
    other = await ask(app, "GET", f"/enter?code={keys.new_code(SERVER_TOKEN)}", host="127.0.0.1:8421")

    assert one.cookie.partition("=")[0] != other.cookie.partition("=")[0]
    assert (await ask(app, "GET", "/api/whoami", cookie=f"{one.cookie}; {other.cookie}")).status == 200


async def test_going_out_ends_the_session_and_takes_the_cookie_away(app: Any, keys: Keys) -> None:
    entered = await ask(app, "GET", f"/enter?code={keys.new_code(SERVER_TOKEN)}")

    left = await ask(app, "DELETE", "/session", cookie=entered.cookie, origin=OWN)

    assert left.status == 204
    assert str(left.one("set-cookie")).startswith("checkrein_8420=;")
    assert "Max-Age=0" in str(left.one("set-cookie"))
    assert (await ask(app, "GET", "/api/whoami", cookie=entered.cookie)).status == 401


async def test_a_session_outlives_the_server(app: Any, keys: Keys, folder: Path, clock: Clock) -> None:
    entered = await ask(app, "GET", f"/enter?code={keys.new_code(SERVER_TOKEN)}")
    keys.close()

    again = Keys(folder, now=clock)
    again.trust(SERVER_TOKEN, OPERATOR)
    restarted = stand_in(Guard(FileKeyStore(again), policy=Policy()))

    assert (await ask(restarted, "GET", "/api/whoami", cookie=entered.cookie)).status == 200
    clock.pass_seconds(SESSION_SECONDS)
    assert (await ask(restarted, "GET", "/api/whoami", cookie=entered.cookie)).status == 401
    again.close()


# -- long answers


@pytest.fixture(params=["lets go", "raises"])
def streaming(guard: Guard, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    monkeypatch.setattr(gate, "WATCH_SECONDS", 0.05)

    sent: list[bytes] = []

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        try:
            while True:
                await send({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})
                sent.append(b"still here")
                await anyio.sleep(0.01)
        except anyio.get_cancelled_exc_class():
            if request.param == "lets go":
                return  # the answer is left unfinished, and nobody learns why
            raise

    return guard.wrap(endless), sent


@pytest.mark.parametrize("how", ["revoked", "expired", "session ended", "keys gone"])
async def test_an_open_stream_ends_soon_after_its_token_has(
    streaming: tuple[Any, list[bytes]], keys: Keys, clock: Clock, how: str
) -> None:
    """P7: within seconds, by whichever process it was revoked, and cleanly."""
    token, secret = keys.create(role=Role.VIEWER, owner="ann", expires_at=clock() + 60)
    session, _ = keys.begin_session(SERVER_TOKEN) or ("", 0)
    who = {"cookie": f"checkrein_8420={session}"} if how == "session ended" else {"token": secret}
    replies: list[Any] = []

    async def read() -> None:
        replies.append(await ask(streaming[0], "GET", "/api/runs/r-1/live", **who))  # type: ignore[arg-type]

    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await until(lambda: len(streaming[1]) > 20)  # it was looked at several times meanwhile
            assert replies == [], "it goes on while the token is good"
            if how == "revoked":
                keys.revoke(token.id)
            elif how == "expired":
                clock.pass_seconds(60)
            elif how == "session ended":
                keys.end_session(session)
            else:
                keys.close()

    assert replies[0].status == 200
    assert replies[0].body.count(b"still here") > 3
    assert replies[0].is_complete


@pytest.mark.parametrize("site", ["cross-site", "same-site", "CROSS-SITE"])
async def test_another_site_that_leads_here_with_a_code_does_not_log_the_browser_in_by_itself(
    app: Any, keys: Keys, site: str
) -> None:
    """It would put a session of its own in the place of the person's. Whoever wants in clicks once."""
    mine = await ask(app, "GET", f"/enter?code={keys.new_code(SERVER_TOKEN)}")
    code = keys.new_code(keys.create(role=Role.VIEWER, owner="eve")[1])

    led = await ask(app, "GET", f"/enter?code={code}&run=r-1", {"sec-fetch-site": site}, cookie=mine.cookie)

    assert (led.status, led.one("set-cookie"), led.one("location")) == (200, None, None)
    assert (await ask(app, "GET", "/api/whoami", cookie=mine.cookie)).json["role"] == "operator"
    address = html.unescape(led.body.decode().partition('href="')[2].partition('"')[0])
    clicked = await ask(app, "GET", address, {"sec-fetch-site": "same-origin"}, cookie=mine.cookie)
    assert (clicked.status, clicked.one("location")) == (303, "/runs/r-1")
