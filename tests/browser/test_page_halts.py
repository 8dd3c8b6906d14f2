"""The kill switch on the page: a band that nobody overlooks on every view, and a button that has to be held."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.browser.served import PATIENCE_MS
from tests.browser.test_page_serve import AGENTS, served
from tests.support.patience import PATIENCE_SECONDS


def checkrein(*arguments: str) -> None:
    command = [sys.executable, "-c", "from checkrein.cli import main; main()", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_SECONDS)


def hold_space(page: Page, seconds: float) -> None:
    page.get_by_role("button", name="Hold to halt").focus()
    page.keyboard.down("Space")
    page.wait_for_timeout(seconds * 1000)
    page.keyboard.up("Space")


def test_a_band_on_every_view_says_who_halted_what_and_the_button_must_be_held(browser: Browser, tmp_path: Path):
    """D35: halted from a terminal, seen in the page; halted in the page by a held key, and not by a tap."""
    (tmp_path / "agents.py").write_text(AGENTS.replace("PACE", "1.0"))
    store = f"sqlite:///{tmp_path}/runs.db"
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    band = page.locator("#halts")
    with served(tmp_path) as (_, link):
        page.goto(link)
        expect(page.get_by_text("Kill switch")).to_be_visible()
        expect(band).to_be_hidden()

        checkrein("halt", "agent", "other", "--by", "ada", "--reason", "mails to strangers", "--store", store)
        expect(band).to_contain_text("HALTED")
        expect(band).to_contain_text("agent other")
        expect(band).to_contain_text("by ada")
        expect(band).to_contain_text("mails to strangers")
        checkrein("reset", "agent", "other", "--store", store)
        expect(band).to_be_hidden()

        page.get_by_label("What should it do?").fill("Which customers will churn next quarter?")
        page.keyboard.press("Enter")
        expect(page.locator("checkrein-bar .status")).to_have_text("Running")
        page.get_by_text("Kill switch").click()
        hold_space(page, 0.5)
        time.sleep(1.5)
        expect(band).to_be_hidden()
        hold_space(page, 2.0)
        expect(band).to_contain_text("run r-")
        expect(page.locator("checkrein-bar .status")).to_contain_text("alted")
        page.screenshot(path=str(tmp_path / "halted.png"))
        page.goto(page.url.partition("/runs/")[0] + "/")
        expect(band).to_contain_text("HALTED")
        page.set_viewport_size({"width": 390, "height": 844})
        page.screenshot(path=str(tmp_path / "halted-phone.png"))
        assert band.bounding_box() is not None
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
