"""The bar alone in somebody else's page: another origin, a short-lived token, and styles that are not ours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.bars import Bar
from tests.browser.served import Server

HOSTILE = """
  html { font-size: 62.5% }
  * { box-sizing: content-box !important; border-radius: 40px !important; font-family: serif !important }
  body { text-transform: uppercase; letter-spacing: .4em; line-height: 3; color: yellow; font-size: 40px;
    text-align: right }
  button, p, span, .bar, .key, .hidden { display: none !important }
"""


class Elsewhere:
    """A web server of somebody else."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        pages = self.pages

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = pages.get(self.path, "").encode()
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://localhost:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    elsewhere = Elsewhere()
    yield elsewhere
    elsewhere.close()


@pytest.fixture
def stranger(browser: Browser, tidy_server: Server) -> Iterator[Page]:
    """A browser that has never seen the server, and has no session with it."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    yield page
    context.close()


def _token(server: Server, run: str, origin: str, **more: Any) -> str:
    return str(server.post("/api/tokens", run=run, origins=[origin], **more)["token"])


def _open(page: Page, server: Server, elsewhere: Elsewhere, run: str, token: str, more: str = "") -> Bar:
    elsewhere.pages["/"] = f"""<!doctype html><html lang=en><title>My application</title><style>{HOSTILE}</style>
        <script>globalThis.before = new Set(Object.getOwnPropertyNames(globalThis))</script>
        <script type=module src="{server.url}/ui/bar.js"></script><h1>My application</h1>
        <checkrein-bar run-id="{run}" base-url="{server.url}" token="{token}" {more}></checkrein-bar>"""
    page.goto(f"{elsewhere.origin}/")
    return Bar(page, server)


def test_it_works_with_a_token_for_one_run(stranger: Page, server: Server, elsewhere: Elsewhere):
    run = server.talking()
    bar = _open(stranger, server, elsewhere, run, _token(server, run, elsewhere.origin))
    bar.shows("Running")

    bar.button("Pause").click()
    bar.shows("Paused")
    bar.page.wait_for_timeout(700)
    bar.button("Resume").click()
    bar.shows("Running")
    server.until(run, lambda view: any(call["now"] == "running" for call in view["calls"]))
    bar.button("Cancel").click()
    bar.shows("Cancelled")

    expect(bar.receipt).to_contain_text("Nothing ran after you stopped it.")
    bar.button("Other").click()
    expect(bar.receipt).to_contain_text("Noted: other.")
    assert server.view(run)["status"] == "cancelled"
    expect(bar.button("Continue from here")).to_be_hidden()  # its token is for this run only


def test_without_a_token_on_another_origin_it_says_what_is_missing(
    stranger: Page, server: Server, elsewhere: Elsewhere
):
    run = server.talking()
    _token(server, run, elsewhere.origin)  # so that its script may be loaded there
    bar = _open(stranger, server, elsewhere, run, "")

    expect(bar.page.get_by_text(f"No answer from {server.url}.")).to_contain_text("this bar has no token: give it one")


def test_a_token_to_look_with_is_found_out_by_the_first_refusal(stranger: Page, server: Server, elsewhere: Elsewhere):
    """A page of another origin may not ask who is looking; after that, nothing is offered that would be refused."""
    run = server.talking()
    bar = _open(stranger, server, elsewhere, run, _token(server, run, elsewhere.origin, role="viewer"))
    bar.shows("Running")

    bar.button("Cancel").click()

    expect(bar.page.locator(".refused")).to_be_visible()
    for slot in ("hold", "redirect", "cancel"):
        expect(bar.key(slot)).to_be_disabled()
        expect(bar.consequence(slot)).to_have_text("you may only watch")
    assert server.view(run)["status"] == "running"


def test_the_page_around_may_continue_a_run_itself(stranger: Page, server: Server, elsewhere: Elsewhere):
    run = server.start("quick")
    server.until_status(run, "completed")
    token = _token(server, run, elsewhere.origin)
    bar = _open(stranger, server, elsewhere, run, token, "can-continue")
    stranger.evaluate(
        """() => document.addEventListener("checkrein-continue", (event) => {
          event.preventDefault();
          globalThis.wanted = event.detail;
        })"""
    )

    bar.button("Continue from here").click()
    bar.field.fill("go on")
    bar.button("Continue from here").click()

    stranger.wait_for_function("globalThis.wanted")
    assert stranger.evaluate("globalThis.wanted") == {"run": run, "goal": "go on"}


def test_the_styles_of_the_page_do_not_reach_it_and_its_own_do_not_leave_it(
    stranger: Page, server: Server, elsewhere: Elsewhere
):
    run = server.talking()
    bar = _open(stranger, server, elsewhere, run, _token(server, run, elsewhere.origin))

    bar.shows("Running")
    expect(bar.button("Cancel")).to_be_in_viewport(ratio=1)
    looks = bar.button("Cancel").evaluate(
        """element => {
          const { fontSize, fontFamily, textTransform, letterSpacing, textAlign } = getComputedStyle(element);
          return { fontSize, fontFamily, textTransform, letterSpacing, textAlign };
        }"""
    )
    assert float(looks.pop("fontSize").removesuffix("px")) >= 15
    assert "serif" in looks["fontFamily"]
    assert looks.pop("fontFamily") != "serif"
    assert looks == {"textTransform": "none", "letterSpacing": "normal", "textAlign": "start"}
    assert stranger.locator("h1").evaluate("element => getComputedStyle(element).fontFamily") == "serif"


def test_nothing_of_it_leaks_into_the_page(stranger: Page, server: Server, elsewhere: Elsewhere):
    run = server.talking()
    bar = _open(stranger, server, elsewhere, run, _token(server, run, elsewhere.origin))
    bar.shows("Running")

    assert (
        stranger.evaluate(
            "Object.getOwnPropertyNames(globalThis).filter(name => name !== 'before' && !before.has(name))"
        )
        == []
    )
    assert stranger.evaluate("document.adoptedStyleSheets.length") == 0
    assert stranger.evaluate("document.querySelectorAll('style, link').length") == 1
    assert bar.host.get_attribute("style") is None
    assert stranger.evaluate("document.documentElement.getAttribute('style')") is None


def test_the_page_may_dress_it(stranger: Page, server: Server, elsewhere: Elsewhere):
    run = server.talking()
    bar = _open(stranger, server, elsewhere, run, _token(server, run, elsewhere.origin))

    stranger.add_style_tag(content="checkrein-bar { --checkrein-sheet: rgb(1, 2, 3); --checkrein-round: 0px }")

    expect(bar.region).to_have_css("background-color", "rgb(1, 2, 3)")
    expect(bar.button("Cancel")).to_have_css("border-top-left-radius", "0px")


def test_a_token_that_has_ended_is_asked_for_anew_and_a_new_one_is_used_at_once(
    stranger: Page, server: Server, elsewhere: Elsewhere
):
    run = server.talking()
    token = _token(server, run, elsewhere.origin)
    _token(server, run, elsewhere.origin)  # the origin is still known when the first one is gone
    stranger.add_init_script(
        "document.addEventListener('checkrein-unauthorised', () => globalThis.asked = (globalThis.asked ?? 0) + 1)"
    )
    bar = _open(stranger, server, elsewhere, run, "crk_wrong" + "x" * 38)

    stranger.wait_for_function("globalThis.asked")
    expect(stranger.get_by_text("Not connected:")).to_be_visible()
    bar.host.evaluate("(bar, token) => { bar.token = token }", token)

    bar.shows("Running")


def test_a_bar_that_is_taken_out_of_the_page_lets_go_of_everything(
    stranger: Page, server: Server, elsewhere: Elsewhere
):
    run = server.talking()
    bar = _open(stranger, server, elsewhere, run, _token(server, run, elsewhere.origin))
    bar.shows("Running")

    stranger.evaluate("globalThis.bar = document.querySelector('checkrein-bar'); bar.remove()")
    assert stranger.evaluate("bar.live") is None
    stranger.evaluate("document.body.append(bar)")

    bar.shows("Running")
    assert server.view(run)["status"] == "running"
