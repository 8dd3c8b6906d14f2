"""What the page of a run shows is what really happened: each panel against the run and the tools' own logs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.served import Server
from tests.browser.sheets import Sheet
from tests.browser.states import clear


@pytest.fixture
def sheet(page: Page, server: Server) -> Iterator[Sheet]:
    yield Sheet(page, server)
    clear(server)


def scoring(server: Server) -> str:
    run = server.start("worker")
    server.until_calling(run, "score_churn")
    return run


def test_steps_have_a_word_a_shape_and_a_time_and_unbegun_ones_are_not_started(sheet: Sheet, server: Server) -> None:
    """D24"""
    run = scoring(server)
    sheet.open(run)

    expect(sheet.title).to_have_text(server.view(run)["goal"])
    expect(sheet.step("Fetch customer list")).to_contain_text("Done")
    expect(sheet.step("Score churn risk")).to_contain_text("Running")
    expect(sheet.step("Score churn risk").locator(".time")).to_have_text(re.compile(r"^\d+ s$"))
    expect(sheet.step("Write summary memo")).to_contain_text("Queued")
    for title, shape in (("Fetch", "done"), ("Score", "running"), ("Write", "queued")):
        expect(sheet.step(title).locator(f'[data-shape="{shape}"] svg')).to_be_visible()

    server.post(f"/api/runs/{run}/cancel")
    expect(sheet.step("Score churn risk")).to_contain_text("Cancelled")
    expect(sheet.step("Write summary memo")).to_contain_text("Not started")


def test_text_streams_in_and_stays_under_the_receipt_after_a_cancel(sheet: Sheet, server: Server) -> None:
    """D1, D6, D12: what was said by the stop stays in view, and nothing comes after it."""
    run = server.start("talker")
    sheet.open(run)
    expect(sheet.text).to_contain_text("word12 ")

    sheet.button("Cancel").click()

    sheet.shows("Cancelled")
    expect(sheet.ended).to_contain_text("Stopped in")
    expect(sheet.ended).to_contain_text("Nothing ran after you stopped it.")
    expect(sheet.text).to_contain_text("Stopped here by a cancel. This text is kept.")
    recorded = server.view(run)["calls"][-1]["text"]
    expect(sheet.text.locator(".streamed")).to_have_text(recorded.strip())
    assert sheet.ended.bounding_box()["y"] < sheet.text.bounding_box()["y"]  # type: ignore[index]

    sheet.page.reload()
    expect(sheet.text.locator(".streamed")).to_have_text(recorded.strip())


def test_of_a_model_that_had_said_nothing_the_page_says_only_what_is_known(sheet: Sheet, server: Server) -> None:
    """D5: it is closed at our end, and nobody knows what its provider does."""
    run = server.start("silent")
    sheet.open(run)
    sheet.shows("Running")

    sheet.button("Cancel").click()

    sheet.shows("Cancelled")
    expect(sheet.ended).to_contain_text("Closed at our end; a provider may still be at work on the prompt.")
    expect(sheet.ended).not_to_contain_text("Nothing ran")
    expect(sheet.ended.get_by_role("button", name="Suspected disclosure")).to_be_visible()


def test_a_tool_call_that_no_tool_fits_is_shown_with_the_reason(sheet: Sheet, server: Server) -> None:
    run = server.start("clumsy")
    server.until_status(run, "completed")
    sheet.open(run)

    why = "There is no tool fetch_everything; there are: look_up."
    expect(sheet.text).to_contain_text(f"Refused: {why}")
    expect(sheet.call("fetch_everything")).to_contain_text("Refused")
    expect(sheet.opened("fetch_everything")).to_contain_text(why)
    expect(sheet.opened("fetch_everything")).to_contain_text("Nothing was begun.")


def test_a_run_that_is_over_answers_a_question(sheet: Sheet, server: Server) -> None:
    run = server.start("clumsy")
    server.until_status(run, "completed")
    sheet.open(run)

    sheet.page.get_by_label("A question on the side").fill("Why?")
    sheet.page.get_by_role("button", name="Ask", exact=True).click()

    expect(sheet.panel("Ask it something")).to_contain_text("There was no such tool.")
    sheet.shows("Completed")


def test_a_finished_text_is_shown_as_markdown(sheet: Sheet, server: Server) -> None:
    run = server.start("writer")
    server.until_status(run, "completed")
    sheet.open(run)

    expect(sheet.text.get_by_role("heading", name="Who may leave")).to_be_visible()
    expect(sheet.text.get_by_role("cell", name="Globex")).to_be_visible()
    expect(sheet.text.locator("strong")).to_have_text("240")
    expect(sheet.ended).to_contain_text("Completed.")


def test_the_text_follows_its_end_only_for_those_who_are_there(sheet: Sheet, server: Server) -> None:
    run = server.start("talker")
    sheet.page.set_viewport_size({"width": 1280, "height": 420})
    sheet.open(run)
    scroller = sheet.page.get_by_role("region", name="What the agent says and does")
    sheet.page.wait_for_function("e => e.scrollHeight > e.clientHeight + 120", arg=scroller.element_handle())
    at_end = "e => e.scrollHeight - e.scrollTop - e.clientHeight < 40"
    sheet.page.wait_for_function(at_end, arg=scroller.element_handle())

    scroller.evaluate("e => { e.scrollTop = 0 }")
    expect(sheet.button("↓ To the end")).to_be_visible()
    height = scroller.evaluate("e => e.scrollHeight")
    sheet.page.wait_for_function(f"e => e.scrollHeight > {height}", arg=scroller.element_handle())
    assert scroller.evaluate("e => e.scrollTop") == 0

    sheet.button("↓ To the end").click()
    sheet.page.wait_for_function(at_end, arg=scroller.element_handle())


def test_what_it_changed_says_what_a_cancel_undoes_and_an_undo_does_not_look_like_an_error(
    sheet: Sheet, server: Server
) -> None:
    """D5, D33, D34"""
    run = scoring(server)
    sheet.open(run)
    change = sheet.changes.locator("li.change")
    expect(change).to_contain_text("create_draft")
    expect(change).to_contain_text("Cancel undoes it.")

    sheet.button("Cancel").click()

    expect(change).to_contain_text("Undone.")
    expect(sheet.ended).to_contain_text("Undone: create_draft.")
    assert server.log(run)[-1] == "discarded"
    stop, shown = sheet.page.evaluate(
        """() => { const root = document.querySelector('checkrein-run').shadowRoot
             const colour = (selector) => getComputedStyle(root.querySelector(selector)).color
             return [colour('.task.is-cancelled'), colour('.change .fate')] }"""
    )
    assert stop != shown


def test_an_instruction_shows_its_one_line_diff_and_that_the_agent_has_it(sheet: Sheet, server: Server) -> None:
    """D23, D32"""
    run = scoring(server)
    sheet.open(run)

    server.post(f"/api/runs/{run}/redirect", instruction="Score churn risk of the largest ten")

    line = sheet.told.locator("li").last
    expect(line.locator(".diff")).to_have_text(re.compile("Score churn risk *of the largest ten"))
    expect(line.locator("ins")).to_have_text("of the largest ten")
    expect(line).to_contain_text("you, redirected")
    expect(line).to_contain_text("The agent has it.")


def test_a_file_that_a_call_wrote_can_be_read_and_is_not_taken_for_a_page(sheet: Sheet, server: Server) -> None:
    """D31"""
    run = server.start("filer")
    server.until_status(run, "completed")
    sheet.open(run)

    call = sheet.opened("write_report")
    call.get_by_text("report.md").click()

    expect(call.get_by_role("region", name="What is in")).to_have_text("# Report\n\n<b>Acme</b> may leave.\n")


def test_an_approval_shows_its_arguments_in_full_and_is_taken(sheet: Sheet, server: Server) -> None:
    """D37"""
    run = server.start("asker")
    sheet.open(run)
    expect(sheet.needs.get_by_role("heading", level=3)).to_have_text("May it use send_email?")
    expect(sheet.needs.locator("dd")).to_have_text(server.view(run)["goal"].replace(" ", "-") + ".log")
    assert server.log(run) == []

    sheet.button("Approve it is done now, exactly so").click()

    sheet.shows("Completed")
    expect(sheet.needs).to_be_hidden()
    assert server.log(run) == ["sent"]


def test_a_denied_call_is_not_made(sheet: Sheet, server: Server) -> None:
    run = server.start("asker")
    sheet.open(run)
    sheet.say_a_word("not today")

    sheet.button("Deny it is not done, and the agent is told").click()

    sheet.shows("Completed")
    assert server.log(run) == []
    expect(sheet.call("send_email")).to_contain_text("Denied")


def test_every_call_opens_to_what_it_was_given_what_came_of_it_and_how_long_it_took(
    sheet: Sheet, server: Server
) -> None:
    """D31"""
    run = scoring(server)
    sheet.open(run)

    draft = sheet.opened("create_draft")
    expect(draft).to_contain_text(re.compile(r"Done\. Began at .*, took .*ms"))
    expect(draft.locator("dd").first).to_contain_text(".log")
    expect(draft.get_by_role("region", name="What came of create_draft")).to_have_text("draft-7")

    working = sheet.opened("score_churn")
    expect(working).to_contain_text("Running.")
    sheet.page.get_by_role("button", name="Stop this call").click()
    expect(sheet.call("score_churn").locator(".now").first).to_have_text("Aborted")
    assert "score ends" not in server.log(run)


def test_partial_work_can_be_read_and_copied_while_paused(sheet: Sheet, server: Server) -> None:
    """D20, D31"""
    run = server.talking()
    server.post(f"/api/runs/{run}/pause")
    said = server.view(run)["calls"][-1]["text"]
    sheet.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    sheet.open(run)

    expect(sheet.text).to_contain_text("Stopped here by a pause.")
    inside = sheet.opened("scripted")
    expect(inside.get_by_role("region", name="What it said")).to_have_text(said.strip())
    inside.get_by_role("button", name=re.compile("^Copy")).first.click()

    expect(inside.get_by_text("Copied")).to_be_visible()
    assert sheet.page.evaluate("navigator.clipboard.readText()") == said


def test_what_is_frozen_does_not_age(sheet: Sheet, server: Server) -> None:
    """D20: the time of a call is the time it worked, not the time somebody thought about it."""
    run = server.start("churn", "Which customers will churn next quarter?")
    server.until(run, lambda view: view["calls"] and view["calls"][-1]["name"] == "score_churn")
    server.post(f"/api/runs/{run}/pause")
    sheet.open(run)
    time = sheet.call("score_churn").locator(".time")
    expect(sheet.call("score_churn")).to_contain_text("Frozen where it is")
    shown = time.text_content()
    width = "document.querySelector('checkrein-run').shadowRoot.querySelector('.stroke:last-of-type > rect').outerHTML"
    drawn = sheet.page.evaluate(width)

    sheet.page.wait_for_timeout(1500)

    assert time.text_content() == shown
    assert sheet.page.evaluate(width) == drawn
    server.post(f"/api/runs/{run}/cancel")
    expect(sheet.timeline.locator(".frozen")).to_have_count(1)


def test_the_picture_shows_each_call_where_it_was_stopped_and_the_moment_of_the_verb(
    sheet: Sheet, server: Server
) -> None:
    run = scoring(server)
    sheet.open(run)
    lanes = sheet.timeline.get_by_role("img")
    expect(lanes.locator(".stroke.tool")).to_have_count(2)
    expect(lanes.locator(".stroke.model")).not_to_have_count(0)
    expect(lanes.locator(".end")).to_have_count(0)

    server.post(f"/api/runs/{run}/cancel")

    expect(lanes.locator(".stroke.tool .end.cancel")).to_have_count(1)
    expect(lanes.locator(".moment.cancel")).to_have_count(1)
    expect(lanes.locator("text.word")).to_have_text("Cancel")
    expect(lanes.locator(".stroke.undo")).to_have_count(1)
    expect(
        sheet.timeline.get_by_role("img", name=re.compile("2 tool calls over .*1 stopped on the way"))
    ).to_be_visible()


def test_a_side_question_is_answered_beside_the_run(sheet: Sheet, server: Server) -> None:
    run = scoring(server)
    sheet.open(run)
    expect(sheet.ask).to_contain_text("Answers from a copy of the context, the run goes on")

    sheet.ask.get_by_role("textbox").fill("How far are you?")
    sheet.page.keyboard.press("Enter")

    exchange = sheet.ask.locator("li.exchange")
    expect(exchange.locator(".question")).to_have_text("How far are you?")
    expect(exchange.locator(".answer")).to_have_text("The memo is written.")
    expect(sheet.ask.get_by_role("textbox")).to_have_value("")
    sheet.shows("Running")


def test_what_a_watcher_noticed_is_shown(sheet: Sheet, server: Server) -> None:
    """D10"""
    run = server.start("parrot")
    flags = server.until(run, lambda view: view.get("flags"))["flags"]
    sheet.open(run)

    expect(sheet.noticed).to_contain_text(flags[0]["what"])


def test_sub_runs_are_a_tree_and_each_has_its_own_bar(sheet: Sheet, server: Server) -> None:
    run = server.start("boss")
    server.until_calling(run, "reader")
    sheet.open(run)

    runs = sheet.subruns.locator("li[data-run]")
    expect(runs).to_have_count(3)
    expect(runs.locator("li[data-run]")).to_have_count(1)
    expect(runs.filter(has_text="reader: Read the first book")).to_contain_text("Running")
    first = runs.filter(has_text="reader: Read the first book")
    child = first.get_attribute("data-run")
    assert child is not None

    first.get_by_role("button", name="Cancel", exact=True).click()

    expect(first.locator(".word")).to_have_text("Cancelled")
    assert server.view(child)["status"] == "cancelled"


def test_a_sub_run_that_is_not_heard_of_says_so_and_is_mended_without_a_connection_of_its_own(
    sheet: Sheet, server: Server
) -> None:
    run = server.start("boss")
    server.until_calling(run, "reader")
    streams: list[str] = []
    sheet.page.on("request", lambda request: streams.append(request.url) if request.url.endswith("/live") else None)
    sheet.open(run)
    first = sheet.subruns.locator("li[data-run]").filter(has_text="reader: Read the first book")
    status = first.locator("checkrein-bar .status")
    expect(status).to_have_text("Running")

    asked = f"{server.url}/api/runs/{first.get_attribute('data-run')}"
    sheet.page.route(asked, lambda route: route.abort())
    expect(status).to_have_text("Running when last seen")
    sheet.page.unroute(asked)

    expect(status).to_have_text("Running")
    sheet.shows("Running")
    assert streams == [f"{server.url}/api/runs/{run}/live"]


def test_a_failed_run_says_what_went_wrong_and_can_be_continued(sheet: Sheet, server: Server) -> None:
    run = server.start("failing")
    server.until_status(run, "failed")
    sheet.open(run)

    expect(sheet.ended).to_contain_text("Failed.")
    expect(sheet.ended).to_contain_text("no column named mrr")
    expect(sheet.step("Read the list")).to_contain_text("Done")
    expect(sheet.step("Add it up")).to_contain_text("Failed")
    expect(sheet.button("Continue from here")).to_be_visible()


def test_a_call_that_failed_opens_to_the_place_in_its_code(sheet: Sheet, server: Server) -> None:
    run = server.start("hostile")
    server.until(run, lambda view: any(call["name"] == "wire" for call in view.get("calls", ())))
    sheet.open(run)

    inside = sheet.opened("break_down")
    inside.locator("summary", has_text="Where in its code").click()

    expect(inside.get_by_role("region", name="Where in its code")).to_contain_text("page_agents.py")
    expect(inside.get_by_role("region", name="Where in its code")).to_contain_text("in break_down")


def test_a_call_opens_to_what_its_stop_waits_for_and_what_it_could_not_stop(sheet: Sheet, server: Server) -> None:
    run = scoring(server)
    more = {"waits_for": "its grace, at most 5 s", "left": ["process 4711 (sleep)", "a thread"]}

    def answer(route: Route) -> None:
        route.fulfill(json=route.fetch().json() | more)

    sheet.page.route(f"{server.url}/api/runs/{run}/calls/*", answer)
    sheet.open(run)
    inside = sheet.opened("score_churn")

    expect(inside).to_contain_text("Its stop waits for its grace, at most 5 s.")
    expect(inside.get_by_role("region", name="What could not be stopped")).to_contain_text("process 4711 (sleep)")


def test_an_unknown_run_is_said_to_be_unknown(sheet: Sheet, server: Server) -> None:
    sheet.page.goto(f"{server.url}/runs/r-nowhere")

    expect(sheet.title).to_have_text("There is no such run")
