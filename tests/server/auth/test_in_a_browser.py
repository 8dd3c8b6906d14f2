"""A real browser, logged in, is led to a hostile page: what can that make it do? The witness is the application."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import BrowserContext, Page, async_playwright

from checkrein.server.auth.principals import Role
from checkrein.server.auth.token_store import Keys
from tests.server.auth.conftest import SERVER_TOKEN
from tests.server.auth.listening import listening_on
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

CHROMIUM = os.environ.get("CHECKREIN_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome") or ""
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]

ATTACK = """
async (server) => {
  const told = [];
  const attempt = async (name, act) => told.push([name, await act().catch(() => "refused")]);
  const read = async (path, options) => {
    const answer = await fetch(server + path, {credentials: "include", ...options});
    return answer.type === "opaque" ? "opaque" : answer.status + " " + (await answer.text()).slice(0, 40);
  };
  const post = (type, mode) => read("/api/runs/r-1/cancel", {
    method: "POST", mode, headers: type ? {"content-type": type} : {}, body: type ? '{"reason":"x"}' : undefined});
  for (const mode of ["cors", "no-cors"]) {
    for (const type of ["text/plain", "application/x-www-form-urlencoded", ""]) {
      await attempt(`post ${type} ${mode}`, () => post(type, mode));
    }
    await attempt(`read ${mode}`, () => read("/api/runs", {mode}));
    await attempt(`stream ${mode}`, () => read("/api/runs/r-1/live", {mode}));
  }
  await attempt("post json", () => post("application/json", "cors"));
  await attempt("read with header", () => read("/api/runs/r-1", {headers: {authorization: "Bearer ckr_x"}}));
  await attempt("events", () => new Promise((good, bad) => {
    const source = new EventSource(server + "/api/runs/r-1/live", {withCredentials: true});
    source.onmessage = source.onopen = () => good("open");
    source.onerror = () => { source.close(); bad(); };
  }));
  await attempt("socket", () => new Promise((good, bad) => {
    const socket = new WebSocket(server.replace("http", "ws") + "/api/runs/r-1/live");
    socket.onopen = () => good("open");
    socket.onerror = () => bad();
  }));
  await attempt("script", () => new Promise((good, bad) => {
    const element = document.createElement("script");
    element.src = server + "/ui/bar.js";
    element.onload = () => good("loaded");
    element.onerror = () => bad();
    document.body.append(element);
  }));
  await attempt("frame", () => new Promise((good) => {
    const frame = document.createElement("iframe");
    frame.src = server + "/";
    frame.onload = () => { try { good(frame.contentDocument.body.innerText || "empty"); } catch { good("hidden"); } };
    document.body.append(frame);
  }));
  return told;
}
"""

FORM = """
([server, type]) => {
  const form = document.createElement("form");
  form.method = "POST"; form.action = server + "/api/runs/r-1/cancel"; form.enctype = type;
  const field = document.createElement("input");
  field.name = '{"reason":"x","a":"'; field.value = '"}';
  form.append(field); document.body.append(form); form.submit();
}
"""


async def hostile(scope: Any, receive: Any, send: Any) -> None:
    """A page without any rules of its own."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
    await send({"type": "http.response.body", "body": b"<!doctype html><body>Win a prize!"})


@pytest.fixture
async def person(app: Any, keys: Keys) -> AsyncIterator[tuple[BrowserContext, int, int]]:
    """A browser with a session, the port of our server and that of another one on the same machine."""
    if not CHROMIUM:
        pytest.skip("There is no Chromium here; set CHECKREIN_CHROMIUM to one.")
    with listening_on(app) as ours, listening_on(hostile) as theirs:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            context = await browser.new_context()
            context.set_default_timeout(PATIENCE_SECONDS * 1000)
            page = await context.new_page()
            await page.goto(f"http://127.0.0.1:{ours}/enter?code={keys.new_code(SERVER_TOKEN)}")
            assert page.url == f"http://127.0.0.1:{ours}/", "nothing of the code stays in the address"
            assert await page.evaluate("document.cookie") == "", "no script reads the session"
            assert await page.evaluate("fetch('/api/runs').then(answer => answer.status)") == 200
            app.reached.clear()
            yield context, ours, theirs
            await browser.close()


async def page_at(context: BrowserContext, address: str) -> Page:
    page = await context.new_page()
    await page.goto(address)
    return page


async def test_a_hostile_page_steers_and_reads_nothing(app: Any, person: tuple[BrowserContext, int, int]) -> None:
    """D16 P7: on another port of the same name, where the cookie is sent along, and under another name."""
    context, ours, theirs = person
    for name in ("127.0.0.1", "localhost"):
        page = await page_at(context, f"http://{name}:{theirs}/")

        told = dict(await page.evaluate(ATTACK, f"http://127.0.0.1:{ours}"))

        assert len(told) == 16
        assert set(told.values()) <= {"refused", "opaque", "hidden"}, told
        assert told["socket"] == told["script"] == told["events"] == "refused"
        assert app.reached == [], "the application was reached"


async def test_a_hostile_form_steers_nothing(app: Any, person: tuple[BrowserContext, int, int]) -> None:
    context, ours, theirs = person
    for kind in ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded"):
        page = await page_at(context, f"http://127.0.0.1:{theirs}/")

        async with page.expect_navigation():
            await page.evaluate(FORM, [f"http://127.0.0.1:{ours}", kind])

        assert "cross_site" in await page.inner_text("body")
        assert app.reached == [], kind


async def test_our_own_page_steers(app: Any, person: tuple[BrowserContext, int, int]) -> None:
    """The same browser, the same session: what the tests above refuse is refused for where it came from."""
    context, ours, _ = person
    page = await page_at(context, f"http://127.0.0.1:{ours}/")

    status = await page.evaluate(
        "fetch('/api/runs/r-1/cancel', {method: 'POST', headers: {'content-type': 'application/json'}, body: '{}'})"
        ".then(answer => answer.status)"
    )

    assert status == 200
    assert app.reached == [("cancel", "r-1")]


async def test_a_page_of_a_named_origin_steers_with_its_token_and_without_a_cookie(
    app: Any, keys: Keys, person: tuple[BrowserContext, int, int]
) -> None:
    context, ours, theirs = person
    origin = f"http://localhost:{theirs}"
    _, secret = keys.create(role=Role.CONTROLLER, run="r-1", name="bar", origins=(origin,))
    steer = """([server, token]) => fetch(server + "/api/runs/r-1/pause", {
        method: "POST", body: "{}", headers: {authorization: "Bearer " + token, "content-type": "application/json"},
    }).then(answer => answer.json())"""
    named = await page_at(context, f"{origin}/")
    other = await page_at(context, f"http://127.0.0.1:{theirs}/")

    answer = await named.evaluate(steer, [f"http://127.0.0.1:{ours}", secret])
    with pytest.raises(Exception, match="Failed to fetch"):
        await other.evaluate(steer, [f"http://127.0.0.1:{ours}", secret])

    assert answer["by"] == "bar"
    assert app.reached == [("pause", "r-1")]
