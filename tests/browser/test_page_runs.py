"""The list of runs, starting one, and a newcomer's path through the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect

from tests.browser.conftest import log_in
from tests.browser.served import PATIENCE_MS, Server, until_heard
from tests.browser.sheets import Sheet


@pytest.fixture
def alone(browser: Browser, fresh_server: Server) -> Iterator[Sheet]:
    """Somebody who comes to a server on which nothing has happened yet."""
    context: BrowserContext = browser.new_context(viewport={"width": 1280, "height": 800})
    log_in(context, fresh_server)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    yield Sheet(page, fresh_server)
    context.close()


def line(page: Page, run: str) -> Locator:
    return page.locator(f'li[data-run="{run}"]')


def group(page: Page, name: str) -> Locator:
    return page.locator("section.group").filter(has=page.get_by_role("heading", name=name, exact=True))


def test_a_newcomer_starts_pauses_resumes_redirects_cancels_and_continues(alone: Sheet) -> None:
    """D1, D17, D20 to D23, D27, D32: everything by what the page itself says, from an empty list on."""
    page, server = alone.page, alone.server
    field = page.locator("checkrein-bar").get_by_role("textbox")
    send = page.locator("checkrein-bar .composer button.main")
    page.goto(server.url)
    expect(page.get_by_text("No run yet.")).to_be_visible()
    expect(page.get_by_text("Choose an agent above, say what it should do, and press Enter.")).to_be_visible()

    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("alert").filter(has_text="Say first what it should do.")).to_be_visible()
    page.get_by_label("Agent", exact=True).select_option("churn")
    page.get_by_label("What should it do?").fill("Which customers will churn next quarter?")
    page.keyboard.press("Enter")

    expect(alone.title).to_have_text("Which customers will churn next quarter?")
    page.wait_for_url(re.compile(r"/runs/r-"))
    run = page.url.rsplit("/", 1)[1]
    alone.shows("Running")
    expect(page).to_have_title(re.compile("^Running · Which customers"))
    expect(alone.call("score_churn")).to_contain_text("Running")

    alone.button("Pause").click()
    alone.shows("Paused")
    expect(alone.step("Score churn risk")).to_contain_text("Paused")
    expect(alone.call("score_churn")).to_contain_text("Frozen where it is")

    page.get_by_role("button", name="Resume with an instruction").click()
    field.fill("only Germany")
    send.click()
    alone.shows("Running")
    expect(alone.told.locator("ins")).to_have_text("+ only Germany")
    expect(alone.told).to_contain_text("The agent has it.")

    alone.button("Redirect").click()
    field.fill("Score churn risk of contracts that end in Q3")
    send.click()
    expect(alone.told.locator("li")).to_have_count(2)
    alone.shows("Running")
    expect(alone.call("score_churn")).to_contain_text("Running")

    alone.button("Cancel").click()
    alone.shows("Cancelled")
    # By then its model may just have been asked again.
    expect(alone.ended).to_contain_text(re.compile("Nothing ran after you stopped it|Closed at our end"))
    expect(alone.ended).to_contain_text(re.compile("Undone: .*draft"))
    assert not list((server.folder / "churn" / "outbox").glob("*"))
    page.get_by_role("button", name="Wrong direction").click()
    expect(alone.ended).to_contain_text("Noted: wrong direction.")

    page.wait_for_timeout(700)  # what has just taken the place of another button takes no click at first
    alone.button("Continue from here").click()
    field.fill("Sum up what you have, and stop")
    send.click()
    expect(alone.title).to_have_text("Sum up what you have, and stop")
    alone.shows("Completed")
    after = server.view(page.url.rsplit("/", 1)[1])
    assert (after["continues"], after["thread"]) == (run, server.view(run)["thread"])

    page.get_by_role("link", name="Runs", exact=True).click()
    expect(line(page, run)).to_contain_text("Cancelled")
    expect(line(page, after["id"])).to_contain_text("Completed")


def test_runs_are_listed_with_those_that_wait_for_a_person_first(page: Page, server: Server) -> None:
    waits, works, ended = server.start("asker"), server.start("talker"), server.start("quick")
    server.until(waits, lambda view: view.get("waiting"))
    server.until_status(ended, "completed")

    page.goto(server.url)

    expect(group(page, "Waiting for you").locator(f'[data-run="{waits}"]')).to_contain_text("May it use send_email?")
    row = group(page, "At work").locator(f'[data-run="{works}"]')
    expect(row).to_contain_text("Running")
    expect(row).to_contain_text("talker")
    expect(row.locator(".elapsed")).to_have_text(re.compile(r"^\d\d:\d\d$"))
    expect(group(page, "Ended").locator(f'[data-run="{ended}"]')).to_contain_text("Completed")
    tops = [group(page, name).bounding_box()["y"] for name in ("Waiting for you", "At work", "Ended")]  # type: ignore[index]
    assert tops == sorted(tops)

    server.post(f"/api/runs/{works}/cancel")
    expect(group(page, "Ended").locator(f'[data-run="{works}"]')).to_contain_text("Cancelled")  # without a reload


def test_a_thread_lists_its_runs_in_order_and_takes_another(page: Page, server: Server) -> None:
    first = server.start("echo")
    server.until_status(first, "completed")
    second = server.start("echo", continues=first)
    server.until_status(second, "completed")

    page.goto(f"{server.url}/?thread={first}")

    rows = page.locator("li[data-run]")
    expect(rows).to_have_count(2)
    assert [row.get_attribute("data-run") for row in rows.all()] == [first, second]

    page.get_by_label("Agent", exact=True).select_option("echo")
    page.get_by_label("What should it do next, in this thread?").fill("Once more")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Once more")
    assert server.view(page.url.rsplit("/", 1)[1])["thread"] == first


def test_a_goal_that_is_refused_is_said_and_kept(page: Page, server: Server) -> None:
    page.goto(server.url)
    field = page.get_by_label("What should it do?")
    field.fill("x" * 100_001)

    page.get_by_role("button", name="Start").click()

    expect(page.locator("form .trouble")).not_to_be_empty()
    assert len(field.input_value()) == 100_001
    expect(field).to_be_focused()


def test_without_a_session_the_page_asks_for_a_token_and_goes_on_where_it_was(browser: Browser, server: Server) -> None:
    """P7"""
    run = server.start("quick")
    server.until_status(run, "completed")
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server.url}/runs/{run}")
    expect(page.get_by_role("heading", name="Who is there?")).to_be_visible()
    assert server.view(run)["goal"] not in page.content()

    page.get_by_label("Token").fill("crk_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("This token is unknown, has expired or was revoked.")
    page.get_by_label("Token").fill(server.token)
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", level=1)).to_have_text(server.view(run)["goal"])
    assert server.token not in page.url
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Who is there?")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Who is there?")).to_be_visible()
    context.close()


def test_somebody_who_may_only_look_is_not_offered_what_would_be_refused(browser: Browser, server: Server) -> None:
    """P7"""
    run, token = server.start_for_a_viewer("asker")
    server.until(run, lambda view: view.get("approvals"))
    context = browser.new_context()
    answer = context.request.post(f"{server.url}/session", data={"token": token})
    assert answer.ok
    page = context.new_page()
    page.goto(f"{server.url}/runs/{run}")

    expect(page.get_by_text("You may look at this run. To answer takes somebody who may steer it.")).to_be_visible()
    expect(page.locator("section.ask")).to_be_hidden()
    for slot in ("hold", "redirect", "cancel"):
        expect(page.locator(f".key-{slot}")).to_be_disabled()
        expect(page.locator(f"#{slot}-consequence")).to_have_text("you may only watch")
    page.goto(server.url)
    expect(page.locator(f'li[data-run="{run}"]')).to_be_visible()
    expect(page.get_by_label("What should it do?")).to_be_hidden()
    context.close()


def test_runs_are_searched_filtered_and_several_stopped_each_with_its_own_result(page: Page, server: Server) -> None:
    runs = [server.start("talker", "Recite"), server.start("talker", "Recite")]
    for run in runs:
        server.until_saying(run)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/runs?" in request.url else None)
    page.goto(server.url)
    expect(line(page, runs[0])).to_be_visible()
    page.get_by_label("Search goals").fill("Recite")
    page.get_by_text("Filter", exact=True).click()
    page.get_by_label("Agent of the runs").select_option("talker")
    page.get_by_label("Status").select_option("At work")
    page.get_by_label("Owner").fill("you")
    page.get_by_label("Begun on or after").fill("2026-01-31")
    until_heard(page, lambda: any("since=" in url for url in asked), "all of it is asked for")
    query = parse_qs(urlsplit(next(url for url in reversed(asked) if "since=" in url)).query)
    assert (query["search"], query["agent"], query["owner"]) == (["Recite"], ["talker"], ["you"])
    assert query["status"] == ["queued", "running", "pausing", "redirecting", "cancelling"]
    page.get_by_role("button", name="Show all runs").click()

    for run in runs:
        line(page, run).get_by_role("checkbox").check()
    page.get_by_role("button", name="Cancel all 2").click()

    for run in runs:
        expect(page.locator(f'[data-cancelled="{run}"]')).to_contain_text("stopped in")
        assert server.view(run)["status"] == "cancelled"
        expect(group(page, "Ended").locator(f'[data-run="{run}"]')).to_contain_text("Cancelled")


def test_goals_that_an_agent_offers_are_started_by_a_click_and_others_offer_none(page: Page, server: Server) -> None:
    page.goto(server.url)
    page.get_by_label("Agent", exact=True).select_option("echo")
    expect(page.get_by_role("group", name="Goals to try")).to_be_hidden()
    expect(page.get_by_label("What should it do?")).not_to_have_attribute("placeholder", re.compile("churn"))
    page.get_by_label("Agent", exact=True).select_option("asking")

    page.get_by_role("button", name="Pay the landlord").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Pay the landlord")
    server.post(f"/api/runs/{page.url.rsplit('/', 1)[1]}/cancel")


def test_on_a_phone_what_waits_comes_first_and_the_form_is_one_button(page: Page, server: Server) -> None:
    waits = server.start("asker")
    server.until(waits, lambda view: view.get("waiting"))
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(server.url)

    first = group(page, "Waiting for you").bounding_box()
    start = page.get_by_role("button", name="Start a run").bounding_box()
    assert first is not None
    assert start is not None
    assert first["y"] < start["y"]
    expect(page.get_by_label("What should it do?")).to_be_hidden()
    page.get_by_role("button", name="Start a run").click()
    expect(page.get_by_label("What should it do?")).to_be_focused()
    page.set_viewport_size({"width": 1280, "height": 800})
    server.post(f"/api/runs/{waits}/cancel")


def test_whoever_presses_enter_before_the_agents_are_there_starts_the_first_of_them(page: Page, server: Server) -> None:
    """D1"""
    waiting = list[Route]()
    page.route("**/api/agents", lambda route: waiting.append(route))
    page.goto(server.url)
    page.get_by_label("What should it do?").fill("Be quick.")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Start", exact=True)).to_have_attribute("aria-busy", "true")

    for route in waiting:
        route.continue_()

    expect(page.get_by_role("heading", level=1)).to_have_text("Be quick.")
    server.post(f"/api/runs/{page.url.rsplit('/', 1)[1]}/cancel")
