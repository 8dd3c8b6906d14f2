"""The page of a run and its panels, by the names that a person knows them by."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Locator, Page, expect

from tests.browser.served import Server


class Sheet:
    """The page of one run."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page = page
        self.server = server
        self.title = page.get_by_role("heading", level=1)
        self.steps = self.panel("Steps")
        self.text = self.panel("What it says and does")
        self.changes = self.panel("What it changed")
        self.told = self.panel("What you told it")
        self.ask = self.panel("Ask it something")
        self.needs = self.panel("Needs you")
        self.ended = self.panel("How it ended")
        self.noticed = self.panel("Noticed")
        self.subruns = self.panel("Runs it started")
        self.timeline = self.panel("Timeline")
        self.calls = self.panel("Every call")
        self.status = page.locator("checkrein-run > checkrein-bar .status, checkrein-bar:not([inline]) .status").first

    def open(self, run: str) -> None:
        self.page.goto(f"{self.server.url}/runs/{run}")
        expect(self.page.locator("checkrein-run .grid")).to_be_visible()

    def panel(self, name: str) -> Locator:
        return self.page.locator("section.panel").filter(has=self.page.get_by_role("heading", name=name, exact=True))

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def shows(self, word: str) -> None:
        """Wait until the bar says that the run is so."""
        expect(self.status).to_have_text(word)

    def step(self, title: str) -> Locator:
        return self.steps.locator("li.task").filter(has_text=title)

    def call(self, name: str) -> Locator:
        """The line of a call; the last one, if there are several of that name."""
        return self.calls.locator("li").filter(has=self.page.locator(".name", has_text=name)).last

    def opened(self, name: str) -> Locator:
        """A call, opened."""
        line = self.call(name)
        line.locator("summary").first.click()
        inside = line.locator(".opened")
        expect(inside).to_contain_text("Began at")
        return inside

    def say_a_word(self, text: str) -> None:
        """Write something beside the answer to the first question."""
        self.needs.get_by_text("Say a word, change it, or approve always").first.click()
        self.needs.get_by_placeholder("A word about it, if you like").first.fill(text)

    def faults(self) -> list[Any]:
        """What axe finds wrong with the page."""
        found = Axe().run(self.page).response["violations"]
        return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]
