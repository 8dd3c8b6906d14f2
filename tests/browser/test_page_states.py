"""Every state of a run on its page: its word, no fault that axe finds, in light, dark and on a phone; and its picture.

Pictures are kept in docs/pictures when CHECKREIN_PICTURES=1 asks for them; otherwise a test run leaves the tree alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import states
from tests.browser.conftest import log_in
from tests.browser.served import ROOT, Server
from tests.browser.sheets import Sheet
from tests.browser.states import WORDS, Arrange

PICTURES: Final = ROOT / "docs" / "pictures" if os.environ.get("CHECKREIN_PICTURES") == "1" else None
RICH: Final = (states.running, states.waiting, states.cancelled)
"""States that between them show every panel: these are looked at in the dark and on a phone, too."""
DEMO: Final = (states.running, states.talking, states.paused, states.cancelled)
"""States of which the demo gives the better picture."""
DESK, TABLET, PHONE = (1280, 900), (820, 1180), (390, 844)


def picture(page: Page, name: str) -> None:
    if PICTURES is not None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(PICTURES) / f"{name}.png")


def size(page: Page, width_and_height: tuple[int, int]) -> None:
    page.set_viewport_size({"width": width_and_height[0], "height": width_and_height[1]})


def is_as_wide_as_its_window(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.fixture
def sheet(page: Page, server: Server) -> Iterator[Sheet]:
    yield Sheet(page, server)
    states.clear(server)


@pytest.mark.parametrize("arrange", WORDS, ids=lambda arrange: arrange.__name__)
def test_a_state_has_its_word_and_nothing_that_axe_would_change(sheet: Sheet, server: Server, arrange: Arrange) -> None:
    """D24"""
    run = arrange(server)
    page, name = sheet.page, arrange.__name__
    size(page, DESK)
    sheet.open(run)
    sheet.shows(WORDS[arrange])
    expect(sheet.timeline.locator("svg .stroke").first).to_be_visible()
    if arrange is states.subruns:
        expect(sheet.subruns.locator("checkrein-bar .status")).to_have_count(3)

    if arrange not in DEMO:
        picture(page, name)
    assert sheet.faults() == []
    size(page, TABLET)
    assert is_as_wide_as_its_window(page)
    size(page, PHONE)
    assert is_as_wide_as_its_window(page)
    if arrange in RICH:
        assert sheet.faults() == []
        page.emulate_media(color_scheme="dark")
        size(page, DESK)
        assert sheet.faults() == []


@pytest.mark.skipif(PICTURES is None, reason="Pictures are made when CHECKREIN_PICTURES=1 asks for them.")
def test_pictures_of_the_demo(browser: Browser, fresh_server: Server) -> None:
    context = browser.new_context(viewport={"width": DESK[0], "height": DESK[1]})
    log_in(context, fresh_server)
    page = context.new_page()
    sheet = Sheet(page, fresh_server)

    def pictures(name: str) -> None:
        picture(page, name)
        size(page, PHONE)
        page.evaluate("scrollTo(0, 0)")
        picture(page, f"{name}-phone")
        size(page, DESK)
        page.emulate_media(color_scheme="dark")
        picture(page, f"{name}-dark")
        page.emulate_media(color_scheme="light")

    run = fresh_server.post("/api/runs", agent="churn", goal="Which customers will churn next quarter?")["id"]
    sheet.open(run)
    expect(sheet.call("score_churn")).to_contain_text("Running")
    page.wait_for_timeout(700)
    picture(page, "running")
    sheet.button("Pause").click()
    sheet.shows("Paused")
    pictures("paused")
    page.wait_for_timeout(700)
    sheet.button("Resume").click()
    sheet.shows("Running")
    pictures("running")
    sheet.button("Redirect").click()
    page.locator("checkrein-bar").get_by_role("textbox").fill("Score churn risk of customers in Germany")
    picture(page, "redirect")
    page.locator("checkrein-bar .composer button.main").click()
    expect(sheet.told).to_contain_text("The agent has it.")
    expect(sheet.call("score_churn")).to_contain_text("Running")
    sheet.button("Cancel").click()
    sheet.shows("Cancelled")
    expect(sheet.ended).to_contain_text("Stopped in")
    pictures("cancelled")
    context.close()


def test_the_list_has_nothing_that_axe_would_change(sheet: Sheet, server: Server) -> None:
    states.waiting(server), states.talking(server), states.completed(server), states.cancelled(server)
    page = sheet.page
    size(page, DESK)
    page.goto(server.url)
    expect(page.locator("li[data-run]").nth(3)).to_be_visible()

    picture(page, "runs")
    assert sheet.faults() == []
    page.emulate_media(color_scheme="dark")
    assert sheet.faults() == []
    size(page, PHONE)
    picture(page, "runs-phone")
    assert is_as_wide_as_its_window(page)
    assert sheet.faults() == []


@pytest.fixture
def own_sheet(own_page: Page, own_server: Server) -> Sheet:
    """On a server that a test may end."""
    size(own_page, DESK)
    return Sheet(own_page, own_server)


def test_a_call_in_doubt_shows_what_its_check_said_and_three_answers(own_sheet: Sheet, own_server: Server) -> None:
    """P2: the server was killed while the invoice was being sent; nothing is sent twice, a person decides."""
    run = states.doubtful(own_server)
    sheet = own_sheet
    sheet.open(run)

    need = sheet.needs.locator("li.doubt")
    expect(need.get_by_role("heading")).to_have_text("Did send_invoice happen?")
    expect(need).to_contain_text("Nobody knows whether it was done.")
    expect(need).to_contain_text("The check that comes with send_invoice says: it did not happen. You decide.")
    expect(need).to_contain_text("Acme Ltd, 1182 Harbour Street")
    answers = own_server.view(run)["doubts"][0]["answers"]
    for name, answer in zip(("It happened", "It did not", "Undo it"), answers, strict=True):
        button = need.get_by_role("button", name=f"{name} {answer['consequence']}")
        expect(button).to_be_enabled(enabled=answer["enabled"])  # once it has stood still for a moment
    picture(sheet.page, "doubt")
    assert sheet.faults() == []

    before = own_server.view(run)["doubts"][0]["checked"]["at"]
    need.get_by_role("button", name="Check again").click()
    own_server.until(run, lambda view: view["doubts"][0]["checked"]["at"] > before)
    own_server.open_gate(run)
    need.get_by_role("button", name="It did not").click()

    sheet.shows("Completed")
    assert own_server.log(run).count("sending") == 2
    assert own_server.log(run).count("sent") == 1


def test_whoever_knows_what_came_of_a_call_in_doubt_can_say_so(own_sheet: Sheet, own_server: Server) -> None:
    run = states.doubtful(own_server)
    sheet = own_sheet
    sheet.open(run)

    need = sheet.needs.locator("li.doubt")
    need.get_by_text("It happened, and I know what came of it").click()
    need.get_by_label("What came of send_invoice, if you know it").fill("it went out at noon")
    need.get_by_role("button", name="It happened").click()

    sheet.shows("Completed")
    expect(sheet.ended.locator(".final")).to_have_text("it went out at noon")
    assert "sent" not in own_server.log(run)


def test_a_lost_connection_is_said_and_mended_by_itself(own_sheet: Sheet, own_server: Server) -> None:
    """P6, D29: the server is killed in the middle of a run and started again; the page shows both, without a reload."""
    run = states.talking(own_server)
    sheet = own_sheet
    sheet.open(run)
    sheet.shows("Running")

    own_server.end(9)

    expect(sheet.page.get_by_text("No connection.").first).to_be_visible()
    expect(sheet.page.get_by_text("What the run does now is not known here; the page connects again")).to_be_visible()
    expect(sheet.page.locator("checkrein-bar .bar[data-lost]")).to_be_visible()
    picture(sheet.page, "lost")
    assert sheet.faults() == []

    own_server.begin()
    expect(sheet.page.locator("checkrein-bar .bar[data-lost]")).to_have_count(0)
    expect(sheet.page.locator("p.strip")).to_be_hidden()
    sheet.shows("Running")
    expect(sheet.text).to_contain_text("word0 word1 word2")
    sheet.button("Cancel").click()
    sheet.shows("Cancelled")
    assert own_server.view(run)["status"] == "cancelled"


def test_a_reload_in_the_middle_loses_nothing(sheet: Sheet, server: Server) -> None:
    """D29"""
    run = states.talking(server)
    sheet.open(run)
    expect(sheet.text).to_contain_text("word20 ")

    sheet.page.reload()

    expect(sheet.text).to_contain_text("word0 word1 word2")
    sheet.shows("Running")
    sheet.button("Cancel").click()
    sheet.shows("Cancelled")
    said = server.view(run)["calls"][-1]["text"]
    expect(sheet.text.locator(".streamed")).to_have_text(said.strip())


def test_everything_can_be_reached_by_keyboard(sheet: Sheet, server: Server) -> None:
    run = states.waiting(server)
    sheet.open(run)
    expect(sheet.needs.get_by_role("heading", level=3)).to_contain_text("The e-mail to")
    sheet.page.locator("body").click(position={"x": 1, "y": 1})

    reached: list[str] = []
    for _ in range(60):
        sheet.page.keyboard.press("Tab")
        name = sheet.page.evaluate(
            """() => { let at = document.activeElement
                 while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement
                 return at === document.body ? '' : (at.innerText || at.placeholder || at.localName).trim() }"""
        )
        reached.append(name.split()[0] if name.split() else "")
        if name.startswith("Cancel"):
            break

    for wanted in ("Checkrein", "Runs", "Approve", "Deny", "Ask", "Pause", "Redirect", "Cancel"):
        assert wanted in reached, reached
    assert reached.index("Approve") < reached.index("Ask") < reached.index("Pause")

    sheet.calls.locator("summary").first.focus()
    sheet.page.keyboard.press("Enter")
    expect(sheet.calls.locator(".opened").first).to_contain_text("Began at")
