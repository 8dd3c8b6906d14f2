"""The composer: which step it rewrites, what goes on meanwhile, and a draft that nothing loses."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.bars import Bar
from tests.browser.served import Server


def _at_work(server: Server, agent: str = "worker") -> str:
    run = server.start(agent)
    server.until_calling(run, "score_churn")
    return run


def _about(bar: Bar):
    return bar.page.locator("checkrein-bar .composer")


def test_it_says_which_step_it_rewrites_and_is_not_filled_with_the_models_words(bar: Bar, server: Server):
    """D21."""
    bar.open(_at_work(server))

    bar.button("Redirect").click()

    expect(_about(bar)).to_contain_text("rewrites step 3, “Score churn risk”")
    expect(_about(bar)).to_contain_text("The agent works on until you send.")
    expect(_about(bar).locator("q")).to_have_text("“Score churn risk”")
    expect(bar.field).to_have_value("")
    expect(bar.button("Redirect now")).to_be_disabled()
    expect(bar.field).to_be_focused()
    expect(bar.button("Redirect")).to_have_attribute("aria-expanded", "true")


def test_without_a_plan_it_is_empty_and_says_what_the_agent_said_last(bar: Bar, server: Server):
    bar.open(_at_work(server, "planless"))

    bar.button("Redirect").click()

    expect(bar.field).to_have_value("")
    expect(_about(bar)).to_contain_text("It last said: “Now I score every customer.”")
    expect(bar.button("Redirect now")).to_be_disabled()


def test_it_shows_in_one_line_each_what_is_changed(bar: Bar, server: Server):
    """D23."""
    bar.open(_at_work(server))
    bar.button("Redirect").click()

    bar.field.fill("Score churn risk, Q3 only")

    expect(bar.page.locator("checkrein-bar del")).to_have_text("− Score churn risk")
    expect(bar.page.locator("checkrein-bar ins")).to_have_text("+ Score churn risk, Q3 only")


def test_the_run_can_be_paused_while_one_writes_and_the_draft_stays(bar: Bar, server: Server):
    run = server.talking()
    bar.open(run)
    bar.button("Redirect").click()
    bar.field.fill("half a tho")

    bar.button("Pause while I write").click()
    bar.shows("Paused")

    expect(bar.field).to_have_value("half a tho")
    expect(_about(bar)).to_contain_text("It stays paused until you send.")
    expect(bar.button("Pause while I write")).to_be_hidden()
    expect(bar.field).to_be_focused()
    bar.field.press_sequentially("ught")
    bar.field.press("Control+Enter")
    server.until(run, lambda view: [one["text"] for one in view["instructions"]] == ["half a thought"])
    bar.shows("Running")


def test_escape_only_closes_it_and_the_draft_is_there_again(bar: Bar, server: Server):
    run = _at_work(server)
    bar.open(run)
    bar.button("Redirect").click()
    bar.field.fill("not yet")

    bar.field.press("Escape")

    expect(bar.field).to_be_hidden()
    expect(bar.button("Redirect")).to_be_focused()
    assert server.view(run)["status"] == "running"
    bar.button("Redirect").click()
    expect(bar.field).to_have_value("not yet")


def test_the_draft_survives_a_reload(bar: Bar, server: Server):
    bar.open(_at_work(server))
    bar.button("Redirect").click()
    bar.field.fill("a long thought")

    bar.page.reload()

    bar.shows("Running")
    expect(bar.field).to_have_value("a long thought")


def test_the_draft_survives_the_end_of_the_run_and_can_go_into_the_next(bar: Bar, server: Server):
    run = _at_work(server)
    bar.open(run)
    bar.button("Redirect").click()
    bar.field.fill("too late for this one")

    server.open_gate(run)
    bar.shows("Completed")

    expect(bar.field).to_have_value("too late for this one")
    expect(_about(bar)).to_contain_text("It has ended (completed).")
    bar.button("Continue from here").click()
    expect(bar.host).not_to_have_attribute("run-id", run)
    assert server.view(str(bar.host.get_attribute("run-id")))["goal"] == "too late for this one"


def test_a_plan_that_changes_while_it_is_open_is_said_and_changes_nothing_in_the_field(bar: Bar, server: Server):
    run = _at_work(server, "walker")
    bar.open(run)
    bar.button("Redirect").click()
    expect(_about(bar).locator("q")).to_have_text("“Fetch customer list”")
    server.open_gate(run)
    expect(_about(bar).locator("q")).to_have_text("“Join against MRR table”")
    expect(_about(bar)).to_contain_text("The plan has changed since you began to write.")
    expect(bar.field).to_have_value("")
    expect(bar.button("Redirect now")).to_be_disabled()


def test_what_was_written_does_not_follow_the_plan_but_says_which_step_it_would_rewrite(bar: Bar, server: Server):
    run = _at_work(server, "walker")
    bar.open(run)
    bar.button("Redirect").click()
    bar.field.fill("my own words")

    server.open_gate(run)

    expect(_about(bar)).to_contain_text("rewrites step 2, “Join against MRR table”")
    expect(bar.field).to_have_value("my own words")
    expect(bar.page.locator("checkrein-bar del")).to_have_text("− Join against MRR table")


def test_at_the_next_step_lets_the_tool_finish_first(bar: Bar, server: Server):
    run = _at_work(server)
    bar.open(run)
    bar.button("Redirect").click()
    bar.field.fill("only Q3")
    bar.page.get_by_label("At the next step: lets it finish first").check()

    bar.button("Redirect at the next step").click()

    bar.shows("Redirecting…")
    server.open_gate(run)
    server.until(run, lambda view: view["instructions"][-1].get("delivered"))
    assert "score ends" in server.log(run)


def test_a_refused_redirect_says_the_servers_sentence_and_keeps_the_draft(bar: Bar, server: Server):
    run = _at_work(server)
    bar.open(run)
    bar.button("Redirect").click()
    bar.field.fill("only Q3")
    message = f"Run {run} has changed since you looked."

    def refuse(route):
        route.fulfill(status=409, json={"code": "stale", "message": message, "status": "paused"})

    bar.page.route("**/redirect", refuse)
    bar.button("Redirect now").click()

    expect(bar.page.get_by_text(message).first).to_be_visible()
    expect(bar.field).to_have_value("only Q3")
    expect(bar.button("Redirect now")).to_be_enabled()


def test_resume_may_carry_an_instruction(bar: Bar, server: Server):
    """D32."""
    run = server.talking()
    server.post(f"/api/runs/{run}/pause")
    bar.open(run)

    bar.button("Resume with an instruction").click()
    bar.field.fill("summarise and stop")
    bar.button("Resume with this").click()

    bar.shows("Running")
    told = server.until(run, lambda view: view.get("instructions"))["instructions"][-1]
    assert (told["verb"], told["text"]) == ("resume", "summarise and stop")
