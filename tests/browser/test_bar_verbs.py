"""Every button in every status of the verb table, on real runs: what it offers, and what it does.

What the buttons offer is compared with the table itself, so neither can drift from the other.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, expect

from checkrein.core.enums import Status, Verb
from checkrein.core.transitions import VERBS
from tests.browser.bars import Bar
from tests.browser.served import Server
from tests.browser.states import Arrange, pausing, running

WORDS = {
    "queued": "Queued",
    "running": "Running",
    "pausing": "Pausing…",
    "paused": "Paused",
    "redirecting": "Redirecting…",
    "cancelling": "Cancelling…",
    "completed": "Completed",
    "failed": "Failed",
    "cancelled": "Cancelled",
    "killed": "Halted by an operator",
}


def queued(server: Server) -> str:
    ahead = server.start("talker")
    return server.start("worker", thread=server.view(ahead)["thread"])


def paused(server: Server) -> str:
    return server.told(server.talking(), "pause")


def redirecting(server: Server) -> str:
    return server.told(running(server), "redirect", instruction="only Q3", when="next_step", wait=0.1)


def cancelling(server: Server) -> str:
    return server.told(server.talking("stubborn"), "cancel", wait=0.1)


def completed(server: Server) -> str:
    run = server.start("quick")
    server.until_status(run, "completed")
    return run


def failed(server: Server) -> str:
    run = server.start("broken")
    server.until_status(run, "failed")
    return run


def cancelled(server: Server) -> str:
    return server.told(server.talking(), "cancel")


def killed(server: Server) -> str:
    run = running(server)
    server.post("/api/halt", scope="run", name=run, reason="a test")
    server.until_status(run, "killed")
    return run


LIVE: list[Arrange] = [queued, running, pausing, paused, redirecting, cancelling]
ENDED: list[Arrange] = [completed, failed, cancelled, killed]


def _is_possible(status: str, verb: Verb) -> bool:
    """Whether the verb, asked now, would do something new."""
    move = VERBS.get((Status(status), verb))
    return move is not None and not move.joins


@pytest.mark.parametrize("arrange", LIVE)
def test_the_buttons_offer_what_the_table_allows_and_say_why_they_do_not(bar: Bar, server: Server, arrange: Arrange):
    """D17, D18: three controls in one bar, always visible, each with its consequence."""
    run = arrange(server)
    status = arrange.__name__

    bar.open(run)

    bar.shows(WORDS[status])
    for slot, verb in (("hold", Verb.RESUME if status == "paused" else Verb.PAUSE),
                       ("redirect", Verb.REDIRECT), ("cancel", Verb.CANCEL)):  # fmt: skip
        expect(bar.key(slot)).to_be_in_viewport(ratio=1)
        expect(bar.consequence(slot)).not_to_be_empty()
        if _is_possible(status, verb):
            expect(bar.key(slot)).to_be_enabled()
            said = server.view(run)["controls"][verb.value]["consequence"]
            expect(bar.consequence(slot)).to_have_text(said)
        else:
            expect(bar.key(slot)).to_be_disabled()


@pytest.mark.parametrize("arrange", ENDED)
def test_a_run_that_has_ended_has_no_controls_and_can_be_continued(bar: Bar, server: Server, arrange: Arrange):
    run = arrange(server)

    bar.open(run)

    bar.shows(WORDS[arrange.__name__])
    for slot in ("hold", "redirect", "cancel"):
        expect(bar.key(slot)).to_be_hidden()
    expect(bar.button("Continue from here")).to_be_enabled()


@pytest.mark.parametrize(("arrange", "ends"), [(queued, "paused"), (running, "pausing"), (redirecting, "pausing")])
def test_pause(bar: Bar, server: Server, arrange: Arrange, ends: str):
    """D20."""
    run = arrange(server)
    bar.open(run)

    bar.button("Pause").click()

    bar.shows(WORDS[ends])
    assert server.view(run)["status"] == ends


def test_pause_closes_the_stream_and_resume_goes_on(bar: Bar, server: Server):
    """D20, D27, D28."""
    run = server.talking()
    bar.open(run)
    expect(bar.consequence("hold")).to_have_text("stops the model here; nothing is lost")

    bar.button("Pause").click()
    bar.shows("Paused")
    expect(bar.page.get_by_text("Nothing runs and nothing is spent.")).to_be_visible()

    bar.page.wait_for_timeout(700)  # what has just become another button takes no click at first
    bar.button("Resume").click()
    bar.shows("Running")
    assert server.view(run)["status"] == "running"


def test_a_pause_that_waits_for_a_tool_names_it_and_offers_not_to_wait(bar: Bar, server: Server):
    run = pausing(server)
    bar.open(run)
    bar.shows("Pausing…")
    expect(bar.button("Pausing…")).to_be_disabled()
    expect(bar.page.get_by_text(re.compile(r"A pause lets score_churn finish first: \d+ s so far\."))).to_be_visible()

    bar.button("Don't wait: abort it").click()

    bar.shows("Paused")
    assert "score ends" not in server.log(run)


def test_a_pause_that_has_not_settled_can_be_taken_back(bar: Bar, server: Server):
    run = pausing(server)
    bar.open(run)

    bar.button("Don't pause: go on").click()

    bar.shows("Running")
    server.open_gate(run)
    server.until_status(run, "completed")
    assert server.log(run).count("score begins") == 1


@pytest.mark.parametrize(("arrange", "first"), [(queued, "Queued"), (running, "Running"), (pausing, "Pausing…"),
                                                (paused, "Paused"), (redirecting, "Redirecting…")])  # fmt: skip
def test_redirect_reaches_the_agent(bar: Bar, server: Server, arrange: Arrange, first: str):
    """D21, D38."""
    run = arrange(server)
    bar.open(run)
    bar.shows(first)

    bar.button("Redirect").click()
    bar.field.fill("only Q3, and only the largest ten")
    bar.button("Redirect now").click()

    expect(bar.field).to_be_hidden()
    wanted = ("redirect", "only Q3, and only the largest ten")
    server.until(run, lambda view: wanted in [(one["verb"], one["text"]) for one in view.get("instructions", [])])
    if arrange is not queued:
        server.until(run, lambda view: view["instructions"][-1].get("delivered"))


@pytest.mark.parametrize("arrange", [queued, running, pausing, paused, redirecting])
def test_cancel_stops_at_once_and_without_a_question(bar: Bar, server: Server, arrange: Arrange):
    """D1, D22, D26: one click, and nothing of the run's tools happens after the receipt but what was undone."""
    run = arrange(server)
    bar.open(run)

    bar.button("Cancel").click()

    bar.shows("Cancelled")
    expect(bar.receipt).to_contain_text("Stopped")
    log = server.log(run)
    bar.page.wait_for_timeout(300)
    assert server.log(run) == log
    assert "score ends" not in log
    assert ("discarded" in log) == ("draft" in log)


