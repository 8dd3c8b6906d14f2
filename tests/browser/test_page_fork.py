"""Forking a run from the page, and the fork beside the run that it comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.served import Server
from tests.browser.sheets import Sheet
from tests.browser.states import clear

PICTURES = os.environ.get("CHECKREIN_PICTURES")


@pytest.fixture
def sheet(page: Page, server: Server) -> Iterator[Sheet]:
    yield Sheet(page, server)
    clear(server)


def test_a_run_at_work_is_forked_after_a_step_and_both_stand_side_by_side(sheet: Sheet, server: Server) -> None:
    origin = server.start("worker")
    server.until_calling(origin, "score_churn")
    sheet.open(origin)
    expect(sheet.step("Score churn risk").get_by_role("button", name="Fork")).to_be_hidden()

    sheet.step("Fetch customer list").get_by_role("button", name="Fork").click()
    sheet.page.get_by_label("What should it do after step 1").fill("only the customers in Europe")
    if PICTURES:
        sheet.page.screenshot(path=Path(PICTURES) / "fork-form.png")
    sheet.steps.get_by_role("button", name="Fork", exact=True).last.click()

    forked = sheet.panel("Forked")
    expect(forked).to_contain_text(f"Goes on from {origin} by you after step 1, Fetch customer list.")
    expect(forked.locator(".fork-effects li")).to_contain_text("Stands.")
    expect(forked).to_contain_text("Told from there on: “only the customers in Europe”")
    expect(forked).to_contain_text("cancelling this run undoes none of it")
    fork = sheet.page.url.rpartition("/")[2]
    assert fork != origin
    server.until_calling(fork, "score_churn")
    row = forked.get_by_role("row").filter(has_text="Fetch customer list")
    expect(row.get_by_role("cell").nth(0)).to_contain_text("Done")
    expect(row.get_by_role("cell").nth(1)).to_contain_text("Taken over")
    expect(forked.get_by_role("row").filter(has_text="Score churn risk")).to_contain_text("Running")
    expect(sheet.step("Fetch customer list")).to_contain_text("Taken over")
    expect(sheet.changes).to_contain_text("Nothing so far.")
    assert sheet.faults() == []
    if PICTURES:
        sheet.page.screenshot(path=Path(PICTURES) / "fork.png", full_page=True)

    server.post(f"/api/runs/{origin}/cancel")
    expect(forked.locator(".fork-effects li")).to_contain_text("Undone there.")
    sheet.shows("Running")
