"""A page with nothing but a paragraph and a bar, and the bar's parts by the names that a person knows them by."""

from __future__ import annotations

import html
from typing import Any, Final

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.served import Server

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)


class Bar:
    """`<checkrein-bar>` in a page of the server's own origin, under the server's own policy."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page = page
        self.server = server
        self.host = page.locator("checkrein-bar")
        self.region = page.get_by_role("region", name="Control of the run")
        self.status = page.locator("checkrein-bar .status")
        self.field = page.locator("checkrein-bar textarea")
        self.spoken = page.get_by_role("status")
        self.receipt = page.locator("checkrein-bar .receipt")

    def open(self, run: str, **attributes: str) -> None:
        """Open a page with the bar for this run."""
        given = "".join(f' {name.replace("_", "-")}="{html.escape(value)}"' for name, value in attributes.items())
        body = (
            "<!doctype html><html lang=en><meta charset=utf-8><title>A page</title>"
            "<meta name=viewport content='width=device-width, initial-scale=1'>"
            f"<script type=module src={self.server.script('bar.js')}></script>"
            "<main><h1>A run</h1><p>Something to read.</p><label>A field <input></label></main>"
            f'<checkrein-bar run-id="{run}"{given}></checkrein-bar></html>'
        )

        def answer(route: Route) -> None:
            route.fulfill(body=body, content_type="text/html", headers={"Content-Security-Policy": CSP})

        self.page.route(f"{self.server.url}/a-page?run={run}", answer)
        self.page.goto(f"{self.server.url}/a-page?run={run}")

    def shows(self, word: str) -> None:
        """Wait until the status is this word."""
        expect(self.status).to_have_text(word)

    def button(self, name: str, *, exact: bool = True) -> Locator:
        return self.page.get_by_role("button", name=name, exact=exact)

    def consequence(self, slot: str) -> Locator:
        return self.page.locator(f"#{slot}-consequence")

    def key(self, slot: str) -> Locator:
        """A control by where it stands: hold, redirect or cancel."""
        return self.page.locator(f".key-{slot}")

    def faults(self) -> list[Any]:
        """What axe finds wrong with the page."""
        found = Axe().run(self.page).response["violations"]
        return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]