def test_a_late_cancel_says_what_it_waits_for_and_for_how_long(bar: Bar, server: Server):
    run = server.talking("stubborn")
    bar.open(run)

    bar.button("Cancel").click()

    bar.shows("Cancelling…")
    expect(bar.button("Cancelling…")).to_be_disabled()
    expect(bar.key("hold")).to_contain_text("not now: it is being cancelled")
    expect(bar.page.get_by_text("Cancelling waits for")).to_contain_text("create_heavy_draft")
    expect(bar.page.get_by_text(re.compile(r"\d+ s so far"))).to_be_visible()

    server.open_gate(run)
    bar.shows("Cancelled")
    expect(bar.receipt).to_contain_text("Undone: create_heavy_draft.")


def test_who_may_only_watch_is_told_so_before_they_try(browser: Browser, tidy_server: Server):
    run, token = tidy_server.start_for_a_viewer("worker")
    tidy_server.until_calling(run, "score_churn")
    context = browser.new_context()
    assert context.request.post(f"{tidy_server.url}/session", data={"token": token}).ok
    bar = Bar(context.new_page(), tidy_server)

    bar.open(run)

    for slot in ("hold", "redirect", "cancel"):
        expect(bar.consequence(slot)).to_have_text("you may only watch")
        expect(bar.key(slot)).to_be_disabled()
    tidy_server.post(f"/api/runs/{run}/cancel")
    bar.shows("Cancelled")
    expect(bar.receipt).to_contain_text("Stopped in")
    expect(bar.button("Wrong direction")).to_be_hidden()
    expect(bar.button("Continue from here")).to_be_hidden()
    context.close()
