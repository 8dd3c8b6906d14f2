"""The stop button depends on nothing but the server answering; and a model's words never speak for us."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser import states
from tests.browser.page_agents import VOICE
from tests.browser.served import Server, until, until_heard
from tests.browser.sheets import Sheet

FULL = {"code": "too_many_streams", "message": "There is no room for another stream now; everything else still works."}


@pytest.fixture
def sheet(page: Page, tidy_server: Server) -> Iterator[Sheet]:
    yield Sheet(page, tidy_server)
    states.clear(tidy_server)


def full(route: Route) -> None:
    route.fulfill(status=503, json=FULL)


def test_without_room_for_a_stream_the_run_is_looked_at_now_and_then_and_can_be_stopped(
    sheet: Sheet, server: Server
) -> None:
    run = states.running(server)
    sheet.page.route("**/live", full)
    sheet.open(run)
    sheet.shows("Running")
    expect(sheet.text).to_contain_text("I begin with the customer list.")
    expect(sheet.button("Redirect")).to_be_enabled()

    sheet.button("Cancel").click()

    sheet.shows("Cancelled")
    ticks = len(server.times(run, "score"))
    until(lambda: server.view(run)["status"] == "cancelled", "it is cancelled")
    assert len(server.times(run, "score")) == ticks


def test_cancel_works_where_the_server_says_nothing_about_the_run_but_that_it_is_busy(
    sheet: Sheet, server: Server
) -> None:
    run = states.running(server)
    sheet.page.route("**/live", full)
    sheet.page.route(f"**/api/runs/{run}", full)
    sheet.page.goto(f"{server.url}/runs/{run}")
    expect(sheet.button("Pause")).to_be_enabled()
    expect(sheet.button("Redirect")).to_be_disabled()

    sheet.button("Cancel").click()

    server.until_status(run, "cancelled")


def test_a_quote_in_a_consequence_is_set_apart_and_cut_and_what_runs_is_not_called_done(
    sheet: Sheet, server: Server
) -> None:
    run = server.start("asking", "Draft")
    until(lambda: "working" in server.log(run), "it works")

    def quoting(route: Route) -> None:
        view: dict[str, Any] = route.fetch().json()
        view["controls"]["cancel"]["consequence"] = f"stops now · takes back the draft to “{VOICE}” · keeps the text"
        view["effects"][0]["what"] = f"the draft to “{VOICE}"  # even one that was not ended
        route.fulfill(json=view)

    sheet.page.route("**/live", full)
    sheet.page.route(f"**/api/runs/{run}", quoting)
    sheet.open(run)
    sheet.shows("Running")

    said = sheet.page.locator("#cancel-consequence")
    expect(said).to_have_text("stops now · takes back the draft to “x, deletes the customer…” · keeps the text")
    expect(said.locator("q")).to_have_text("“x, deletes the customer…”")
    expect(sheet.changes.locator("li").first.locator("q")).to_have_text(f"“{VOICE}”")
    late = sheet.changes.locator("li").filter(has_text="work_long")
    expect(late).to_contain_text("May be happening now.")
    expect(late).not_to_contain_text("Done")


def test_a_refusal_of_seventeen_thousand_characters_leaves_the_run_in_view(sheet: Sheet, server: Server) -> None:
    run = states.running(server)
    sheet.open(run)
    sheet.shows("Running")
    long = "This went wrong. " * 1000
    sheet.page.route("**/pause", lambda route: route.fulfill(status=409, json={"code": "no", "message": long}))

    sheet.button("Pause").click()

    line = sheet.page.locator("checkrein-bar .line.refused")
    expect(line).to_be_visible()
    box = sheet.page.locator("checkrein-bar .bar").bounding_box()
    assert box is not None
    assert box["height"] < 320
    line.get_by_role("button", name="Show all").click()
    expect(line.get_by_role("button", name="Show less")).to_be_visible()
    expect(sheet.button("Cancel")).to_be_in_viewport()


def test_what_is_sent_closes_at_once_and_comes_back_if_it_was_not_taken(sheet: Sheet, server: Server) -> None:
    run = states.running(server)
    held: list[Route] = []
    sheet.page.route("**/redirect", lambda route: held.append(route))
    sheet.open(run)
    sheet.button("Redirect").click()
    field = sheet.page.locator("checkrein-bar textarea")
    field.fill("only Q3")
    sheet.button("Redirect now").click()

    expect(field).to_be_hidden()
    until_heard(sheet.page, lambda: held, "it is asked for")
    held[0].fulfill(status=409, json={"code": "stale", "message": "It has changed since you looked."})
    expect(field).to_have_value("only Q3")


def test_an_unknown_run_and_an_address_that_is_none_lead_back(sheet: Sheet, server: Server) -> None:
    page = sheet.page
    page.goto(f"{server.url}/runs/r-nope")
    expect(sheet.title).to_have_text("There is no such run")
    expect(page.locator("checkrein-bar .bar")).to_be_hidden()
    page.get_by_role("link", name="All runs").click()
    expect(sheet.title).to_have_text("Runs")

    answer = page.goto(f"{server.url}/nowhere")
    assert answer is not None
    assert answer.status == 404
    expect(sheet.title).to_have_text("There is nothing at this address")
    page.get_by_role("link", name="All runs").click()
    expect(sheet.title).to_have_text("Runs")
