"""What the bar shows is what the server said: while it is asked, when it does not answer, and when it is gone."""

from __future__ import annotations

import json
import re
import signal
import time

from playwright.sync_api import BrowserContext, Route, expect

from tests.browser.bars import Bar
from tests.browser.served import Server, until


def test_a_click_shows_that_it_was_asked_and_the_status_only_what_the_server_said(bar: Bar, server: Server):
    """Never optimistic: as long as the server has not said it, the run is not shown as pausing."""
    bar.open(server.talking())
    bar.shows("Running")
    held: list[Route] = []
    bar.page.route("**/pause", lambda route: held.append(route))

    bar.button("Pause").click()

    expect(bar.button("Pausing…")).to_have_attribute("aria-busy", "true")
    expect(bar.consequence("hold")).to_have_text(re.compile(r"asked \d+ s ago, no answer yet"))
    expect(bar.status).to_have_text("Running")
    expect(bar.button("Cancel")).to_be_enabled()
    held[0].continue_()
    bar.shows("Paused")
    expect(bar.button("Resume")).to_be_enabled()


def test_a_verb_whose_answer_is_lost_is_asked_again_under_the_same_name(bar: Bar, server: Server):
    run = server.talking()
    bar.open(run)
    names: list[str] = []

    def lose_first(route: Route) -> None:
        names.append(json.loads(route.request.post_data or "")["request_id"])
        if len(names) == 1:
            route.fetch()  # it arrives, and is taken; what it answers is lost
            route.abort()
        else:
            route.continue_()

    bar.page.route("**/cancel", lose_first)
    bar.button("Cancel").click()

    bar.shows("Cancelled")
    expect(bar.receipt).to_contain_text("Nothing ran after you stopped it.")
    bar.page.wait_for_timeout(800)
    assert len(set(names)) == 1
    assert len([one for one in server.view(run)["verbs"] if one["verb"] == "cancel"]) == 1


def test_a_verb_that_does_not_arrive_is_asked_again_until_it_does(bar: Bar, server: Server):
    bar.open(server.talking())
    tries: list[str] = []
    is_down = [True]

    def lose(route: Route) -> None:
        tries.append(json.loads(route.request.post_data or "")["request_id"])
        route.abort() if is_down[0] or len(tries) <= 2 else route.continue_()

    bar.page.route("**/cancel", lose)
    bar.button("Cancel").click()

    expect(bar.consequence("cancel")).to_contain_text("asking again")
    is_down[0] = False
    bar.shows("Cancelled")
    assert len(tries) >= 3
    assert len(set(tries)) == 1


def test_a_refused_verb_says_the_servers_sentence(bar: Bar, server: Server):
    run = server.start("worker")
    server.until_calling(run, "score_churn")
    server.post(f"/api/runs/{run}/pause", wait=0.1)
    bar.open(run)
    message = "Run r-7 finished 40 ms before this resume (completed); there was nothing left to resume."
    bar.page.route("**/resume", lambda route: route.fulfill(status=409, json={"code": "refused", "message": message}))

    bar.button("Don't pause: go on").click()

    expect(bar.page.locator(".refused")).to_contain_text(message)
    expect(bar.spoken).to_have_text(message)
    bar.page.locator(".refused").get_by_role("button", name="Close").click()
    expect(bar.page.locator(".refused")).to_be_hidden()


def test_two_tabs_show_the_same_run(bar: Bar, server: Server):
    run = server.talking()
    bar.open(run)
    other = Bar(bar.page.context.new_page(), server)
    other.open(run)
    other.shows("Running")

    bar.button("Pause").click()
    other.shows("Paused")
    other.page.wait_for_timeout(700)
    other.button("Resume").click()

    bar.shows("Running")
    other.button("Cancel").click()
    bar.shows("Cancelled")
    expect(bar.receipt).to_contain_text("Nothing ran after it was stopped.")
    expect(other.receipt).to_contain_text("Nothing ran after you stopped it.")
    other.page.close()


def test_a_reload_in_the_middle_changes_nothing(bar: Bar, server: Server):
    run = server.talking()
    bar.open(run)
    bar.button("Pause").click()
    bar.shows("Paused")

    bar.page.reload()

    bar.shows("Paused")
    assert server.view(run)["status"] == "paused"
    bar.button("Cancel").click()
    bar.shows("Cancelled")


def test_without_a_connection_the_bar_is_inoperative_says_so_and_comes_back_by_itself(own_bar: Bar, own_server: Server):
    """A server that is killed and started again: the run is still there, and the bar finds it without a reload."""
    bar = own_bar
    run = own_server.talking()
    bar.open(run)
    bar.shows("Running")

    own_server.end(signal.SIGKILL)

    bar.shows("Running when last seen")
    lost = bar.page.locator(".line.is-lost")
    expect(lost).to_contain_text("Connection lost")
    expect(bar.region).to_have_attribute("data-lost", "")
    for slot in ("hold", "redirect", "cancel"):
        expect(bar.key(slot)).to_be_disabled()
        expect(bar.consequence(slot)).to_have_text("not connected, comes back by itself")
    expect(bar.spoken).to_have_text("Connection lost. The controls do not work until it is back.")

    own_server.begin()

    expect(bar.button("Cancel")).to_be_enabled()
    expect(lost).to_be_hidden()
    bar.button("Cancel").click()
    bar.shows("Cancelled")
    assert own_server.view(run)["status"] == "cancelled"


def test_the_time_stands_still_while_nobody_knows(own_bar: Bar, own_server: Server):
    bar = own_bar
    bar.open(own_server.talking())
    timer = bar.page.get_by_role("timer")
    expect(timer).to_have_text(re.compile(r"^(?!00:0[01])\d\d:\d\d$"))

    own_server.end(signal.SIGKILL)
    bar.shows("Running when last seen")

    shown = timer.text_content()
    bar.page.wait_for_timeout(1200)
    assert timer.text_content() == shown


def test_a_silence_of_twenty_seconds_counts_as_lost_and_is_mended(context: BrowserContext, server: Server):
    """A connection that is only held open, by a proxy or a sleeping machine, must not look like a run at work."""
    run = server.start("worker")
    server.until_calling(run, "score_churn")
    bar = Bar(context.new_page(), server)
    bar.page.clock.install()
    bar.open(run)
    bar.shows("Running")
    bar.host.evaluate(
        "bar => { globalThis.states = []; bar.live.addEventListener('state', () => states.push(bar.live.state)) }"
    )

    bar.page.clock.fast_forward(10_000)  # the clock goes on beside this, and a busy machine takes its time
    assert bar.page.evaluate("states") == []
    bar.page.clock.fast_forward(11_000)

    until(lambda: bar.page.evaluate("states") == ["lost", "live"])
    bar.shows("Running")
    server.open_gate(run)


def test_the_clock_of_the_machine_may_be_wrong(context: BrowserContext, server: Server):
    run = server.start("worker")
    server.until_calling(run, "score_churn")
    server.post(f"/api/runs/{run}/pause", wait=0.1)
    bar = Bar(context.new_page(), server)
    bar.page.clock.install(time=time.time() + 5000)

    bar.open(run)

    expect(bar.page.get_by_text(re.compile(r"A pause lets score_churn finish first: \d+ s so far."))).to_be_visible()
    expect(bar.page.get_by_role("timer")).to_contain_text("00:")
    server.open_gate(run)


def test_a_run_that_there_is_not_is_said_so(bar: Bar):
    bar.open("r-nothere")

    expect(bar.page.get_by_text("There is no run r-nothere.")).to_be_visible()
    expect(bar.key("cancel")).to_be_hidden()
