"""A stop, by witnesses that the runtime does not control; then the receipt, the reason, and the way on."""

from __future__ import annotations

import re
import time

from playwright.sync_api import expect

from tests.browser.bars import Bar
from tests.browser.served import Provider, Server, until
from tests.support.patience import within


def test_cancel_in_mid_stream_closes_the_connection_by_the_providers_own_clock(
    bar: Bar, server: Server, provider: Provider
):
    """D2, D12, D26: the provider sees the client gone, and nothing of the run comes to it after that."""
    run = server.start("streamer")
    bar.open(run)
    mine = until(lambda: [one for one in provider.log() if one.tokens_sent >= 10 and not one.how])[-1].number

    bar.button("Cancel").click()
    bar.shows("Cancelled")
    seen_at = time.monotonic()

    request = until(lambda: next((one for one in provider.log() if one.number == mine and one.how), None))
    assert request.how == "disconnected"
    assert request.disconnected_at is not None
    # On a machine with two cores and much to do: far from the 75 s that the whole answer takes.
    assert request.disconnected_at <= seen_at + within(1)
    assert request.tokens_since(request.disconnected_at) == 0
    time.sleep(0.5)
    assert provider.log()[-1].number == mine, "nothing was asked after the stop"
    expect(bar.receipt).to_contain_text(re.compile(r"Stopped in \d"))
    expect(bar.receipt).to_contain_text("Nothing ran after you stopped it.")
    expect(bar.receipt).to_contain_text("0 tokens after the stop.")
    expect(bar.receipt).to_contain_text(re.compile(r"Kept: what it had written so far, “.*word\d+"))


def test_the_receipt_says_what_was_undone_and_does_not_make_it_look_like_an_error(bar: Bar, server: Server):
    """D5, D33."""
    run = server.start("worker")
    server.until_calling(run, "score_churn")
    bar.open(run)

    bar.button("Cancel").click()

    undone = bar.receipt.get_by_role("listitem").filter(has_text="Undone: create_draft.")
    expect(undone).to_be_visible()
    assert server.log(run)[-1] == "discarded"
    colour = "element => getComputedStyle(element).color"
    alarm = bar.status.evaluate(colour)
    assert undone.locator(".sign").evaluate(colour) != alarm
    assert undone.evaluate(colour) != alarm


def test_the_words_of_the_runtime_are_folded_away(bar: Bar, server: Server):
    run = server.start("worker")
    server.until_calling(run, "score_churn")
    bar.open(run)
    bar.button("Cancel").click()
    expect(bar.receipt).to_be_visible()
    expect(bar.receipt.get_by_role("table")).to_be_hidden()

    bar.page.get_by_text("Details").click()

    row = bar.receipt.get_by_role("row").filter(has_text="score_churn")
    expect(row).to_contain_text(re.compile(r"aborted.*\d+ ms|aborted.*under 1 ms"))
    expect(bar.receipt).to_contain_text("Asked by you at")


def test_a_stop_by_somebody_else_is_not_said_to_be_yours(bar: Bar, server: Server):
    run = server.talking()
    bar.open(run)
    bar.shows("Running")

    server.post(f"/api/runs/{run}/cancel")

    expect(bar.receipt).to_contain_text("Nothing ran after it was stopped.")


def test_a_reason_is_one_more_click_after_the_stop_and_none_before_it(bar: Bar, server: Server):
    """D14."""
    run = server.talking()
    bar.open(run)
    expect(bar.button("Too expensive")).to_be_hidden()

    bar.button("Cancel").click()
    bar.button("Too expensive").click()

    expect(bar.receipt).to_contain_text("Noted: too expensive.")
    expect(bar.button("Too expensive")).to_have_attribute("aria-pressed", "true")
    assert [one["reason"] for one in server.view(run)["reasons"]] == ["too expensive"]


def test_after_a_reload_the_receipt_and_the_reason_are_still_there(bar: Bar, server: Server):
    run = server.talking()
    bar.open(run)
    bar.button("Cancel").click()
    bar.button("Wrong direction").click()
    expect(bar.receipt).to_contain_text("Noted: wrong direction.")

    bar.page.reload()

    expect(bar.receipt).to_contain_text("Nothing ran after you stopped it.")
    expect(bar.receipt).to_contain_text("Noted: wrong direction.")


def test_continue_from_here_begins_a_run_on_the_same_thread(bar: Bar, server: Server):
    """D6."""
    run = server.talking()
    bar.open(run)
    bar.button("Cancel").click()
    bar.shows("Cancelled")
    bar.page.wait_for_timeout(700)  # a second click on Cancel must not become one on what took its place

    bar.button("Continue from here").click()
    expect(bar.field).to_have_value(server.view(run)["goal"])
    bar.field.fill("and now in one sentence")
    bar.button("Continue from here").click()

    bar.shows("Running")
    after = server.view(str(bar.host.get_attribute("run-id")))
    assert (after["continues"], after["thread"], after["goal"]) == (
        run,
        server.view(run)["thread"],
        "and now in one sentence",
    )


AT_ONCE = """([wanted, then]) => {
  // What a second click would hit, in the very moment in which it has become something else.
  const root = document.querySelector("checkrein-bar").shadowRoot;
  globalThis.pressed = 0;
  new MutationObserver(() => {
    const seen = [...root.querySelectorAll("button")].filter((one) => one.checkVisibility());
    const button = seen.find((one) => one.innerText.includes(then));
    if (!button || pressed || root.querySelector(".status").innerText.trim() !== wanted) return;
    pressed += 1;
    button.click();
  }).observe(root, { subtree: true, childList: true, characterData: true, attributes: true });
}"""


def click_twice(bar: Bar, server: Server, name: str, then: list[str]) -> str:
    """The second time on what stands there as soon as the status is the first of `then`: a button with these words."""
    run = server.talking()
    bar.open(run)
    bar.page.evaluate(AT_ONCE, then)
    bar.button(name).click()
    until(lambda: bar.page.evaluate("globalThis.pressed") == 1)
    return run


def test_a_second_click_on_cancel_begins_nothing_new(bar: Bar, server: Server):
    click_twice(bar, server, "Cancel", ["Cancelled", "Continue from here"])

    expect(bar.button("Continue from here")).to_be_visible()
    expect(bar.field).to_be_hidden()


def test_a_second_click_on_pause_does_not_resume(bar: Bar, server: Server):
    run = click_twice(bar, server, "Pause", ["Paused", "goes on exactly there"])

    bar.page.wait_for_timeout(300)
    assert [one["verb"] for one in server.view(run)["verbs"]] == ["pause"]


def test_a_failed_run_says_what_went_wrong(bar: Bar, server: Server):
    run = server.start("broken")
    server.until_status(run, "failed")

    bar.open(run)

    expect(bar.receipt).to_contain_text("Failed. ")
    expect(bar.receipt).to_contain_text("mrr")
    expect(bar.button("Too expensive")).to_be_hidden()
