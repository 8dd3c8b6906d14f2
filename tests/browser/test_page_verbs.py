"""What is asked from the panels of a run: asked again when the answer is lost, and acted on once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Response, Route, expect

from tests.browser import states
from tests.browser.served import Server, until_heard
from tests.browser.sheets import Sheet

APPROVE = "Approve it is done now, exactly so"
AGAIN = "There is no answer; it is asked again."
NO_ANSWER = "The server did not answer."
DENY = "Deny it is not done, and the agent is told"


@pytest.fixture
def sheet(page: Page, server: Server) -> Iterator[Sheet]:
    yield Sheet(page, server)
    states.clear(server)


@pytest.fixture
def own_sheet(own_page: Page, own_server: Server) -> Sheet:
    """On a server that a test may end."""
    return Sheet(own_page, own_server)


class Network:
    """How the requests for one verb get through: each as is said here, and what was asked over it."""

    def __init__(self, page: Page, verb: str, how: Callable[[Route], None]) -> None:
        self.asked: list[dict[str, Any]] = []
        self.how = how
        self._page = page
        self._verb = verb
        page.route(f"**/{verb}", lambda route: self._take(route))

    def _take(self, route: Route) -> None:
        self.asked.append(json.loads(route.request.post_data or "{}"))
        self.how(route)

    def lose_an_answer(self, route: Route) -> None:
        """It arrives, and is taken; what is answered is lost. The next one gets through."""
        self.how = through
        route.fetch()
        route.abort()

    def answer_to(self, act: Callable[[], None]) -> Response:
        """The first answer that comes through."""
        with self._page.expect_response(lambda response: response.url.endswith(f"/{self._verb}")) as found:
            act()
        return found.value


def through(route: Route) -> None:
    route.continue_()


def down(route: Route) -> None:
    route.abort()


def test_an_approval_whose_answer_is_lost_is_asked_again_and_acted_on_once(sheet: Sheet, server: Server) -> None:
    run = server.start("asker")
    sheet.open(run)
    network = Network(sheet.page, "approve", down)
    network.how = network.lose_an_answer
    sheet.say_a_word("go ahead")

    repeat = network.answer_to(sheet.button(APPROVE).click)

    assert [one["note"] for one in network.asked] == ["go ahead"] * 2
    assert len({one["request_id"] for one in network.asked}) == 1
    assert repeat.status == 200
    sheet.shows("Completed")
    expect(sheet.needs).to_be_hidden()
    assert server.log(run) == ["sent"]


def test_an_approval_that_does_not_arrive_says_so_and_is_asked_again_until_it_does(
    sheet: Sheet, server: Server
) -> None:
    run = server.start("asker")
    sheet.open(run)
    network = Network(sheet.page, "approve", down)

    sheet.button(APPROVE).click()

    expect(sheet.needs.get_by_role("alert").first).to_have_text(AGAIN)
    expect(sheet.button(APPROVE)).to_have_attribute("aria-busy", "true")
    assert server.log(run) == []
    network.how = through
    sheet.shows("Completed")
    assert len(network.asked) >= 2
    assert server.log(run) == ["sent"]


def test_the_last_word_about_a_call_counts_when_an_earlier_one_did_not_arrive(sheet: Sheet, server: Server) -> None:
    run = server.start("asker")
    sheet.open(run)
    held: list[Route] = []
    approving = Network(sheet.page, "approve", down)
    Network(sheet.page, "deny", lambda route: held.append(route))
    sheet.button(APPROVE).click()
    expect(sheet.needs.get_by_role("alert").first).to_have_text(AGAIN)

    sheet.button(DENY).click()

    expect(sheet.needs.get_by_role("alert").first).to_have_text(NO_ANSWER)  # it is given up
    asked = len(approving.asked)
    approving.how = through
    until_heard(sheet.page, lambda: held, "it is denied")
    held[0].continue_()
    sheet.shows("Completed")
    assert len(approving.asked) == asked
    assert server.log(run) == []


def test_a_question_whose_answer_is_lost_is_asked_again_under_the_same_name(sheet: Sheet, server: Server) -> None:
    run = server.talking()
    sheet.open(run)
    network = Network(sheet.page, "ask", down)
    network.how = network.lose_an_answer
    field = sheet.ask.get_by_role("textbox")
    field.fill("How far are you?")

    network.answer_to(sheet.ask.get_by_role("button", name="Ask").click)

    expect(field).to_have_value("")
    assert len(network.asked) == 2
    assert len({asked["request_id"] for asked in network.asked}) == 1
    assert len([one for one in server.view(run)["verbs"] if one["verb"] == "ask"]) == 1


def test_an_answer_to_a_doubt_that_is_lost_is_asked_again_under_the_same_name_and_taken_once(
    own_sheet: Sheet, own_server: Server
) -> None:
    run = states.doubtful(own_server)
    sent = own_server.log(run)
    own_sheet.open(run)
    network = Network(own_sheet.page, "resolve", down)
    network.how = network.lose_an_answer

    repeat = network.answer_to(own_sheet.needs.get_by_role("button", name="It happened").click)

    assert repeat.status == 200
    assert [one["outcome"] for one in network.asked] == ["happened"] * 2
    assert len({one["request_id"] for one in network.asked}) == 1
    expect(own_sheet.needs.locator("li.doubt")).to_be_hidden()
    own_sheet.shows("Completed")
    assert own_server.log(run) == sent
