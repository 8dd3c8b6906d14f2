"""The page and the bar say what the server's words say, and have none of their own."""

from __future__ import annotations

import json

from playwright.sync_api import Page, Route, expect

from checkrein.core.wording import words_for_page
from tests.browser.bars import Bar
from tests.browser.served import Server
from tests.browser.sheets import Sheet

Words = dict[str, dict[str, str]]


def _served_with(page: Page, words: Words) -> None:
    """As from a server on which things are called so."""
    body = f"export default {json.dumps(words)};"

    def answer(route: Route) -> None:
        route.fulfill(body=body, content_type="text/javascript; charset=utf-8")

    page.route("**/ui/**/wording.js", answer)


def _in_other_words() -> Words:
    return {table: {key: f"<{table} {key}>" for key in said} for table, said in words_for_page().items()}


def test_the_page_shows_the_words_that_the_server_gives_it(page: Page, tidy_server: Server) -> None:
    run = tidy_server.start("worker")
    tidy_server.until_calling(run, "score_churn")
    _served_with(page, _in_other_words())
    sheet = Sheet(page, tidy_server)
    sheet.open(run)

    sheet.shows("<statuses running>")
    expect(sheet.step("Score churn risk")).to_contain_text("<shown running>")
    sheet.button("Cancel").click()

    sheet.shows("<statuses cancelled>")
    expect(sheet.call("score_churn").locator(".now").first).to_have_text("<stopped_calls aborted>")
    expect(sheet.ended).to_contain_text("<effect_heads undone>: create_draft.")
    sheet.ended.get_by_text("Details", exact=True).click()
    expect(sheet.ended.get_by_role("table")).to_contain_text("<stopped_calls aborted>")


def test_the_list_of_runs_shows_them_too(page: Page, tidy_server: Server) -> None:
    run = tidy_server.start("quick")
    tidy_server.until_status(run, "completed")
    _served_with(page, _in_other_words())

    page.goto(tidy_server.url)

    expect(page.locator(f'li[data-run="{run}"] .status')).to_have_text("<statuses completed>")


def test_a_word_that_is_missing_is_shown_as_the_runtime_has_it(bar: Bar) -> None:
    run = bar.server.start("talker")
    bar.server.until_saying(run)
    _served_with(bar.page, {})
    bar.open(run)

    bar.shows("running")
    bar.button("Cancel").click()

    bar.shows("cancelled")
    bar.receipt.get_by_text("Details", exact=True).click()
    expect(bar.receipt.get_by_role("table")).to_contain_text("aborted")
