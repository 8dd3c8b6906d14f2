"""Without a mouse, and without looking: keys, focus, and what a screen reader is told."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.bars import Bar
from tests.browser.served import Server, until


def test_p_pauses_and_resumes_while_the_bar_has_the_focus_which_stays_where_it_was(bar: Bar, server: Server):
    bar.open(server.talking())
    bar.button("Cancel").focus()

    bar.page.keyboard.press("p")
    bar.shows("Paused")
    expect(bar.button("Cancel")).to_be_focused()

    bar.page.wait_for_timeout(700)
    bar.page.keyboard.press("p")
    bar.shows("Running")
    expect(bar.button("Cancel")).to_be_focused()


def test_the_focus_stays_on_a_button_that_becomes_another(bar: Bar, server: Server):
    bar.open(server.talking())
    bar.button("Pause").focus()

    bar.page.keyboard.press("Enter")

    bar.shows("Paused")
    expect(bar.button("Resume")).to_be_focused()


def test_r_opens_the_composer_and_c_cancels(bar: Bar, server: Server):
    bar.open(server.talking())
    bar.button("Pause").focus()

    bar.page.keyboard.press("r")
    expect(bar.field).to_be_focused()
    bar.page.keyboard.press("Escape")
    bar.page.keyboard.press("c")

    bar.shows("Cancelled")


def test_no_letter_acts_while_somebody_types(bar: Bar, server: Server):
    run = server.talking()
    bar.open(run, page_keys="")
    bar.page.get_by_label("A field").press_sequentially("crop")
    bar.button("Redirect").click()
    bar.field.fill("")

    bar.field.press_sequentially("pack crates")

    expect(bar.field).to_have_value("pack crates")
    expect(bar.page.get_by_label("A field")).to_have_value("crop")
    assert server.view(run)["verbs"] == []


def test_no_letter_acts_from_outside_the_bar_unless_the_page_wants_it(bar: Bar, server: Server):
    run = server.talking()
    bar.open(run)
    bar.shows("Running")
    bar.page.locator("h1").click()
    bar.page.keyboard.press("c")
    bar.page.keyboard.press("p")
    bar.page.wait_for_timeout(200)
    assert server.view(run)["status"] == "running"

    bar.host.evaluate("bar => bar.setAttribute('page-keys', '')")
    bar.page.keyboard.press("c")

    bar.shows("Cancelled")


def test_no_letter_acts_together_with_another_key(bar: Bar, server: Server):
    run = server.talking()
    bar.open(run)
    bar.button("Pause").focus()

    for chord in ("Control+c", "Meta+c", "Alt+p", "Control+r"):
        bar.page.keyboard.press(chord)

    expect(bar.field).to_be_hidden()
    assert server.view(run)["status"] == "running"


def test_escape_never_stops_anything(bar: Bar, server: Server):
    run = server.talking()
    bar.open(run, page_keys="")
    bar.button("Cancel").focus()

    for _ in range(3):
        bar.page.keyboard.press("Escape")

    bar.page.wait_for_timeout(200)
    assert server.view(run)["status"] == "running"


def test_after_a_stop_the_focus_goes_to_what_has_taken_the_place_of_the_button(bar: Bar, server: Server):
    bar.open(server.talking())
    bar.button("Cancel").focus()

    bar.page.keyboard.press("Enter")

    bar.shows("Cancelled")
    expect(bar.page.locator(".ending")).to_be_focused()
    bar.page.keyboard.press("Tab")
    expect(bar.button("Wrong direction")).to_be_focused()


def test_a_button_that_goes_away_hands_the_focus_on_within_the_bar(bar: Bar, server: Server):
    run = server.start("worker")
    server.until_calling(run, "score_churn")
    server.post(f"/api/runs/{run}/pause", wait=0.1)
    bar.open(run)
    bar.button("Don't wait: abort it").focus()

    bar.page.keyboard.press("Enter")

    bar.shows("Paused")
    expect(bar.button("Resume")).to_be_focused()


def test_every_part_can_be_reached_with_tab_and_shows_it(bar: Bar, server: Server):
    bar.open(server.talking())
    bar.shows("Running")
    bar.page.get_by_label("A field").focus()

    for name in ("Pause", "Redirect", "Cancel"):
        bar.page.keyboard.press("Tab")
        expect(bar.button(name)).to_be_focused()
        width = bar.button(name).evaluate("element => getComputedStyle(element).outlineWidth")
        assert width == "3px"


def test_a_disabled_button_can_still_be_reached_to_hear_why(bar: Bar, server: Server):
    run = server.talking("stubborn")
    server.post(f"/api/runs/{run}/cancel", wait=0.1)
    bar.open(run)
    bar.shows("Cancelling…")

    bar.key("redirect").focus()

    expect(bar.key("redirect")).to_be_focused()
    expect(bar.key("redirect")).to_have_accessible_description("not now: it is being cancelled")
    server.open_gate(run)
    server.until_status(run, "cancelled")


def test_there_is_one_status_region_and_it_is_there_before_it_is_filled(bar: Bar, server: Server):
    """The region must exist empty first: what comes with its text is not read out everywhere."""
    run = server.talking()
    bar.page.add_init_script(
        """
        globalThis.firsts = [];
        const attach = Element.prototype.attachShadow;
        Element.prototype.attachShadow = function (options) {
          const root = attach.call(this, options);
          queueMicrotask(() => firsts.push(root.querySelector('[role="status"]')?.textContent));
          return root;
        };
        """
    )
    bar.open(run)

    expect(bar.spoken).to_have_count(1)
    expect(bar.spoken).to_have_text("Running.")
    assert bar.page.evaluate("firsts") == [""]
    bar.button("Cancel").click()
    expect(bar.spoken).to_contain_text("Nothing ran after you stopped it.")
    expect(bar.spoken).to_have_count(1)


def test_the_timer_is_a_timer_and_no_part_of_what_is_announced(bar: Bar, server: Server):
    """D19."""
    bar.open(server.talking())

    timer = bar.page.get_by_role("timer")
    expect(timer).to_have_text(re.compile(r"00:\d\d"))
    shown = timer.inner_text()
    until(lambda: timer.inner_text() > shown)
    assert timer.evaluate("element => element.closest('[aria-live], [role=status]')") is None
    assert "mono" in timer.evaluate("element => getComputedStyle(element).fontFamily").lower()
