"""Questions to a person: shown is what is executed, and no click answers what it was not meant for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser import states
from tests.browser.page_agents import ACCOUNTS
from tests.browser.served import Server, until
from tests.browser.sheets import Sheet

PHONE: Final = {"width": 390, "height": 844}
DESK: Final = {"width": 1280, "height": 800}
CLICK_AT_ONCE: Final = """() => {
  const list = document.querySelector('checkrein-run').shadowRoot.querySelector('.needs ul');
  const first = list.firstElementChild.dataset.call;
  window.clicked = 0;
  new MutationObserver(() => {
    const card = list.firstElementChild;
    if (!card || card.dataset.call === first) return;
    card.querySelector('button.yes').click();
    window.clicked += 1;
  }).observe(list, { childList: true });
}"""


@pytest.fixture
def sheet(page: Page, tidy_server: Server) -> Iterator[Sheet]:
    yield Sheet(page, tidy_server)
    page.set_viewport_size(DESK)  # type: ignore[arg-type]


def asked(server: Server, goal: str, count: int = 1) -> str:
    run = server.start("asking", goal)
    server.until(run, lambda view: len(view.get("approvals", ())) >= count)
    return run


def approve(card: Locator) -> Locator:
    return card.get_by_role("button", name="Approve it is done now")


def test_what_is_shown_is_what_is_paid_and_each_payment_takes_an_answer_of_its_own(
    sheet: Sheet, server: Server
) -> None:
    """A click at once on what has taken the place of a question answers nothing; nor does a second of two."""
    run = asked(server, "Pay")
    bodies: list[dict[str, Any]] = []

    def seen(route: Route) -> None:
        bodies.append(json.loads(route.request.post_data or "{}"))
        route.continue_()

    sheet.page.route("**/approve", seen)
    sheet.open(run)
    card = sheet.needs.locator("li.approval")
    expect(card.locator("dd").nth(0)).to_have_text(str(ACCOUNTS[0]))
    expect(card.locator("dd").nth(1)).to_contain_text(f'"id":{ACCOUNTS[1]}')
    expect(card).to_contain_text("This cannot be undone.")
    shown = server.view(run)["approvals"][0]
    expect(approve(card)).to_be_enabled()
    approve(card).dispatch_event("click", {"detail": 2})
    sheet.page.evaluate(CLICK_AT_ONCE)

    approve(card).click()

    expect(card.locator("dd").nth(0)).to_have_text(str(ACCOUNTS[1]))
    assert sheet.page.evaluate("window.clicked") > 0
    assert [body["fingerprint"] for body in bodies] == [shown["fingerprint"]]
    assert server.log(run) == [f"paid {ACCOUNTS[0]}"]

    sheet.page.locator("checkrein-bar").get_by_role("button", name="Look").click()
    expect(card).to_be_focused()
    expect(approve(card)).to_be_enabled()
    sheet.page.keyboard.press("y")
    sheet.shows("Completed")
    assert server.log(run) == [f"paid {account}" for account in ACCOUNTS]
    expect(sheet.opened("pay")).to_contain_text(str(ACCOUNTS[1]))


def test_consent_to_something_else_than_what_was_shown_is_refused_and_said(sheet: Sheet, server: Server) -> None:
    run = asked(server, "Pay")

    def tamper(route: Route) -> None:
        body = json.loads(route.request.post_data or "{}")
        route.continue_(post_data=json.dumps({**body, "fingerprint": "0" * 64}))

    sheet.page.route("**/approve", tamper)
    sheet.open(run)

    approve(sheet.needs).click()

    expect(sheet.needs.get_by_text("This is not the call that was shown when you answered")).to_be_visible()
    assert server.log(run) == []
    assert server.view(run)["approvals"]


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_of_two_questions_both_answers_are_in_view_and_the_one_that_blocks_comes_first(
    sheet: Sheet, server: Server, size: dict[str, int]
) -> None:
    sheet.page.set_viewport_size(size)  # type: ignore[arg-type]
    run = asked(server, "Both", 2)
    sheet.open(run)
    cards = sheet.needs.locator("li.approval")
    expect(cards).to_have_count(2)
    expect(cards.nth(0)).to_contain_text("May it use pay?")
    expect(cards.nth(1)).to_contain_text("The agent works on meanwhile")
    expect(cards.nth(0).locator("kbd").first).to_be_visible(visible=size is DESK)
    expect(cards.nth(1).locator("kbd").first).to_be_hidden()
    top = sheet.page.locator("checkrein-bar .bar").bounding_box()
    assert top is not None
    for name in ("Approve it is done now", "Deny it is not done"):
        for n in range(2):
            box = cards.nth(n).get_by_role("button", name=name).bounding_box()
            assert box is not None
            assert box["y"] >= 0
            assert box["y"] + box["height"] <= top["y"], (name, n)
    assert top["height"] <= 0.26 * size["height"]

    long = cards.nth(1)
    expect(long.locator("dt")).to_have_text(["text", "reference"])
    expect(long).to_contain_text("1,840 more characters")
    long.get_by_role("button", name="Show all of it").click()
    expect(long.locator("dd").first).to_have_text(("The office is closed on Monday. " * 120).strip())


def test_a_call_is_made_with_what_a_person_put_in_its_place_and_what_was_denied_is_named(
    sheet: Sheet, server: Server
) -> None:
    run = asked(server, "Both", 2)
    sheet.open(run)
    card = sheet.needs.locator("li.approval").filter(has_text="May it use pay?")
    card.get_by_text("Say a word, change it, or approve always").click()
    card.get_by_text("Change what it is given").click()
    card.get_by_label("account").fill("eight")
    put = card.get_by_role("button", name="Approve what stands here")
    put.click()
    expect(card.get_by_text("What stands for account is no JSON")).to_be_visible()
    card.get_by_label("account").fill("8")
    put.click()
    until(lambda: server.log(run) == ["paid 8"], "it is paid to another account")

    sheet.needs.get_by_role("button", name="Deny it is not done").click()

    sheet.shows("Completed")
    expect(sheet.ended).to_contain_text("Not done: post_notice (denied).")
    expect(sheet.ended.locator(".final")).to_have_text("That is all.")
    expect(sheet.opened("pay")).to_contain_text("approved it with other values than it had asked for")


def test_of_many_questions_twenty_are_drawn_and_the_first_can_answer_for_the_rest(sheet: Sheet, server: Server) -> None:
    run = server.start("asking", "Many")
    server.until(run, lambda view: view.get("more_approvals") == 10)
    sheet.open(run)

    expect(sheet.needs.locator("li.approval")).to_have_count(20)
    expect(sheet.needs).to_contain_text("10 more questions when these are answered.")
    card = sheet.needs.locator("li.approval").first
    card.get_by_text("Say a word, change it, or approve always").click()
    card.get_by_role("button", name="Approve always in this run").click()
    until(lambda: "posted" in server.log(run), "the first is done")


def test_a_run_that_begins_to_wait_is_told_in_the_background_to_those_who_asked_for_it(
    sheet: Sheet, server: Server
) -> None:
    sheet.page.add_init_script(
        """window.told = []; window.asked = 0
        window.Notification = class {
          static permission = 'default'
          static async requestPermission() { window.asked += 1; return this.permission = 'granted' }
          constructor(title, { body }) { window.told.push(`${title}: ${body}`) }
        }"""
    )
    run = server.start("asking", "Late")
    server.until(run, lambda view: any(call["name"] == "work_long" for call in view.get("calls", ())))
    sheet.open(run)
    sheet.shows("Running")
    assert sheet.page.evaluate("window.asked") == 0
    sheet.page.get_by_role("button", name="Tell me when a run waits").click()
    expect(sheet.page.get_by_role("button", name="Told when a run waits")).to_have_attribute("aria-pressed", "true")
    sheet.page.evaluate("Object.defineProperty(document, 'visibilityState', { get: () => 'hidden' })")

    server.open_gate(run)

    until(lambda: sheet.page.evaluate("window.told.length"), "it is told")
    (told,) = sheet.page.evaluate("window.told")
    assert told.startswith("A run waits for you: Late")
    assert "May it use pay?" in told
    sheet.page.evaluate("localStorage.clear()")


def test_keys_are_shown_on_request(sheet: Sheet, server: Server) -> None:
    run = states.completed(server)
    sheet.open(run)
    sheet.page.keyboard.press("?")
    help_ = sheet.page.get_by_role("dialog", name="Keys")
    expect(help_).to_contain_text("approve the question in view")
    sheet.page.keyboard.press("Escape")
    expect(help_).to_be_hidden()


def test_what_the_agent_does_not_wait_for_is_asked_in_the_bar_and_in_the_list_and_counts_calls_not_steps(
    sheet: Sheet, server: Server
) -> None:
    run = asked(server, "Both", 2)
    sheet.open(run)
    expect(sheet.page.locator("checkrein-bar")).to_contain_text("2 calls")
    approve(sheet.needs.locator("li.approval").filter(has_text="May it use pay?")).click()
    until(lambda: len(server.view(run)["calls"]) == 4, "the agent has no more to do")

    sheet.shows("Running, needs you")
    expect(sheet.page.locator("checkrein-bar")).to_contain_text("May it use post_notice?")
    listed = next(row for row in server.get("/api/runs?waiting=true")["runs"] if row["id"] == run)
    assert [one["what"] for one in listed["waiting_for"]] == ["approve post_notice"]
    sheet.page.goto(server.url)
    line = sheet.page.locator(".lists.first li").filter(has_text=server.view(run)["goal"])
    expect(line).to_contain_text("Running, needs you")


def test_a_key_answers_the_question_that_is_shown_first_although_another_was_asked_before(
    sheet: Sheet, server: Server
) -> None:
    """The one that comes later holds the agent up, so it stands above the one that does not."""
    run = asked(server, "Then")
    sheet.open(run)
    cards = sheet.needs.locator("li.approval")
    expect(cards).to_contain_text("May it use post_notice?")
    server.open_gate(run)
    expect(cards).to_have_count(2)
    expect(cards.nth(0)).to_contain_text("May it use pay?")
    sheet.page.locator("checkrein-bar").get_by_role("button", name="Redirect").focus()
    pay = next(one["call"] for one in server.view(run)["approvals"] if one["name"] == "pay")
    sent: list[str] = []
    sheet.page.on("request", lambda request: sent.append(request.url) if "/approve" in request.url else None)

    def pressed() -> bool:
        """A key that comes while the question still moves to its place is not taken."""
        expect(approve(cards.nth(0))).to_be_enabled()
        sheet.page.keyboard.press("y")
        for _ in range(20):
            sheet.page.wait_for_timeout(50)
            if sent:
                return True
        return False

    until(pressed, "a key is taken")
    assert [url.split("/")[-2] for url in sent] == [pay]
